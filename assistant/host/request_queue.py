"""Whose turn it is: one at a time, and people before programs. Free of torch and Qt."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class RequestQueue:
    """Of one event loop."""

    def __init__(self) -> None:
        self.busy = False
        """Whether somebody's turn it is."""
        self._people: deque[asyncio.Future[None]] = deque()
        self._programs: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def turn(self, *, program: bool = False) -> AsyncIterator[None]:
        """Wait for it, and have it until the end of the block. People have theirs in the order in which they came; so have programs."""
        if self.busy:
            await self._called(self._programs if program else self._people)
        self.busy = True
        try:
            yield
        finally:
            self._call_next()

    async def _called(self, line: deque[asyncio.Future[None]]) -> None:
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(call)
        try:
            await call
        except asyncio.CancelledError:
            if not call.cancelled():
                self._call_next()  # it was called, and leaves all the same
            raise
        finally:
            line.remove(call)

    def _call_next(self) -> None:
        """It stays busy from one to the next, so that whoever comes meanwhile is not before those who wait."""
        waiting = next(
            (call for line in (self._people, self._programs) for call in line if not call.done()),
            None,
        )
        self.busy = waiting is not None
        if waiting is not None:
            waiting.set_result(None)
