"""Following a job's log for the progress it reports. Output is foreign data: any bytes, any length."""

from __future__ import annotations

import re
from pathlib import Path

from scheduler.protocol import log_file as logfile
from scheduler.protocol import paths
from scheduler.protocol.jobs import Progress
from scheduler.protocol.progress import MAX_LINE, parse, parse_bar, printable, unescaped

_ENDS = re.compile(rb"[\r\n]")
"""A bar that is drawn anew ends its line with a carriage return."""
CHUNK = 2**18
"""Bytes read at a time; a job that prints more between two looks has its older lines passed over, never its newest."""


class Tail:
    """Reads what was added to a log since the last look."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._rest = b""
        self._speaks = False
        """It has used the protocol: then its bars are for people alone."""

    def read(self, now: float) -> list[Progress]:
        """What the job reported since the last call, oldest first."""
        try:
            with paths.open_plain(self._file) as f:
                size = f.seek(0, 2)
                if size < self._offset:  # somebody emptied it
                    self._offset, self._rest = 0, b""
                if size - self._offset > CHUNK:
                    self._offset, self._rest = size - CHUNK, b""
                _, data, self._offset = logfile.read(f, self._offset, CHUNK)
        except OSError:
            return []  # no output yet
        *lines, self._rest = _ENDS.split(self._rest + data)
        self._rest = self._rest[-MAX_LINE - 1 :]
        said = [p for line in lines if (p := parse(line, now)) is not None]
        self._speaks = self._speaks or bool(said)
        return (
            said
            if self._speaks
            else [p for line in lines if (p := parse_bar(line, now)) is not None]
        )


def last_text(file: Path, size: int) -> str:
    """The last `size` bytes of a log; empty where there is none."""
    try:
        with paths.open_plain(file) as f:
            return logfile.read(f, -size, size).data.decode(errors="replace")
    except OSError:
        return ""


def last_line(file: Path) -> str:
    """The last line that says something and is not progress, cleaned for display; empty where there is none."""
    try:
        with paths.open_plain(file) as f:
            lines = _ENDS.split(logfile.read(f, -2 * MAX_LINE, 2 * MAX_LINE).data)
    except OSError:
        return ""
    for line in reversed(lines):
        text = printable(unescaped(line.decode(errors="replace")).strip())
        if text.strip() and parse(line, 0.0) is None and parse_bar(line, 0.0) is None:
            return text[:200]
    return ""
