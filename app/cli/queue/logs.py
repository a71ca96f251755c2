"""Print the output of a job."""

from __future__ import annotations

import codecs
import sys
import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import POLL_S, with_retries
from gpudeck.app.cli.output import neutralize, print_json, print_line
from gpudeck.app.cli.queue.named import latest
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.progress import MAX_LINE, parse

MAX_JSON_BYTES = 4 * 2**20
"""With --json, only the end of a longer log is printed."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and the option to follow it."""
    parser.add_argument(
        "job",
        type=arguments.number_or_name,
        metavar="JOB",
        help="the job's number, or a name, for the latest job with this name",
    )
    parser.add_argument(
        "--attempt",
        type=arguments.positive_count,
        metavar="N",
        help="print the output of attempt N, from 1 on (default: the newest)",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="keep printing until the job ends"
    )


def run(args: Namespace) -> None:
    """Print a job's output without its progress reports, which `gpudeck wait` shows."""
    number = with_retries(lambda client: latest(client, args.job))
    if args.json:
        with_retries(lambda client: client.job(number))  # raises for an unknown job
        log = with_retries(
            lambda client: client.log(number, -MAX_JSON_BYTES, MAX_JSON_BYTES, args.attempt)
        )
        print_json({"job": number, "log": log.decode(errors="replace")})
        return
    offset, printer = 0, LogPrinter()
    while True:
        # asked before reading, so that output written before the job's end is read below
        active = with_retries(lambda client: client.job(number)).active
        while (part := _read(number, offset, args.attempt)).data:
            offset = part.end
            printer.feed(part.data)
        if not (args.follow and active):
            break
        time.sleep(POLL_S)
    printer.close()
    if not offset and sys.stdout.isatty():
        job = with_retries(lambda client: client.job(number))
        print_line(f"job {job.id} has not printed anything: {describe(job)}")


def _read(job: int, offset: int, attempt: int | None) -> Output:
    return with_retries(lambda client: client.log_part(job, offset, attempt=attempt))


_PROGRESS_MARK = b'"gpudeck"'


class LogPrinter:
    """Print output piece by piece.

    A terminal gets it without control characters; a file or a pipe gets the job's own bytes.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._at_line_start = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Print `data`, but keep back a last line that may turn out to be a progress report."""
        data, self._pending = self._pending + data, b""
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if rest.startswith(b"{") and len(rest) <= MAX_LINE and (cut or self._at_line_start):
            data, self._pending = data[:cut], rest
        if _PROGRESS_MARK in data:
            lines = data.split(b"\n")  # not splitlines: a carriage return ends no line here
            data = b"\n".join(
                line
                for i, line in enumerate(lines)
                if (not i and not self._at_line_start) or parse(line, 0.0) is None
            )
        self._print(data)

    def close(self) -> None:
        """Print what was kept back, because the output has ended."""
        rest, self._pending = self._pending, b""
        self._print(rest)

    def _print(self, data: bytes) -> None:
        if not data:
            return
        self._at_line_start = data.endswith(b"\n")
        if sys.stdout.isatty():
            sys.stdout.write(neutralize(self._decoder.decode(data)))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
