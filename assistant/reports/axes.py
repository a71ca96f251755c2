"""Where an axis has its ticks, and what they are called. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

_STEPS_S = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    10800,
    21600,
    43200,
    86400,
    172800,
    432000,
    864000,
)
_DAY = 86400
_NICE = (1.0, 2.0, 2.5, 5.0, 10.0)


def values(top: float, most: int = 4) -> list[float]:
    """Round values from 0 up to `top`, at most `most` steps apart; `top` is more than 0."""
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(n * power for n in _NICE if n * power >= rough * (1 - 1e-9))
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def end(highest: float) -> float:
    """Where an axis ends that has to show `highest`: at a round value above it; 1 where there is nothing to show."""
    if not 0 < highest < math.inf:
        return 1.0
    ticks = values(highest * 1.05)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else highest
    return step * math.ceil(highest * 1.05 / step - 1e-9)


def moments(since: float, until: float, most: int = 6) -> list[tuple[float, str]]:
    """Round times of day in the local zone, at most `most` steps apart, each with its label; midnight is called by its date."""
    length = max(until - since, 1.0)
    step = next((s for s in _STEPS_S if length / s <= most), math.ceil(length / most / _DAY) * _DAY)
    zone = time.localtime(since).tm_gmtoff
    first = math.ceil((since + zone) / step) * step - zone
    return [(at, _called(at, step)) for at in _from(first, step, until)]


def _from(first: float, step: float, until: float) -> Sequence[float]:
    return (
        [first + i * step for i in range(int((until - first) / step + 1e-9) + 1)]
        if first <= until
        else []
    )


def _called(at: float, step: float) -> str:
    local = time.localtime(at)
    if step >= _DAY or (step >= 60 and local.tm_hour == local.tm_min == 0):
        return f"{local.tm_mday} {time.strftime('%b', local)}"
    return time.strftime("%H:%M:%S" if step < 60 else "%H:%M", local)
