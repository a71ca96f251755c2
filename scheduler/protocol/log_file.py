"""Reading a job's log, out of whose middle the runner may have dropped what was too much.

The dropped part is a hole in the file: the offsets of the rest stay as they were.
"""

from __future__ import annotations

import errno
import os
from typing import BinaryIO, NamedTuple

from scheduler.protocol.units import amount

DROPPED = b" of output were dropped here ...]\n"
"""How the line ends that stands for what is not kept."""


class Output(NamedTuple):
    """A part of a log; where some of it was dropped, `data` holds a line that says how much."""

    start: int
    """Where it begins, in bytes from the beginning of all output."""
    data: bytes
    end: int
    """Where to read on: behind `data` and what was dropped."""


def read(log: BinaryIO, offset: int, limit: int) -> Output:
    """Up to `limit` bytes of what is kept from `offset` on (negative: from the end). Raises OSError."""
    fd = log.fileno()
    size = os.fstat(fd).st_size
    start = at = max(0, size + offset) if offset < 0 else offset
    parts, gap = [], 0
    while limit > 0 and at < size:
        kept = _seek(fd, at, os.SEEK_DATA, size)
        gap += kept - at
        data = os.pread(fd, min(limit, max(size - kept, 0)), kept)
        data = data[
            : _seek(fd, kept, os.SEEK_HOLE, kept) - kept
        ]  # looked for after reading: what is no hole now was none then
        at = kept + len(data)
        size = os.fstat(fd).st_size
        if gap and (data or at >= size):
            parts.append(dropped(gap))
            gap = 0
        parts.append(data)
        limit -= len(data)
    return Output(start, b"".join(parts), at)


def dropped(count: int) -> bytes:
    """The line that stands for `count` bytes which are not kept."""
    return f"\n[... {amount(count)}".encode() + DROPPED


def _seek(fd: int, at: int, what: int, end: int) -> int:
    """Where the next data or hole begins, `end` where none comes or the file was cut meanwhile. Linux, lseek(2)."""
    try:
        return os.lseek(fd, at, what)
    except OSError as e:
        if e.errno != errno.ENXIO:
            raise
        return end
