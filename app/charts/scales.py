"""Round figures for a chart's value axis."""

from __future__ import annotations

import math

_MARGIN = 1.05
_CALM = 0.9
_NOTHING = 1e-9


def ticks(top: float, steps: int = 5) -> list[float]:
    """Round values from 0 to `top`, at most so many steps apart: three to six values for five steps."""
    if not top > 0:
        return []
    power = 10.0 ** math.floor(math.log10(top))
    step = next(
        s * power
        for s in (0.2, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 10.0)
        if top / (s * power) < steps + 0.01
    )
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


class Top:
    """Where one value axis ends: above everything it has to show, and calm.

    It grows at once, and shrinks only when values 10 % higher would still fit the lower end.
    """

    def __init__(self) -> None:
        self.value = 0.0

    def fit(self, highest: float, ceiling: float | None) -> float:
        """The end for values up to `highest`; `ceiling` is where it ends as long as nothing is higher (None: no such place)."""
        if not self.value >= _end(highest, ceiling):
            self.value = _end(highest, ceiling)
        elif (lower := _end(highest / _CALM, ceiling)) < self.value:
            self.value = lower
        return self.value


def _end(highest: float, ceiling: float | None) -> float:
    if ceiling is None:
        return round_top(highest)
    if not ceiling < highest < math.inf:
        return ceiling
    step = 10.0 ** math.floor(math.log10(highest)) / 4  # 770 W, where the limit is 700 W: to 825 W
    return math.ceil(highest * _MARGIN / step) * step


def round_top(highest: float) -> float:
    """Where an axis ends that has to show `highest`: a round value a little above it; 1 where there is nothing to show."""
    if not _NOTHING < highest < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest * _MARGIN))
    return next(
        step * power
        for step in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0)
        if step * power >= highest * _MARGIN
    )


def round_up(value: float) -> float:
    """The next number of two digits, for a bin width: one that changes with every reading would have all bins computed anew."""
    power = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / power - 1e-6) * power
