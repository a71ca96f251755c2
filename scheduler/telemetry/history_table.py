"""Hold one device's history as columns of numbers: tables, the buffer of new readings, the tiers.

A chart is a thousand pixels wide at most, so a tier answers for about a thousand steps of the
longest span it is for: an hour as it was read, a day by 10 s (8640), a week by the minute (10080),
thirty days by ten minutes (4320). Each step is a multiple of the one before, so a tier is made from
the one below it, and means stay exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MAX_ROWS = 6000
"""Rows of a buffer: ten minutes at ten readings a second. While the disk is full, the oldest go."""
_NAN = float("nan")


class Tier(NamedTuple):
    """Describe one level of detail, and how long it is kept."""

    step: float
    """Seconds per row; 0: as it was read."""
    keep: float
    """Seconds."""


HOUR, DAY = 3600.0, 86400.0
TIERS = (Tier(0, HOUR), Tier(10, DAY), Tier(60, 7 * DAY), Tier(600, 30 * DAY))
LAST = len(TIERS) - 1
BLOCK_ROWS = 360
"""Rows of a block of a decimated tier: 1 h, 6 h, 2.5 days. Small enough to be rewritten while it
fills, large enough to compress."""
GAP_STEPS = 2.5
"""Readings further apart than this many steps (or intervals, as they were read) leave a gap."""


def tier_for(width: float) -> int:
    """Return the coarsest tier that still shows steps of `width` seconds."""
    return max(i for i, tier in enumerate(TIERS) if tier.step <= max(width, 0.0))


@dataclass(frozen=True)
class HistoryTable:
    """Hold n rows, ordered by time."""

    times: Floats
    """Seconds since the epoch, [n]: of the reading, or the mean of those in the row."""
    counts: Floats
    """Readings in the row, [n]; 0: a gap begins here."""
    fields: Mapping[str, Floats]
    """[1, n] as it was read, or [3, n]: lowest, mean, highest. NaN where there was no value."""

    def __len__(self) -> int:
        return len(self.times)

    def column(self, field: str, height: int) -> Floats:
        """Return a field as [height, n]; NaN for a field that does not exist."""
        if (found := self.fields.get(field)) is None:
            return np.full((height, len(self)), np.nan)
        return found if len(found) == height else np.broadcast_to(found, (height, len(self)))

    def cut(self, since: float, until: float) -> HistoryTable:
        """Return the rows from `since` up to, not including, `until`."""
        first, last = np.searchsorted(self.times, (since, until))
        return self if last - first == len(self) else self.take(slice(first, last))

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> HistoryTable:
        """Return some of the rows."""
        return HistoryTable(
            self.times[rows], self.counts[rows], {f: v[:, rows] for f, v in self.fields.items()}
        )

    def sorted(self) -> HistoryTable:
        """Return the rows in the order of time: the clock may have been set back."""
        if bool(np.all(self.times[1:] >= self.times[:-1])):
            return self
        return self.take(np.argsort(self.times, kind="stable"))


class HistoryBuffer:
    """Collect the newest readings of a device in memory, in the order of arrival."""

    def __init__(self) -> None:
        self._times = array("d")
        self._counts = array("d")
        self.fields: dict[str, array[float]] = {}
        self.saved = 0
        """The number of rows, from the first, that are on disk, too."""

    def __len__(self) -> int:
        return len(self._times)

    def add(self, time: float, values: Mapping[str, float], count: int = 1) -> None:
        """Append a reading; with `count` 0, the begin of a gap."""
        if len(self) >= MAX_ROWS:
            self.drop(MAX_ROWS // 2)
        for field in values.keys() - self.fields.keys():
            self.fields[field] = array("d", [_NAN]) * len(self)
        self._times.append(time)
        self._counts.append(count)
        for field, column in self.fields.items():
            column.append(values.get(field, _NAN))

    def drop(self, count: int) -> None:
        """Forget the first `count` rows."""
        for column in (self._times, self._counts, *self.fields.values()):
            del column[:count]
        self.saved = max(self.saved - count, 0)

    def table(self, start: int = 0) -> HistoryTable:
        """Return a copy of the rows from `start` on, in the order of time."""
        fields = {field: np.array(column[start:])[None] for field, column in self.fields.items()}
        times, counts = np.array(self._times[start:]), np.array(self._counts[start:])
        return HistoryTable(times, counts, fields).sorted()


def join(tables: Iterable[HistoryTable], fields: Sequence[str] | None = None) -> HistoryTable:
    """Return all rows in the order of time.

    Args:
        tables: The tables, in any order.
        fields: The fields of the result; None: every field that one of the tables has.
    """
    found = [table for table in tables if len(table)]
    if not found:
        return HistoryTable(np.empty(0), np.empty(0), {f: np.empty((3, 0)) for f in fields or ()})
    if len(found) == 1 and (fields is None or found[0].fields.keys() == set(fields)):
        return found[0].sorted()
    names = dict.fromkeys(f for table in found for f in table.fields) if fields is None else fields
    height = max((len(values) for table in found for values in table.fields.values()), default=3)
    return HistoryTable(
        np.concatenate([t.times for t in found]),
        np.concatenate([t.counts for t in found]),
        {f: np.concatenate([t.column(f, height) for t in found], axis=1) for f in names},
    ).sorted()


def decimate(table: HistoryTable, bins: NDArray[np.int64]) -> HistoryTable:
    """Return one row for each run of equal `bins` ([n], rising) that has readings."""
    if not len(table):
        return table
    starts = np.concatenate(([0], np.flatnonzero(bins[1:] != bins[:-1]) + 1))
    counts = np.add.reduceat(table.counts, starts)
    read = counts > 0
    times = np.add.reduceat(table.times * table.counts, starts)[read] / counts[read]
    fields = {f: _reduced(v, table.counts, starts)[:, read] for f, v in table.fields.items()}
    return HistoryTable(times, counts[read], fields)


def _reduced(values: Floats, counts: Floats, starts: NDArray[np.intp]) -> Floats:
    """Return [3, m] of [1 or 3, n]: means are weighted by readings, missing values skipped."""
    low, mean, high = values[0], values[len(values) // 2], values[-1]
    weights = np.where(np.isnan(mean), 0.0, counts)
    total = np.add.reduceat(weights, starts)
    summed = np.add.reduceat(np.where(weights > 0, mean, 0.0) * weights, starts)
    averages = np.full(len(starts), np.nan)
    np.divide(summed, total, out=averages, where=total > 0)
    return np.stack((np.fmin.reduceat(low, starts), averages, np.fmax.reduceat(high, starts)))


def by_step(table: HistoryTable, step: float) -> HistoryTable:
    """Return one row for each `step` seconds of the clock that has readings."""
    return decimate(table, np.floor(table.times / step).astype(np.int64))
