"""When a request is worked on: beside all others, or alone, as a benchmark has to be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Admit requests. Belongs to one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._running = 0
        self._alone = False
        """Someone works alone, or waits for that: nobody else begins."""

    @property
    def closed(self) -> bool:
        """Return whether a request would have to wait."""
        return self._alone

    @asynccontextmanager
    async def admit(self, *, alone: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of a request, which lasts until the end of the block."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone)
            self._alone = alone
            try:
                await self._changed.wait_for(lambda: not (alone and self._running))
            except asyncio.CancelledError:
                self._alone = False
                self._changed.notify_all()
                raise
            self._running += 1
        try:
            yield
        finally:
            async with self._changed:
                self._running -= 1
                self._alone = self._alone and not alone
                self._changed.notify_all()
