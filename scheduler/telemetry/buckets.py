"""Rows of a table as an answer: at most so many buckets, and gaps where nothing was read. Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.protocol.snapshot import Columns
from scheduler.telemetry.table import Floats, Table, decimate
from scheduler.telemetry.tiers import GAP_STEPS

Flags = NDArray[np.bool_]


def answer(table: Table, steps: Floats, since: float, until: float, points: int | None) -> Columns:
    """The rows in `points` buckets of one width from `since` to `until`; None: each row as it is.

    `steps`, [n]: seconds that each row stands for, 0 as it was read. A bucket in which nothing was read is not there, except for the first
    one of a gap, which has no values.
    """
    width = (until - since) / points if points else 0.0
    read = table.counts > 0
    broken = _broken(table, steps, read)
    rows = (
        table
        if read.all()
        else Table(
            table.times[read], table.counts[read], {f: v[:, read] for f, v in table.fields.items()}
        )
    )
    if not width > 0:
        return _columns(rows, np.flatnonzero(broken) + 1, rows.times[broken] + 1e-3)
    bins = np.clip(np.floor((rows.times - since) / width), 0, (points or 1) - 1).astype(np.int64)
    gaps = (
        np.flatnonzero(broken[:-1] & (bins[1:] - bins[:-1] > 1))
        if len(rows)
        else np.empty(0, np.int64)
    )
    places = np.searchsorted(np.unique(bins), bins[gaps]) + 1
    return _columns(decimate(rows, bins), places, since + (bins[gaps] + 1.5) * width)


def _broken(table: Table, steps: Floats, read: Flags) -> Flags:
    """For each row in which something was read, whether there is a gap before the next one."""
    times, at = table.times[read], np.flatnonzero(read)
    if not len(at):
        return np.zeros(0, bool)
    told = np.append(np.diff(at) > 1, bool(at[-1] < len(read) - 1))
    stands = steps[read]
    longest = np.maximum(stands[:-1], stands[1:])
    missed = (longest > 0) & (np.diff(times) > GAP_STEPS * longest)
    gaps: Flags = told | np.append(missed, False)
    return gaps


def _columns(table: Table, places: NDArray[np.int64], times: NDArray[np.floating]) -> Columns:
    """With a row of no values before each of `places`, at `times`."""

    def told(values: Floats) -> list[float | None]:
        numbers = np.insert(values, places, np.nan) if len(places) else values
        found: list[float | None] = numbers.tolist()
        for at in np.flatnonzero(np.isnan(numbers)):
            found[at] = None
        return found

    low, mean, high = (
        {field: told(values[min(part, len(values) - 1)]) for field, values in table.fields.items()}
        for part in range(3)
    )
    return Columns(np.insert(table.times, places, times).tolist(), mean, low, high)
