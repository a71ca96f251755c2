"""Keep the history: the newest readings in memory, the rest in the archive.

It blocks, so the recorder runs it in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.past_processes import (
    LOAD,
    MEMORY,
    PROCESS_FIELDS,
    USES,
    PastProcess,
    Use,
)
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.store.archive import Archive, replace_damaged
from gpudeck.scheduler.store.database import Damaged
from gpudeck.scheduler.store.past import past
from gpudeck.scheduler.telemetry.history_table import (
    BLOCK_ROWS,
    GAP_STEPS,
    HOUR,
    TIERS,
    HistoryBuffer,
    HistoryTable,
    join,
)

MERGE_ROWS = 600
"""Rows that make a block: five minutes at two readings a second."""
_PRUNE_RATIO = 2.0
"""Blocks are deleted twice as fast as they are added, not at once: a clock that is wrong for an
hour must not cost a month."""
_MOMENT = 1e-3
MAX_LISTED = 2000
"""Annotations in one answer."""
_MAX_PENDING = 1000
MOST_PROCESSES = 500
"""Processes in one answer."""
TimedReading = tuple[Reading, float]
"""A reading, and the seconds within which the next one is expected."""
T = TypeVar("T")


class HistoryKeeper:
    """Keep the history of all devices.

    Every method raises UserError where the disk is full or the file cannot be used. Nothing that
    was taken in is lost then, and the next call tries again.
    """

    def __init__(self, file: Path, report: Callable[[str], None]) -> None:
        """Start with no archive open.

        Args:
            file: The file of the archive.
            report: Called with a message where the history was damaged.
        """
        self._file, self._report = file, report
        self.archive: Archive | None = None
        """The archive, once it is open."""
        self._buffers: dict[str, HistoryBuffer] = {}
        self._last: dict[str, float] = {}
        self._pending: dict[tuple[float, str, str, str], Annotation] = {}
        self._deletable = [1.0] * len(TIERS)
        """Blocks of each tier that may be deleted next."""
        self._finished = 0
        """The processes that ended since blocks were deleted; each left a block in every tier."""

    def add(self, readings: Iterable[TimedReading]) -> None:
        """Take readings into memory; nothing can fail."""
        for reading, interval in readings:
            buffer = self._buffers.setdefault(reading.device, HistoryBuffer())
            last = self._last.get(reading.device)
            if last is not None and reading.time - last > GAP_STEPS * interval:
                buffer.add(last + interval, {}, 0)
            buffer.add(reading.time, reading.values)
            self._last[reading.device] = reading.time

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Take annotations into memory; nothing can fail."""
        for a in annotations:
            self._pending[(a.time, a.kind, a.device, a.name)] = a
        while len(self._pending) > _MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def journal(self) -> None:
        """Write what is new to disk."""
        if new := {
            device: buffer.table(buffer.saved)
            for device, buffer in self._buffers.items()
            if buffer.saved < len(buffer)
        }:
            self._run(lambda archive: archive.journal(new))
            for device in new:
                self._buffers[device].saved = len(self._buffers[device])
        if self._pending:
            found = list(self._pending.values())
            self._run(lambda archive: archive.annotate(found))
            self._pending.clear()

    def mergeable(self) -> list[str]:
        """Return the devices with enough rows for a block."""
        return [device for device, buffer in self._buffers.items() if len(buffer) >= MERGE_ROWS]

    def merge(self, device: str) -> None:
        """Move a device's rows from memory into the tiers."""
        buffer = self._buffers[device]
        table = buffer.table()
        self._run(lambda archive: archive.append(device, table))
        buffer.drop(len(table))
        seconds = min(float(table.times[-1] - table.times[0]), HOUR)
        for number, tier in enumerate(TIERS):
            blocks = seconds / (tier.step * BLOCK_ROWS) if tier.step else 1.0
            self._deletable[number] = min(
                self._deletable[number] + _PRUNE_RATIO * blocks, max(len(self._buffers), 2)
            )

    def forget(self, device: str) -> None:
        """Move a device's rows from memory into the tiers, and keep nothing else of it."""
        if self._buffers.get(device):
            self.merge(device)
        self._buffers.pop(device, None)
        self._last.pop(device, None)

    def finish(self, process: str) -> None:
        """Move the rows of a process that has ended into closed blocks."""
        self.forget(process)
        self._run(lambda archive: archive.finish(process))
        self._finished += 1

    def prune(self, now: float) -> None:
        """Delete what is too old."""
        more = int(_PRUNE_RATIO * self._finished)
        limits = [int(blocks) + more for blocks in self._deletable]
        gone = self._run(lambda archive: archive.prune(now, limits))
        self._deletable = [
            blocks - max(deleted - more, 0)
            for blocks, deleted in zip(self._deletable, gone, strict=True)
        ]
        self._finished = 0

    def past(
        self, device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        """Return the history of a device; see `Client.history`."""
        buffer = self._buffers.get(device)
        newest = join((buffer.table(),) if buffer else (), fields)
        return self._run(
            lambda archive: past(archive, newest, device, fields, since, until, points)
        )

    def fields(self, device: str, since: float, until: float) -> list[str]:
        """Return the fields that were read of the device in that time."""
        buffer = self._buffers.get(device)
        found = self._run(lambda archive: archive.fields(device, since, until))
        return sorted({*found, *(buffer.fields if buffer else ())})

    def processes(self, since: float, until: float) -> list[PastProcess]:
        """Return the processes that used a device in that time, the newest of too many."""
        spans = self._run(lambda archive: archive.between(*USES, since, until))
        for key, buffer in self._buffers.items():
            if USES[0] <= key < USES[1] and len(buffer):
                times = buffer.table().times
                first, last = spans.get(key, (float(times[0]), float(times[-1])))
                if first <= until and float(times[-1]) >= since:
                    spans[key] = min(first, float(times[0])), max(last, float(times[-1]))
        newest = sorted(spans, key=lambda key: spans[key][1], reverse=True)[:MOST_PROCESSES]
        return [self._process(key, *spans[key], since, until) for key in newest]

    def _process(
        self, key: str, first: float, last: float, since: float, until: float
    ) -> PastProcess:
        found = self.past(key, PROCESS_FIELDS, since, until, 1)
        memory = [value for value in found.high.get(MEMORY, ()) if value is not None]
        load = [value for value in found.columns.get(LOAD, ()) if value is not None]
        return PastProcess(
            msgspec.json.decode(key, type=Use),
            max(first, since),
            min(last, until),
            max(memory, default=None),
            load[0] if load else None,
        )

    def annotations(self, since: float, until: float) -> list[Annotation]:
        """Return the annotations of that time, oldest first; the newest of too many."""
        self.journal()
        return self._run(lambda archive: archive.annotations(since, until, MAX_LISTED))

    def close(self) -> None:
        """Write what is new to the journal, from which the next keeper makes blocks."""
        try:
            self.journal()
        finally:
            if self.archive is not None:
                self.archive.close()

    def _run(self, action: Callable[[Archive], T]) -> T:
        """Run a function on the archive; where that is damaged, on a new one."""
        try:
            return action(self._opened())
        except Damaged:
            if self.archive is not None:
                self.archive.close()
                self.archive = None
            self.archive = replace_damaged(self._file, self._report)
            return action(self.archive)

    def _opened(self) -> Archive:
        if self.archive is None:
            try:
                archive = Archive(self._file)
            except Damaged:
                archive = replace_damaged(self._file, self._report)
            try:
                self._take_over(archive)
            except BaseException:
                archive.close()
                raise
            self.archive = archive
        return self.archive

    def _take_over(self, archive: Archive) -> None:
        """Take over what the last daemon left: its journal, and open annotations."""
        found: dict[str, list[HistoryTable]] = {}
        for device, table in archive.journalled():
            found.setdefault(device, []).append(table)
        for device, tables in found.items():
            archive.append(device, join(tables))
        for key in archive.unfinished():
            if USES[0] <= key < USES[1]:  # it may have ended while nothing was read
                archive.finish(key)
        known = archive.newest()
        archive.end_annotations(max(known.values(), default=0.0))
        for device, last in known.items():
            if (buffer := self._buffers.get(device)) is not None:
                buffer.add(last + _MOMENT, {}, 0)
            self._last.setdefault(device, last)
