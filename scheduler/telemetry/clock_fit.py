"""Fit the correction of a GPU's clock to loads whose true clock was measured. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from gpudeck.scheduler.protocol.calibration import ClockCalibration, ClockKnot

BANDS = (0.1, 0.4, 0.8)
"""The activities that separate the bands in which one error is reported."""
LEAST_ERRORS = (2.0, 7.1, 9.1, 3.0)
"""Percent, by band: the largest errors of loads that a fit had not seen, 36 on two H200s and 32 on
two H100s. The 9.1 is that of a load that pauses every 0.1 s, as the driver renews its clock
(tests/benchmarks/log/telemetry.md)."""
_ALIKE = 0.1
"""Loads whose activities differ by this much at most are averaged into one point of the curve."""
_STEADY = 0.9
_MOST_SCALE = 0.05
"""Loads whose operations were counted may move the whole correction by this much; more means that
the counters are not understood. On an H200 the counters were 1.75 % above what was counted, with a
standard deviation of 0.7 %, and once 3 %, which a limit of 0.03 refused."""


class ClockLoad(NamedTuple):
    """Hold the means over one load."""

    activity: float
    """Of the tensor cores, see `gpudeck.scheduler.protocol.calibration.tensor_activity`."""
    ratio: float
    """The SM clock that a kernel measured / NVML's."""
    counted: float | None = None
    """The operations that the load counted / those of the counters with NVML's clock; None where
    the load cannot count."""


class CannotFit(Exception):
    """Signal that the measurements do not allow a correction; the message says why."""


def fit(loads: Sequence[ClockLoad]) -> tuple[ClockKnot, ...]:
    """Return the correction by the activity of the tensor cores.

    The curve may fall and rise: on an H100 NVML's clock is right while the tensor cores always
    work, and 9 % too high while they pause every 0.1 s (tests/benchmarks/log/telemetry.md).

    Raises:
        CannotFit: Too few loads, or clock and counted operations contradict each other.
    """
    if len({round(load.activity, 1) for load in loads}) < 3:
        raise CannotFit("too few loads were measured")
    if any(not 0.5 < load.ratio < 1.1 for load in loads):
        raise CannotFit("the measured clock and NVML's differ by more than a half")
    scale = _scale(loads)
    curve = _averaged([(x.activity, _target(x, scale)) for x in loads])
    plain = ClockCalibration("", "", "", 0.0, tuple(ClockKnot(a, r, 0.0) for a, r in curve))
    errors = list(LEAST_ERRORS)
    for load in loads:
        off = abs(plain.ratio(load.activity) / _target(load, scale) - 1)
        band = _band(load.activity)
        errors[band] = max(errors[band], math.ceil(100 * off))
    return tuple(ClockKnot(a, r, errors[_band(a)]) for a, r in curve)


def _scale(loads: Sequence[ClockLoad]) -> float:
    """Return counted operations / cycles at the measured clock, over steady tensor loads."""
    found = [x.counted / x.ratio for x in loads if x.counted and x.activity >= _STEADY]
    if not found:
        return 1.0
    scale = median(found)
    if abs(scale - 1) > _MOST_SCALE:
        raise CannotFit(
            f"the counters and the measured clock give {100 / scale:.1f} % of the operations that "
            "the loads counted"
        )
    return scale


def _target(load: ClockLoad, scale: float) -> float:
    """Return the correction that would be right for this load alone."""
    return load.counted or load.ratio * (1 + load.activity * (scale - 1))


def _band(activity: float) -> int:
    return sum(activity >= limit for limit in BANDS)


def _averaged(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the means of activity and ratio over points of like activity, by activity."""
    pools: list[list[tuple[float, float]]] = []
    for point in sorted(points):
        if pools and point[0] - pools[-1][0][0] <= _ALIKE:
            pools[-1].append(point)
        else:
            pools.append([point])
    return [(fmean(a for a, _ in pool), fmean(r for _, r in pool)) for pool in pools]
