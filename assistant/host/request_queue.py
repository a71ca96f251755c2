"""The queue of requests: one at a time, those of people before those of programs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestQueue:
    """Admit requests one at a time. Belongs to one event loop."""

    def __init__(self) -> None:
        self.busy = False
        """A request is being worked on."""
        self._people: deque[asyncio.Future[None]] = deque()
        self._programs: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def admit(self, *, program: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of a request, which lasts until the end of the block.

        Requests of people are admitted in the order in which they came, then those of programs.
        """
        if self.busy:
            await self._wait(self._programs if program else self._people)
        self.busy = True
        try:
            yield
        finally:
            self._admit_next()

    async def _wait(self, queue: deque[asyncio.Future[None]]) -> None:
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():
                self._admit_next()  # it was admitted and cancelled at the same moment
            raise
        finally:
            queue.remove(admitted)

    def _admit_next(self) -> None:
        """Admit the next request; the queue stays busy, so that no new one gets ahead of it."""
        waiting = [one for one in (*self._people, *self._programs) if not one.done()]
        self.busy = bool(waiting)
        if waiting:
            waiting[0].set_result(None)
