"""Keep what one judgement leaves for the next: processes that have a GPU's context, and the memory
that they share.

Starting such a process takes about a second, and loading torch's compiler in it a few more. Only
trusted processes, which run functions of ours, are used again: a candidate always has a new one,
which may have been started before the candidate was known.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

import torch

from gpudeck.accel.search.arena import Arena
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.nursery import Nursery
from gpudeck.accel.search.verdict import Source

_NOTHING = Source(__name__, "Source")
"""What a process loads that waits for its candidate."""


class Crew:
    """Own the memory that processes share, and the trusted processes that wait to be used again."""

    def __init__(self, nursery: Nursery, device: torch.device, ahead: int = 0) -> None:
        """Begin with none.

        Args:
            nursery: starts processes.
            device: where they compute.
            ahead: how many processes are started before there are candidates for them.
        """
        self.nursery, self.device = nursery, device
        self._ahead, self._pool = ahead, ThreadPoolExecutor(max(1, ahead))
        self._new: list[Future[Contender]] = []
        self._idle: list[Contender] = []
        self._arena: Arena | None = None

    @property
    def held(self) -> int:
        """Return the bytes of the shared memory."""
        return 0 if self._arena is None else self._arena.size

    def arena(self, size: int) -> Arena:
        """Return shared memory of at least so many bytes; what it held before counts no more."""
        if self._arena is None or self._arena.size < size:
            self.close()  # who has the old memory cannot be given another
            self._arena = Arena.create(size, self.device)
        return self._arena

    def start(self, source: Source, desk: Desk, *, trusted: bool) -> Contender:
        """Return a process that has loaded a function; failures are in its `flags`."""
        try:
            found = self._idle.pop() if trusted else self._new.pop(0).result()
        except IndexError:
            return self._started(source, desk, trusted)
        found.trusted = trusted
        found.child.go_on()
        found.load(source, desk, self.device, trusted=trusted, threads=torch.get_num_threads())
        return found

    def _started(self, source: Source, desk: Desk, trusted: bool) -> Contender:
        return Contender.start(
            self.nursery, source, desk, self.device, trusted=trusted,
            threads=torch.get_num_threads(),
        )  # fmt: skip

    def look_ahead(self, desk: Desk) -> None:
        """Begin to start processes for the next candidates."""
        while len(self._new) < self._ahead:
            self._new.append(self._pool.submit(self._started, _NOTHING, desk, True))

    def settle(self) -> None:
        """Wait until no process is being started."""
        wait(self._new)

    def release(self, contender: Contender) -> None:
        """Keep a process for later if it is trusted and nothing failed in it, and else end it."""
        if contender.trusted and not contender.flags:
            self._idle.append(contender)
        else:
            contender.end()

    def close(self) -> None:
        """End the processes that wait, and give the memory back."""
        self._idle += (job.result() for job in self._new)
        self._new.clear()
        while self._idle:
            self._idle.pop().end()
        if self._arena is not None:
            self._arena.close()
            self._arena = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
