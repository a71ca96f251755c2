"""A job's output on its way to the screen: progress reports left out, nothing that steers a terminal, nothing held back."""

from __future__ import annotations

import codecs
import sys

from app.cli.output import harmless
from scheduler.protocol.progress import MAX_LINE, parse

_MARK = b'"gpudeck"'


class LogPrinter:
    """Takes the output piece by piece. A terminal gets it made harmless; a file or a pipe gets the job's own bytes."""

    def __init__(self) -> None:
        self._held = b""
        self._at_line_start = True
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> None:
        """Print `data` up to what may be the beginning of a progress report, which waits for its end."""
        data, self._held = self._held + data, b""
        cut = data.rfind(b"\n") + 1
        rest = data[cut:]
        if rest.startswith(b"{") and len(rest) <= MAX_LINE and (cut or self._at_line_start):
            data, self._held = data[:cut], rest
        if _MARK in data:
            lines = data.split(b"\n")  # not splitlines: a carriage return ends no line here
            data = b"\n".join(
                line
                for i, line in enumerate(lines)
                if (not i and not self._at_line_start) or parse(line, 0.0) is None
            )
        self._print(data)

    def end(self) -> None:
        """Nothing more comes."""
        rest, self._held = self._held, b""
        self._print(rest)

    def _print(self, data: bytes) -> None:
        if not data:
            return
        self._at_line_start = data.endswith(b"\n")
        if sys.stdout.isatty():
            sys.stdout.write(harmless(self._decoder.decode(data)))
        else:
            sys.stdout.buffer.write(data)
        sys.stdout.flush()
