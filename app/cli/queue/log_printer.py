"""Print a job's output as it arrives, without its progress reports."""

from __future__ import annotations

import codecs
import sys

from gpudeck.app.cli.output import neutralize
from gpudeck.scheduler.protocol.progress import MAX_LINE, parse

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
