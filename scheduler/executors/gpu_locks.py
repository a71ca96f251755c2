"""Lock GPUs against the queues of all other users of the machine.

A lock is a range of bytes, held by an open file description (fcntl(2), F_OFD_SETLK): the kernel
releases it when the last process that inherited the description has ended, however it ended. Each
GPU owns a region of a file, and each byte of the region stands for a MiB of the GPU's memory. A
job with a GPU to itself locks the whole region, and one that shares it locks as many bytes as it
reserves MiB. So the kernel itself keeps the sum of all reservations within the memory, without a
second lock, contents that anybody must read, or a name of anybody.

Which files these are, `lock_places` says. Where there are two, a GPU is locked in both.

Behind the regions, two bytes of each GPU are marks, by which queues ask for GPUs that assistants
have.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import GpuTaken
from gpudeck.scheduler.background.descriptors import copy_descriptor, open_pidfd
from gpudeck.scheduler.executors.lock_file import MIB, Flag, LockFile, region, to_mib
from gpudeck.scheduler.executors.lock_places import lock_files, unusable
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, held_devices

T = TypeVar("T")


class GpuLocks:
    """Hold locks on GPUs, or read those of others, in each file in which queues lock them."""

    def __init__(self, files: Sequence[LockFile]) -> None:
        self._files = files

    @classmethod
    def open(cls) -> Self:
        """Open the files of the locks. Raises UserError where one of them cannot be used."""
        opened: list[LockFile] = []
        for file in lock_files():
            try:
                opened.append(LockFile.open(file))
            except OSError as e:
                cls(opened).close()
                raise unusable(file, e) from e
        return cls(opened)

    @classmethod
    def of(cls, runner: int) -> Self:
        """Return the locks that a runner holds: we change them through its own descriptions.

        Raises UserError where the kernel forbids that.
        """
        opened: list[LockFile] = []
        names = {os.path.realpath(file): file for file in lock_files()}
        try:
            with open_pidfd(runner) as process:
                for number in os.listdir(f"/proc/{runner}/fd"):  # noqa: PTH208 - names of numbers
                    try:
                        name = os.readlink(f"/proc/{runner}/fd/{number}")  # noqa: PTH115
                    except FileNotFoundError:
                        continue  # it was closed in this moment
                    if (file := names.get(name)) is not None:
                        opened.append(LockFile(file, copy_descriptor(process, int(number))))
        except OSError as e:
            cls(opened).close()
            raise UserError(
                phrase(
                    "the lock that process {pid} holds on its GPU cannot be released: {error}",
                    pid=runner,
                    error=e.strerror or str(e),
                )
            ) from e
        return cls(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def fds(self) -> tuple[int, ...]:
        """Return the descriptors: whoever inherits them keeps the locks."""
        return tuple(file.fd for file in self._files)

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files that are open."""
        return tuple(file.file for file in self._files)

    def close(self) -> None:
        """Close our copies of the descriptions: another process that has them keeps the locks."""
        for file in self._files:
            file.close()

    def claim(self, memory: int, totals: Mapping[str, float]) -> None:
        """Lock GPUs for one job, all of them in all files, or none.

        Args:
            memory: bytes that the job reserves on each GPU; 0 for GPUs that it does not share.
            totals: the memory of each GPU in bytes, by UUID.

        Raises:
            GpuTaken: another queue holds one of them.
            UserError: the locks do not work.
        """
        for file in self._files:  # all queues in the same order
            for device in sorted(totals, key=region):
                try:
                    claimed = file.claim(device, memory, totals[device])
                except OSError as e:
                    self.release()
                    raise unusable(file.file, e) from e
                if not claimed:
                    self.release()
                    raise GpuTaken(device)

    def release(self) -> None:
        """Release all that was locked."""
        for file in self._files:
            file.release()

    def mark(self, device: str, flag: Flag, on: bool) -> None:
        """Set a mark of a GPU, or take ours back. Raises UserError where the locks do not work."""
        self._each(lambda file: file.mark(device, flag, on))

    def is_marked(self, device: str, flag: Flag) -> bool:
        """Return whether another queue has set this mark. Raises UserError."""
        return any(self._each(lambda file: file.is_marked(device, flag)))

    def reserved(self, device: str) -> float:
        """Return the bytes that others have locked of a GPU; infinity for the whole of it.

        That is the most in any file, as a queue locks the same in all that it may open. Raises
        UserError where the locks do not work.
        """
        return max(self._each(lambda file: file.reserved(device)))

    def _each(self, ask: Callable[[LockFile], T]) -> list[T]:
        found = []
        for file in self._files:
            try:
                found.append(ask(file))
            except OSError as e:
                raise unusable(file.file, e) from e
        return found


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
