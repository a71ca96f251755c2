"""Keeps the history: the newest readings in memory, the rest in the archive. Blocking: for a thread of its own (see recorder.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.devices import Reading
from scheduler.protocol.snapshot import Columns
from scheduler.store.archive import Archive, open_archive, put_aside
from scheduler.store.past import past
from scheduler.store.words import Damaged
from scheduler.telemetry.rows import Rows
from scheduler.telemetry.table import Table, join
from scheduler.telemetry.tiers import BLOCK_ROWS, GAP_STEPS, HOUR, TIERS

MERGE_ROWS = 600
"""Rows of a device that wait for a block: five minutes at two readings a second."""
_HASTE = 2.0
"""Blocks are forgotten twice as fast as they come, not at once: a clock that is wrong for an hour must not cost a month."""
_MOMENT = 1e-3
MOST_LISTED = 2000
"""Annotations in one answer."""
_MOST_PENDING = 1000
News = tuple[Reading, float]
"""A reading, and the seconds in which the next one is expected."""
T = TypeVar("T")


class Keeper:
    """Every method raises UserError where the disk is full or the file cannot be used; nothing that was taken in is lost by that, and the
    next call tries again.
    """

    def __init__(self, file: Path, told: Callable[[str], None]) -> None:
        """`told`: is told what became of a history that was damaged."""
        self._file, self._told = file, told
        self._archive: Archive | None = None
        self._rows: dict[str, Rows] = {}
        self._last: dict[str, float] = {}
        self._pending: dict[tuple[float, str, str, str], Annotation] = {}
        self._may_go = [1.0] * len(TIERS)
        """Blocks of each tier that may be forgotten next."""

    def take(self, news: Iterable[News]) -> None:
        """Into memory; nothing can fail."""
        for reading, interval in news:
            rows, last = (
                self._rows.setdefault(reading.device, Rows()),
                self._last.get(reading.device),
            )
            if last is not None and reading.time - last > GAP_STEPS * interval:
                rows.add(last + interval, {}, 0)
            rows.add(reading.time, reading.values)
            self._last[reading.device] = reading.time

    def note(self, annotations: Iterable[Annotation]) -> None:
        """Into memory; nothing can fail."""
        for a in annotations:
            self._pending[(a.time, a.kind, a.device, a.name)] = a
        while len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]

    def journal(self) -> None:
        """Bring to disk what is new."""
        if new := {
            device: rows.table(rows.saved)
            for device, rows in self._rows.items()
            if rows.saved < len(rows)
        }:
            self._do(lambda archive: archive.journal(new))
            for device in new:
                self._rows[device].saved = len(self._rows[device])
        if self._pending:
            found = list(self._pending.values())
            self._do(lambda archive: archive.annotate(found))
            self._pending.clear()

    def due(self) -> list[str]:
        """Devices with as many rows as make a block."""
        return [device for device, rows in self._rows.items() if len(rows) >= MERGE_ROWS]

    def merge(self, device: str) -> None:
        """Take a device's rows from memory into the tiers."""
        rows = self._rows[device]
        table = rows.table()
        self._do(lambda archive: archive.append(device, table))
        rows.drop(len(table))
        seconds = min(float(table.times[-1] - table.times[0]), HOUR)
        for number, tier in enumerate(TIERS):
            blocks = seconds / (tier.step * BLOCK_ROWS) if tier.step else 1.0
            self._may_go[number] = min(
                self._may_go[number] + _HASTE * blocks, max(len(self._rows), 2)
            )

    def prune(self, now: float) -> None:
        """Forget what is too old."""
        limits = [int(blocks) for blocks in self._may_go]
        gone = self._do(lambda archive: archive.prune(now, limits))
        self._may_go = [may - went for may, went in zip(self._may_go, gone, strict=True)]

    def past(
        self, device: str, fields: Sequence[str], since: float, until: float, points: int | None
    ) -> Columns:
        """See `Client.history`."""
        rows = self._rows.get(device)
        newest = join((rows.table(),) if rows else (), fields)
        return self._do(lambda archive: past(archive, newest, device, fields, since, until, points))

    def fields(self, device: str, since: float, until: float) -> list[str]:
        """All that was read of the device in that time."""
        rows = self._rows.get(device)
        found = self._do(lambda archive: archive.fields(device, since, until))
        return sorted({*found, *(rows.fields if rows else ())})

    def annotations(self, since: float, until: float) -> list[Annotation]:
        """Oldest first; the newest of too many."""
        self.journal()
        return self._do(lambda archive: archive.annotations(since, until, MOST_LISTED))

    def close(self) -> None:
        """The rows that are still in memory stay in the journal: the next one puts them into a block."""
        try:
            self.journal()
        finally:
            if self._archive is not None:
                self._archive.close()

    def _do(self, verb: Callable[[Archive], T]) -> T:
        """With the archive, opened when it is first needed; where it is found damaged, with a new one."""
        try:
            return verb(self._opened())
        except Damaged:
            if self._archive is not None:
                self._archive.close()
                self._archive = None
            self._archive = put_aside(self._file, self._told)
            return verb(self._archive)

    def _opened(self) -> Archive:
        if self._archive is None:
            archive = open_archive(self._file, self._told)
            try:
                self._take_over(archive)
            except BaseException:
                archive.close()
                raise
            self._archive = archive
        return self._archive

    def _take_over(self, archive: Archive) -> None:
        """What the last daemon left."""
        found: dict[str, list[Table]] = {}
        for device, table in archive.journalled():
            found.setdefault(device, []).append(table)
        for device, tables in found.items():
            archive.append(device, join(tables))
        known = archive.newest()
        archive.end_annotations(max(known.values(), default=0.0))
        for device, last in known.items():
            if (rows := self._rows.get(device)) is not None:
                rows.add(last + _MOMENT, {}, 0)
            self._last.setdefault(device, last)
