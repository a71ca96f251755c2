"""Find by how much a GPU's hardware counters lag behind its work. Pure.

The counters of a reading describe an interval that ended 0.03 to 0.2 s earlier; by how much depends
on when the probe was started. A load with pauses shows it: the counters rise and fall with the work
that the load did in the interval that they describe. A delay that is wrong by 0.02 s makes the
work of half a second wrong by 5 % (tests/benchmarks/log/telemetry.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

MOST_S = 0.2
"""The longest delay that is considered."""
USUAL_S = 0.06
"""The delay where no load tells it."""
_STEP_S = 0.002
_LEAST_SHARES = 8
"""So many readings beside loads with pauses are needed."""

Spans = Sequence[tuple[float, float]]
"""Pairs of start and end, in seconds since the epoch."""


class Share(NamedTuple):
    """Hold the counters of one reading."""

    start: float
    """The time of the reading before."""
    end: float
    """The time of this reading."""
    tensor: float
    """The share of cycles in which the tensor pipe was busy, in any unit."""


class PausedLoad(NamedTuple):
    """Hold one load, and what was read beside it."""

    busy: Spans
    """When the GPU had work."""
    shares: Sequence[Share]


def overlap(spans: Iterable[tuple[float, float]], start: float, end: float) -> float:
    """Return the seconds of `spans` that lie between two moments."""
    return sum(max(min(b, end) - max(a, start), 0.0) for a, b in spans)


def counter_delay(loads: Sequence[PausedLoad]) -> float:
    """Return the delay, in seconds, with which counters and work agree best.

    Args:
        loads: Loads with the same work in every busy second. Loads without pauses are ignored.
    """
    told = [known for load in loads if len(load.busy) > 1 and (known := _within(load)).shares]
    if sum(len(load.shares) for load in told) < _LEAST_SHARES:
        return USUAL_S
    delays = [_STEP_S * i for i in range(round(MOST_S / _STEP_S) + 1)]
    return min(delays, key=lambda delay: sum(_scatter(load, delay) for load in told))


def _within(load: PausedLoad) -> PausedLoad:
    """Return the load with the readings that lie within it at every delay."""
    start, end = load.busy[0][0] + MOST_S, load.busy[-1][1]
    return PausedLoad(load.busy, [s for s in load.shares if start <= s.start and s.end <= end])


def _scatter(load: PausedLoad, delay: float) -> float:
    """Return the sum of squared deviations of counters / work, relative to their mean."""
    found = []
    for share in load.shares:
        worked = overlap(load.busy, share.start - delay, share.end - delay)
        if worked <= 0 or share.tensor <= 0:  # a pause as long as the reading tells nothing
            continue
        found.append(math.log(share.tensor / worked))
    middle = fmean(found) if found else 0.0
    return sum((value - middle) ** 2 for value in found)
