"""Round figures for a chart's value axis."""

from __future__ import annotations

import math


def ticks(top: float) -> list[float]:
    """Round values from 0 to `top`: three to six of them."""
    if not top > 0:
        return []
    power = 10.0 ** math.floor(math.log10(top))
    step = next(s * power for s in (0.2, 0.25, 0.5, 1.0, 2.0, 5.0) if top / (s * power) < 5.01)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def round_top(highest: float) -> float:
    """Where an axis ends that has to show `highest`: a round value a little above it; 1 where there is nothing to show."""
    if not 0 < highest < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest * 1.05))
    return next(step * power for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0) if step * power >= highest * 1.05)
