"""Keep what one judgement leaves for the next: processes that have a GPU's context, and the memory
that they share.

Starting such a process takes about a second, and loading torch's compiler in it a few more. Only
trusted processes, which run functions of ours, are used again: a candidate always has a new one.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch

from gpudeck.accel.search.arena import Arena
from gpudeck.accel.search.contender import Contender, Desk
from gpudeck.accel.search.nursery import Nursery
from gpudeck.accel.search.verdict import Source


class Crew:
    """Own the memory that processes share, and the trusted processes that wait to be used again."""

    def __init__(self, nursery: Nursery, device: torch.device) -> None:
        self.nursery, self.device = nursery, device
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
            found = self._idle.pop() if trusted else None
        except IndexError:
            found = None
        threads = torch.get_num_threads()
        if found is None:
            return Contender.start(
                self.nursery, source, desk, self.device, trusted=trusted, threads=threads
            )
        found.child.go_on()
        found.load(source, desk, self.device, trusted=True, threads=threads)
        return found

    def release(self, contender: Contender) -> None:
        """Keep a process for later if it is trusted and nothing failed in it, and else end it."""
        if contender.trusted and not contender.flags:
            self._idle.append(contender)
        else:
            contender.end()

    def close(self) -> None:
        """End the processes that wait, and give the memory back."""
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
