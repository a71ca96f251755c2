"""Print the output of a job."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import POLL_S, with_retries
from gpudeck.app.cli.output import print_json, print_line
from gpudeck.app.cli.queue.log_printer import LogPrinter
from gpudeck.app.cli.queue.named import latest
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.protocol.log_file import Output

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
