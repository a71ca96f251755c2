"""Rows of one device's history as columns of numbers, and what is done with them: join, cut, decimate. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """n rows, times rising."""

    times: Floats
    """Seconds since the epoch, [n]: of the reading, or the mean of those that the row stands for."""
    counts: Floats
    """Readings that the row stands for, [n]; 0: nothing was read from here on."""
    fields: Mapping[str, Floats]
    """[1, n] as it was read, or [3, n]: lowest, mean, highest. NaN where there was no value."""

    def __len__(self) -> int:
        return len(self.times)

    def column(self, field: str, height: int) -> Floats:
        """[height, n], 1 as it was read or 3: lowest, mean, highest; NaN for a field that is not there."""
        if (found := self.fields.get(field)) is None:
            return np.full((height, len(self)), np.nan)
        return found if len(found) == height else np.broadcast_to(found, (height, len(self)))

    def cut(self, since: float, until: float) -> Table:
        """The rows from `since` up to, not with, `until`."""
        first, last = np.searchsorted(self.times, (since, until))
        return self if last - first == len(self) else self._take(slice(first, last))

    def _take(self, rows: slice | NDArray[np.intp]) -> Table:
        return Table(
            self.times[rows], self.counts[rows], {f: v[:, rows] for f, v in self.fields.items()}
        )

    def risen(self) -> Table:
        """In the order of time: the clock may have been set back."""
        if bool(np.all(self.times[1:] >= self.times[:-1])):
            return self
        return self._take(np.argsort(self.times, kind="stable"))


def join(tables: Iterable[Table], fields: Sequence[str] | None = None) -> Table:
    """All rows in the order of time, with `fields` (None: every field that one of them has)."""
    found = [table for table in tables if len(table)]
    if not found:
        return Table(np.empty(0), np.empty(0), {f: np.empty((3, 0)) for f in fields or ()})
    if len(found) == 1 and (fields is None or found[0].fields.keys() == set(fields)):
        return found[0].risen()
    names = dict.fromkeys(f for table in found for f in table.fields) if fields is None else fields
    height = max((len(values) for table in found for values in table.fields.values()), default=3)
    times, counts = (
        np.concatenate([t.times for t in found]),
        np.concatenate([t.counts for t in found]),
    )
    return Table(
        times,
        counts,
        {f: np.concatenate([t.column(f, height) for t in found], axis=1) for f in names},
    ).risen()


def decimate(table: Table, bins: NDArray[np.int64]) -> Table:
    """One row for each run of equal `bins` ([n], rising) in which something was read."""
    if not len(table):
        return table
    starts = np.concatenate(([0], np.flatnonzero(bins[1:] != bins[:-1]) + 1))
    counts = np.add.reduceat(table.counts, starts)
    read = counts > 0
    times = np.add.reduceat(table.times * table.counts, starts)[read] / counts[read]
    return Table(
        times,
        counts[read],
        {f: _reduced(v, table.counts, starts)[:, read] for f, v in table.fields.items()},
    )


def _reduced(values: Floats, counts: Floats, starts: NDArray[np.intp]) -> Floats:
    """[3, m] of [1 or 3, n]. A mean weighs each row by its readings; rows without a value do not count."""
    low, mean, high = values[0], values[len(values) // 2], values[-1]
    weights = np.where(np.isnan(mean), 0.0, counts)
    total = np.add.reduceat(weights, starts)
    summed = np.add.reduceat(np.where(weights > 0, mean, 0.0) * weights, starts)
    averages = np.full(len(starts), np.nan)
    np.divide(summed, total, out=averages, where=total > 0)
    return np.stack((np.fmin.reduceat(low, starts), averages, np.fmax.reduceat(high, starts)))


def by_step(table: Table, step: float) -> Table:
    """One row for each `step` seconds of the clock in which something was read."""
    return decimate(table, np.floor(table.times / step).astype(np.int64))
