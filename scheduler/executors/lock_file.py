"""Lock ranges of one file for GPUs, as `gpu_locks` says."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import stat
import struct
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path
from typing import Self

MIB = 2**20
REGION = 2**22
"""Bytes of the file that belong to one GPU: MiB of memory, more than any GPU has."""
_REGION_DIGEST = 5
"""Bytes of the UUID's SHA-256 that choose the region: all offsets stay below 2**62."""
_MARKS = 2**62
"""The first byte behind all regions."""
_MAX_PARTS = 64
"""Ranges of one GPU that are told apart. A GPU with more is taken to be held as a whole, so that
nobody can make the queue spend its time on counting locks."""
_TRIES = 4
"""How often memory is searched again that another queue locked between search and lock."""
_FLOCK = struct.Struct("hhqqi4x")
"""The struct flock of fcntl(2) on 64-bit Linux: type, whence, start, length and pid."""
_FULL_DEVICE = (1, 7)


class Flag(IntEnum):
    """Name the marks of a GPU."""

    LENT = 0
    """The assistant of the queue that set it has the GPU."""
    WANTED = 1
    """A queue wants the GPU from the assistant that has it. Several queues may."""


class LockFile:
    """Hold locks on GPUs, or read those of others, through one open file description.

    Every method raises OSError where the locks do not work.
    """

    def __init__(self, file: Path, fd: int) -> None:
        self.file, self.fd = file, fd

    @classmethod
    def open(cls, file: Path) -> Self:
        """Open the file. Raises OSError where its ranges cannot be locked."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        fd = os.open(file, flags)
        try:
            found = os.fstat(fd)
            device = (os.major(found.st_rdev), os.minor(found.st_rdev))
            if not stat.S_ISREG(found.st_mode) and device != _FULL_DEVICE:
                raise OSError(errno.EINVAL, "it is not a plain file")
            _test(fd, 0, 1)  # an old kernel, or a file system without locks
        except OSError:
            os.close(fd)
            raise
        return cls(file, fd)

    def close(self) -> None:
        """Close our copy of the description: another process that has one keeps the locks."""
        os.close(self.fd)

    def release(self) -> None:
        """Release all that was locked."""
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, 0, 0, 0, 0))

    def mark(self, device: str, flag: Flag, on: bool) -> None:
        """Set a mark of a GPU, or take ours back."""
        self._set(fcntl.F_RDLCK if on else fcntl.F_UNLCK, _mark(device, flag), 1)

    def is_marked(self, device: str, flag: Flag) -> bool:
        """Return whether another queue has set this mark."""
        return _test(self.fd, _mark(device, flag), 1) is not None

    def reserved(self, device: str) -> float:
        """Return the bytes that others have locked of a GPU; infinity for the whole of it."""
        start = region(device)
        taken = self._taken(start, start + REGION)
        size = sum(end - begin for begin, end in taken)
        return math.inf if size == REGION else float(size * MIB)

    def claim(self, device: str, memory: int, total: float) -> bool:
        """Lock a GPU, or so many bytes of it (0: all). Return False where others hold too much.

        Args:
            device: its UUID.
            memory: the bytes.
            total: the memory of the GPU in bytes.
        """
        start = region(device)
        if not memory:
            return self._lock(start, REGION)
        end = start + math.ceil(min(total / MIB, REGION))
        for _ in range(_TRIES):
            locked: list[tuple[int, int]] = []
            missing = to_mib(memory)
            for begin, free in _gaps(self._taken(start, end), start, end):
                length = min(free, missing)
                if length and self._lock(begin, length):
                    locked.append((begin, length))
                    missing -= length
            if not missing:
                return True
            for begin, length in locked:
                self._set(fcntl.F_UNLCK, begin, length)
            if not locked:
                return False
        return False

    def _taken(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges that others have locked, in order."""
        found: list[tuple[int, int]] = []
        left = [(start, end)]
        while left:
            if len(found) == _MAX_PARTS:
                return [(start, end)]
            first, last = left.pop()
            if (lock := _test(self.fd, first, last - first)) is None:
                continue
            begin, over = max(lock[0], first), min(lock[1], last)
            found.append((begin, over))
            left += [part for part in ((first, begin), (over, last)) if part[0] < part[1]]
        return sorted(found)

    def _lock(self, start: int, length: int) -> bool:
        try:
            self._set(fcntl.F_WRLCK, start, length)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES
            return False
        return True

    def _set(self, kind: int, start: int, length: int) -> None:
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, start, length, 0))


def region(device: str) -> int:
    """Return the first byte of a GPU's region. Every version must return the same."""
    digest = hashlib.sha256(device.encode()).digest()
    return int.from_bytes(digest[:_REGION_DIGEST], "big") * REGION


def _mark(device: str, flag: Flag) -> int:
    """Return the byte of a mark. Every version must return the same."""
    return _MARKS + region(device) // REGION * len(Flag) + flag


def ranges_of(device: str) -> tuple[tuple[int, int], ...]:
    """Return the bytes by which queues and their assistants hold a GPU: first ones, and ends."""
    start, lent = region(device), _mark(device, Flag.LENT)
    return (start, start + REGION), (lent, lent + 1)


def to_mib(memory: int) -> int:
    """Return a reservation in MiB, rounded down, so that what fits by bytes fits by MiB, too."""
    return max(memory // MIB, 1)


def _gaps(taken: Sequence[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return where nothing is taken between two bytes, as pairs of start and length."""
    begins = [start, *(over for _, over in taken)]
    ends = [*(begin for begin, _ in taken), end]
    return [(begin, over - begin) for begin, over in zip(begins, ends, strict=True) if begin < over]


def _test(fd: int, start: int, length: int) -> tuple[int, int] | None:
    """Return the start and end of a range that others have locked; None where there is none."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, 0, start, length, 0)
    kind, _, begin, size, _ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    return begin, begin + size if size else start + length
