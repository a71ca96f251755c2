"""The door of the daemon's loop to the history: a thread keeps it, and owns the only connection to its file.

Nothing here waits for a disk. With one connection in one thread the bug of SQLite's WAL that `store.py` tells of cannot be met.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Reading
from scheduler.protocol.errors import UserError
from scheduler.protocol.snapshot import Columns
from scheduler.telemetry.incidents import Incidents

if TYPE_CHECKING:
    from scheduler.store.keeper import Keeper

T = TypeVar("T")


class Recorder:
    """Takes in at once; answers, and brings to disk, when the thread gets to it. What is awaited raises UserError."""

    def __init__(self, file: Path, told: Callable[[str], None]) -> None:
        """`told`: is told, in the loop, what became of a history that was damaged."""
        self._file, self._told = file, told
        self._thread = ThreadPoolExecutor(1, "history")
        self._keeper: Keeper | None = None
        self._incidents = Incidents()
        self._news: list[tuple[Reading, float]] = []
        self._notes: list[Annotation] = []
        self._closed = False

    def add(self, readings: Sequence[Reading], interval: float) -> None:
        """Take in one moment; the next one is expected in `interval` seconds."""
        for reading in readings:
            self._news.append((reading, interval))
            self._notes += self._incidents.heard(reading)

    def annotate(self, annotation: Annotation) -> None:
        """Keep it; one that is there by its time, kind, device and name is replaced."""
        self._notes.append(annotation)

    async def flush(self) -> None:
        """Bring to disk what is new. Device by device, so that a question need not wait for all of it."""
        await self._run(lambda keeper: keeper.journal())
        if due := await self._run(lambda keeper: keeper.due()):
            for device in due:
                await self._run(lambda keeper, d=device: keeper.merge(d))  # type: ignore[misc]
            await self._run(lambda keeper: keeper.prune(time.time()))

    async def past(
        self, device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        """See `Client.history`."""
        return await self._run(lambda keeper: keeper.past(device, fields, since, until, points))

    async def fields(self, device: str, since: float, until: float) -> list[str]:
        """All that was read of the device in that time."""
        return await self._run(lambda keeper: keeper.fields(device, since, until))

    async def annotations(self, since: float, until: float) -> list[Annotation]:
        """Those that touch this time, oldest first; the newest of too many."""
        return await self._run(lambda keeper: keeper.annotations(since, until))

    async def close(self) -> None:
        """Bring to disk what is new, and end the thread."""
        try:
            await self._run(lambda keeper: keeper.close())
        finally:
            self._closed = True
            self._thread.shutdown()

    async def _run(self, verb: Callable[[Keeper], T]) -> T:
        """In the thread, after it has taken in all that was heard before now."""
        if self._closed:
            raise UserError("the daemon is ending")
        loop = asyncio.get_running_loop()
        news, self._news = self._news, []
        notes, self._notes = self._notes, []

        def told(text: str) -> None:
            loop.call_soon_threadsafe(self._told, text)

        def work() -> T:
            if self._keeper is None:
                from scheduler.store.keeper import (
                    Keeper,  # numpy: a fifth of a second in which the daemon answers already
                )

                self._keeper = Keeper(self._file, told)
            self._keeper.take(news)
            self._keeper.note(notes)
            return verb(self._keeper)

        return await loop.run_in_executor(self._thread, work)
