"""Connect the daemon's loop to the history, which a thread keeps with the only connection to its
file.

Nothing here waits for a disk. With one connection in one thread, the bug of SQLite's WAL that
`store.py` describes cannot occur.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.past_processes import PastProcess
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.telemetry.incidents import IncidentDetector
from gpudeck.scheduler.telemetry.process_uses import STEP_S, ProcessUses

if TYPE_CHECKING:
    from gpudeck.scheduler.store.keeper import HistoryKeeper

T = TypeVar("T")


class Recorder:
    """Take readings in at once; write and answer in the thread. Coroutines raise UserError."""

    def __init__(self, file: Path, report: Callable[[str], None]) -> None:
        """Start the thread.

        Args:
            file: The file of the history.
            report: Called in the loop with a message where the history was damaged.
        """
        self._file, self._report = file, report
        self._thread = ThreadPoolExecutor(1, "history")
        self._keeper: HistoryKeeper | None = None
        self._incidents = IncidentDetector()
        self._readings: list[tuple[Reading, float]] = []
        self._processes = ProcessUses()
        self._annotations: list[Annotation] = []
        self._gone = set[str]()
        """The devices of which memory holds no rows after the next flush."""
        self._closed = False

    def add(self, readings: Sequence[Reading], interval: float) -> None:
        """Take in one moment; the next one is expected within `interval` seconds."""
        for reading in readings:
            self._readings.append((reading, interval))
            own = max(interval, STEP_S)
            self._readings += ((one, own) for one in self._processes.add(reading))
            self._annotations += self._incidents.add(reading)

    def annotate(self, annotation: Annotation) -> None:
        """Keep an annotation; one with the same time, kind, device and name is replaced."""
        self._annotations.append(annotation)

    def forget(self, devices: Collection[str]) -> None:
        """Keep nothing of these devices in memory; what is on disk stays."""
        self._gone.update(devices)
        self._incidents.forget(devices)
        for device in devices:
            self._processes.forget(device)

    async def flush(self) -> None:
        """Write what is new to disk, device by device, so that no question waits for all of it."""
        for device in tuple(self._gone):
            await self._run(lambda keeper, d=device: keeper.forget(d))  # type: ignore[misc]
            self._gone.discard(device)
        for process in tuple(self._processes.ended):
            await self._run(lambda keeper, p=process: keeper.finish(p))  # type: ignore[misc]
            self._processes.ended.discard(process)
        await self._run(lambda keeper: keeper.journal())
        if mergeable := await self._run(lambda keeper: keeper.mergeable()):
            for device in mergeable:
                await self._run(lambda keeper, d=device: keeper.merge(d))  # type: ignore[misc]
            await self._run(lambda keeper: keeper.prune(time.time()))

    async def past(
        self, device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        """Return the history of a device; see `Client.history`."""
        return await self._run(lambda keeper: keeper.past(device, fields, since, until, points))

    async def fields(self, device: str, since: float, until: float) -> list[str]:
        """Return the fields that were read of the device in that time."""
        return await self._run(lambda keeper: keeper.fields(device, since, until))

    async def processes(self, since: float, until: float) -> list[PastProcess]:
        """Return the processes that used a device in that time, the newest first."""
        return await self._run(lambda keeper: keeper.processes(since, until))

    async def annotations(self, since: float, until: float) -> list[Annotation]:
        """Return the annotations of that time, oldest first; the newest of too many."""
        return await self._run(lambda keeper: keeper.annotations(since, until))

    async def close(self) -> None:
        """Write what is new to disk, and end the thread."""
        try:
            await self._run(lambda keeper: keeper.close())
        finally:
            self._closed = True
            self._thread.shutdown()

    async def _run(self, action: Callable[[HistoryKeeper], T]) -> T:
        """Run a function in the thread, after all that was added before now."""
        if self._closed:
            raise UserError(phrase("the daemon is shutting down"))
        loop = asyncio.get_running_loop()
        readings, self._readings = self._readings, []
        annotations, self._annotations = self._annotations, []

        def report(text: str) -> None:
            loop.call_soon_threadsafe(self._report, text)

        def work() -> T:
            if self._keeper is None:
                # numpy takes a fifth of a second, in which the daemon answers already
                from gpudeck.scheduler.store.keeper import HistoryKeeper

                self._keeper = HistoryKeeper(self._file, report)
            self._keeper.add(readings)
            self._keeper.annotate(annotations)
            return action(self._keeper)

        return await loop.run_in_executor(self._thread, work)
