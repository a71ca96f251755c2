"""Read a job's log, whose middle may be missing because the log exceeded its limit.

The missing part is a hole in the file, so that the offsets of the rest are unchanged.
"""

from __future__ import annotations

import errno
import os
from typing import BinaryIO, NamedTuple

from gpudeck.language.numbers import amount
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

DROPPED = b" of output were dropped here ...]\n"
"""The end of the line that stands for the missing part."""


class Output(NamedTuple):
    """Represent a part of a log, with a line that tells how much is missing where some is."""

    start: int
    """Where the part begins, in bytes from the beginning of all output."""
    data: bytes
    end: int
    """Where to read on: after `data` and the missing part."""


def of_job(job: int, offset: int, limit: int, attempt: int | None = None) -> Output:
    """Return a part of a job's log as `read` does; nothing where it has none. Raises UserError.

    Args:
        attempt: the number of an earlier attempt, from 1 on; None for the newest one.
    """
    name = "log" if attempt is None else f"log.{attempt}"
    try:
        with paths.open_plain(paths.job_folder(job) / name) as log:
            return read(log, offset, limit)
    except FileNotFoundError:
        return Output(max(offset, 0), b"", max(offset, 0))
    except OSError as e:
        raise UserError(
            phrase("the log of job {job} cannot be read: {error}", job=job, error=str(e.strerror))
        ) from e


def read(log: BinaryIO, offset: int, limit: int) -> Output:
    """Return up to `limit` bytes that are kept from `offset` on. Raises OSError.

    Args:
        offset: in bytes; a negative one counts from the end.
    """
    fd = log.fileno()
    size = os.fstat(fd).st_size
    start = at = max(0, size + offset) if offset < 0 else offset
    parts, gap = [], 0
    while limit > 0 and at < size:
        kept = _seek(fd, at, os.SEEK_DATA, size)
        gap += kept - at
        data = os.pread(fd, min(limit, max(size - kept, 0)), kept)
        # after reading: what is no hole now was none then
        data = data[: _seek(fd, kept, os.SEEK_HOLE, kept) - kept]
        at = kept + len(data)
        size = os.fstat(fd).st_size
        if gap and (data or at >= size):
            parts.append(dropped(gap))
            gap = 0
        parts.append(data)
        limit -= len(data)
    return Output(start, b"".join(parts), at)


def dropped(count: int) -> bytes:
    """Return the line that stands for `count` missing bytes."""
    return f"\n[... {amount(count)}".encode() + DROPPED


def _seek(fd: int, at: int, what: int, end: int) -> int:
    """Return where the next data or hole begins; `end` if there is none. See lseek(2)."""
    try:
        return os.lseek(fd, at, what)
    except OSError as e:
        if e.errno != errno.ENXIO:
            raise
        return end
