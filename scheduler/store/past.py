"""What the archive and the newest readings say of a stretch of time, from the tiers that say it best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from scheduler.protocol.errors import UserError
from scheduler.protocol.snapshot import Columns
from scheduler.store.archive import Archive
from scheduler.telemetry.buckets import answer
from scheduler.telemetry.table import Floats, Table, join
from scheduler.telemetry.tiers import LAST, TIERS, tier_for

MOST_VALUES = 1_000_000
"""In one answer: more would keep the daemon, and the line, busy for seconds."""


def past(
    archive: Archive | None,
    newest: Table,
    device: str,
    fields: Sequence[str],
    since: float,
    until: float,
    points: int | None,
) -> Columns:
    """`newest`: rows that are in no block yet. `points` None: every row there is. Raises UserError where that is too much."""
    oldest = _oldest(archive, newest, device)
    if oldest is None or not since <= until:
        return Columns([], {f: [] for f in fields})
    since, until = max(since, oldest), min(until, _newest(archive, newest, device))
    tier = tier_for((until - since) / points) if points else 0
    table, steps = _gather(archive, newest, device, fields, since, until, tier)
    if not points and len(table) * max(len(fields), 1) > MOST_VALUES:
        raise UserError(
            "that is too much for one answer: name fewer fields, a shorter time, or how many points"
        )
    return answer(table, steps, since, until, points)


def _gather(
    archive: Archive | None,
    newest: Table,
    device: str,
    fields: Sequence[str],
    since: float,
    until: float,
    tier: int,
) -> tuple[Table, Floats]:
    """All rows of the time, from `tier` as far back as it goes, then from the coarser ones; and the step of each."""
    last = math.nextafter(until, math.inf)
    pieces, begins = [(newest.cut(since, last), 0.0)], math.inf
    for number in range(tier, LAST + 1) if archive is not None else ():
        assert archive is not None
        step = TIERS[number].step
        rows = archive.rows(
            device, fields, number, since - step, min(until, begins) + step, finer=number == tier
        )
        pieces.append((rows.cut(since - step / 2, min(last, begins)), step))
        firsts = [float(t.times[0]) for t in (rows, newest) if len(t)]
        begins = min(
            [
                begins,
                *firsts,
                *([first] if (first := archive.oldest(device, number)) is not None else []),
            ]
        )
        if begins <= since:
            break
    return _joined([(table, step) for table, step in pieces if len(table)], fields)


def _joined(pieces: Sequence[tuple[Table, float]], fields: Sequence[str]) -> tuple[Table, Floats]:
    if not pieces:
        return join((), fields), np.empty(0)
    order = np.argsort(np.concatenate([t.times for t, _ in pieces]), kind="stable")
    steps = np.concatenate([np.full(len(t), step) for t, step in pieces])
    return join((t for t, _ in pieces), fields), steps[order]


def _oldest(archive: Archive | None, newest: Table, device: str) -> float | None:
    known = [
        t
        for number in range(LAST + 1)
        if archive is not None and (t := archive.oldest(device, number)) is not None
    ]
    known += [float(newest.times[0])] if len(newest) else []
    return min(known, default=None)


def _newest(archive: Archive | None, newest: Table, device: str) -> float:
    known = archive.newest().get(device, -math.inf) if archive is not None else -math.inf
    return max(known, float(newest.times[-1])) if len(newest) else known
