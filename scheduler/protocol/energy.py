"""Compute energy from the power that a card reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from gpudeck.scheduler.protocol.snapshot import Columns

POWER_FIELDS = ("power", "power_avg")
"""What energy is computed from. `power` is of a moment: beside a load that pauses in the rhythm of
the readings it was 62 % too low over ten seconds (tests/benchmarks/log/telemetry.md)."""
AVERAGED_S = 1.0
"""The time over which cards average `power_avg`, where they report power of a moment, too."""


def joules_of_means(seconds: float, first: float, last: float) -> float:
    """Return the energy between two readings of a mean over the last second.

    Such a mean trails by half a second, so half a second of its change is added: work that begins
    or ends is counted whole, and pauses between two readings are in the mean.

    Args:
        seconds: The time between the readings.
        first: Watts at the first one.
        last: Watts at the last one.
    """
    return seconds * (first + last) / 2 + (last - first) * AVERAGED_S / 2


def watts(columns: Columns) -> Sequence[float | None]:
    """Return a history's mean power, or its power of moments where the card reports no mean."""
    return _means(columns) or columns.columns.get("power", ())


def _means(columns: Columns) -> Sequence[float | None]:
    """Return the mean power; nothing where the card reports none."""
    found = columns.columns.get("power_avg", ())
    return found if any(v is not None for v in found) else ()


def joules_of_history(columns: Columns) -> float | None:
    """Return the energy of a history; gaps count as nothing, and None is returned without two
    neighbouring readings.
    """
    means = _means(columns)
    steps = [
        joules_of_means(seconds, a, b) if means else seconds * (a + b) / 2
        for seconds, (a, b) in zip(
            (after - before for before, after in pairwise(columns.times)),
            pairwise(watts(columns)),
            strict=False,
        )
        if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)
    ]
    return math.fsum(steps) if steps else None
