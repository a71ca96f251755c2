"""Answer questions about the past from the stored tiers of history that suit them best.

An answer has a limited number of buckets, and gaps for the times when nothing was read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.store.archive import Archive
from gpudeck.scheduler.telemetry.history_table import (
    GAP_STEPS,
    LAST,
    TIERS,
    Floats,
    HistoryTable,
    decimate,
    join,
    tier_for,
)

MAX_VALUES = 1_000_000
"""The most values in one answer: more would keep the daemon and the connection busy for seconds."""

TOO_MUCH = (
    "that is too much for one answer: ask for fewer fields or a shorter time, or limit the number "
    "of points"
)


def past(
    archive: Archive,
    newest: HistoryTable,
    device: str,
    fields: Sequence[str],
    since: float,
    until: float,
    points: int | None,
) -> Columns:
    """Return the history of a device.

    Args:
        archive: The history on disk.
        newest: The rows that are not yet in a block of the archive.
        device: The id of the device.
        fields: The fields of the answer.
        since: The first moment, seconds since the epoch.
        until: The last moment.
        points: The most rows of the answer; None for every row there is.

    Raises:
        UserError: The answer would be too large.
    """
    if len(fields) * (points or 1) > MAX_VALUES:
        raise UserError(TOO_MUCH)
    firsts = [archive.oldest(device, tier) for tier in range(LAST + 1)]
    known = [t for t in firsts if t is not None] + newest.times[:1].tolist()
    if not known or not since <= until:
        return Columns([], {f: [] for f in fields})
    stored = archive.last(device)
    last = max([-math.inf if stored is None else stored, *newest.times[-1:].tolist()])
    since, until = max(since, min(known)), min(until, last)
    tier = tier_for((until - since) / points) if points else 0
    table, steps = _gather(archive, newest, device, fields, since, until, tier)
    if not points and len(table) * max(len(fields), 1) > MAX_VALUES:
        raise UserError(TOO_MUCH)
    return _answer(table, steps, since, until, points)


def _gather(
    archive: Archive,
    newest: HistoryTable,
    device: str,
    fields: Sequence[str],
    since: float,
    until: float,
    tier: int,
) -> tuple[HistoryTable, Floats]:
    """Return all rows and the step of each.

    The rows are those of `tier` as far back as it goes, and before that those of coarser tiers.
    """
    end = math.nextafter(until, math.inf)
    pieces, begins = [(newest.cut(since, end), 0.0)], math.inf
    for number in range(tier, LAST + 1):
        step = TIERS[number].step
        rows = archive.rows(
            device, fields, number, since - step, min(until, begins) + step, finer=number == tier
        )
        pieces.append((rows.cut(since - step / 2, min(end, begins)), step))
        begins = min([begins, *rows.times[:1].tolist(), *newest.times[:1].tolist()])
        if (oldest := archive.oldest(device, number)) is not None:
            begins = min(begins, oldest)
        if begins <= since:
            break
    order = np.argsort(np.concatenate([t.times for t, _ in pieces]), kind="stable")
    steps = np.concatenate([np.full(len(t), step) for t, step in pieces])
    return join((t for t, _ in pieces), fields), steps[order]


def _answer(
    table: HistoryTable, steps: Floats, since: float, until: float, points: int | None
) -> Columns:
    """Return the rows in `points` buckets of equal width, or each row as it is for None.

    Buckets without readings are left out, except for the first one of a gap, which has no values.

    Args:
        table: The rows.
        steps: The seconds that each row covers, [n]; 0 for a single reading.
        since: The start of the first bucket.
        until: The end of the last one.
        points: The number of buckets.
    """
    width = (until - since) / points if points else 0.0
    read = table.counts > 0
    gap_follows = _gaps(table, steps, read)
    rows = table if read.all() else table.take(read)
    if not width > 0:
        return _columns(rows, np.flatnonzero(gap_follows) + 1, rows.times[gap_follows] + 1e-3)
    bins = np.clip(np.floor((rows.times - since) / width), 0, (points or 1) - 1).astype(np.int64)
    gaps = np.flatnonzero(gap_follows[:-1] & (bins[1:] - bins[:-1] > 1))
    places = np.searchsorted(np.unique(bins), bins[gaps]) + 1
    return _columns(decimate(rows, bins), places, since + (bins[gaps] + 1.5) * width)


def _gaps(table: HistoryTable, steps: Floats, read: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return, for each row with readings, whether a gap follows it."""
    times, at = table.times[read], np.flatnonzero(read)
    if not len(at):
        return np.zeros(0, bool)
    marked = np.append(np.diff(at) > 1, bool(at[-1] < len(read) - 1))
    longest = np.maximum(steps[read][:-1], steps[read][1:])
    missed = (longest > 0) & (np.diff(times) > GAP_STEPS * longest)
    gaps: NDArray[np.bool_] = marked | np.append(missed, False)
    return gaps


def _columns(
    table: HistoryTable, places: NDArray[np.int64], times: NDArray[np.floating]
) -> Columns:
    """Return the table with an empty row inserted before each of `places`, at `times`."""

    def column(values: Floats) -> list[float | None]:
        numbers = np.insert(values, places, np.nan) if len(places) else values
        found: list[float | None] = numbers.tolist()
        for at in np.flatnonzero(np.isnan(numbers)):
            found[at] = None
        return found

    low, mean, high = (
        {field: column(v[min(part, len(v) - 1)]) for field, v in table.fields.items()}
        for part in range(3)
    )
    return Columns(np.insert(table.times, places, times).tolist(), mean, low, high)
