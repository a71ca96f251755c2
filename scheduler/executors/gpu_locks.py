"""Lock GPUs against the queues of all other users of the machine.

A lock is a range of bytes, held by an open file description (fcntl(2), F_OFD_SETLK): the kernel
releases it when the last process that inherited the description has ended, however it ended. Each
GPU owns a region of one file, and each byte of the region stands for a MiB of the GPU's memory. A
job with a GPU to itself locks the whole region, and one that shares it locks as many bytes as it
reserves MiB. So the kernel itself keeps the sum of all reservations within the memory, without a
second lock, contents that anybody must read, or a name of anybody.

The file is /dev/full, which exists on every Linux, which every user may open for writing and nobody
but root may delete. A lock file in a sticky folder would belong to whoever made it first: that user
could replace it while others hold it, as could a clean-up of old files, or of a user's files at
logout. What a hostile user can do is to hold a GPU. Containers have a /dev/full of their own:
GPUDECK_GPU_LOCKS names a file that they share instead.

Behind the regions, two bytes of each GPU are marks, by which queues ask for GPUs that assistants
have.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Self

from gpudeck.scheduler.attempts import GpuTaken
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, held_devices

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


class GpuLocks:
    """Hold locks on GPUs, or read those of others, through one open file description."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def open(cls) -> Self:
        """Open the file of the locks. Raises UserError where that cannot be used."""
        file = paths.gpu_locks()
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        try:
            fd = os.open(file, flags)
        except OSError as e:
            raise _unusable(e) from e
        try:
            found = os.fstat(fd)
            device = (os.major(found.st_rdev), os.minor(found.st_rdev))
            if not stat.S_ISREG(found.st_mode) and device != _FULL_DEVICE:
                raise OSError(errno.EINVAL, "it is not a plain file")
            _test(fd, 0, 1)  # an old kernel, or a file system without locks
        except OSError as e:
            os.close(fd)
            raise _unusable(e) from e
        return cls(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close our copy of the description: another process that has one keeps the locks."""
        os.close(self.fd)

    def claim(self, memory: int, totals: Mapping[str, float]) -> None:
        """Lock GPUs for one job, all of them or none.

        Args:
            memory: bytes that the job reserves on each GPU; 0 for GPUs that it does not share.
            totals: the memory of each GPU in bytes, by UUID.

        Raises:
            GpuTaken: another queue holds one of them.
            UserError: the locks do not work.
        """
        try:
            for device in sorted(totals, key=region):  # all queues in the same order
                if not self._claim_one(device, memory, totals[device]):
                    self.release()
                    raise GpuTaken(device)
        except OSError as e:
            self.release()
            raise _unusable(e) from e

    def release(self) -> None:
        """Release all that was locked."""
        fcntl.fcntl(self.fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_UNLCK, 0, 0, 0, 0))

    def mark(self, device: str, flag: Flag, on: bool) -> None:
        """Set a mark of a GPU, or take ours back. Raises UserError where the locks do not work."""
        try:
            self._set(fcntl.F_RDLCK if on else fcntl.F_UNLCK, _mark(device, flag), 1)
        except OSError as e:
            raise _unusable(e) from e

    def is_marked(self, device: str, flag: Flag) -> bool:
        """Return whether another queue has set this mark. Raises UserError."""
        try:
            return _test(self.fd, _mark(device, flag), 1) is not None
        except OSError as e:
            raise _unusable(e) from e

    def reserved(self, device: str) -> float:
        """Return the bytes that others have locked of a GPU; infinity for the whole of it.

        Raises UserError where the locks do not work.
        """
        start = region(device)
        try:
            taken = self._taken(start, start + REGION)
        except OSError as e:
            raise _unusable(e) from e
        size = sum(end - begin for begin, end in taken)
        return math.inf if size == REGION else float(size * MIB)

    def _claim_one(self, device: str, memory: int, total: float) -> bool:
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


def to_mib(memory: int) -> int:
    """Return a reservation in MiB, rounded down, so that what fits by bytes fits by MiB, too."""
    return max(memory // MIB, 1)


def held_by_others(
    locks: GpuLocks, devices: Iterable[str], running: Sequence[Job]
) -> dict[str, float]:
    """Return the bytes of each GPU that other queues hold; infinity for the whole of it.

    GPUs of which they hold nothing are left out. Raises UserError where the locks do not work.

    Args:
        running: the jobs of our own queue, whose locks are not counted.
    """
    own: dict[str, float] = {}
    for job in running:
        size = float(to_mib(job.spec.memory) * MIB) if job.spec.memory else math.inf
        for device in held_devices(job):
            own[device] = own.get(device, 0.0) + size
    found = {}
    for device in devices:
        ours = own.get(device, 0.0)
        if ours < math.inf and (theirs := locks.reserved(device) - ours) > 0:
            found[device] = theirs
    return found


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


def _unusable(error: OSError) -> UserError:
    return UserError(
        f"GPUs cannot be locked against other users' queues by {paths.gpu_locks()}: "
        f"{error.strerror}. Name a file that all of them may write in GPUDECK_GPU_LOCKS"
    )
