"""Choose round values for the value axes of charts."""

from __future__ import annotations

import math

_MARGIN = 1.05
_SHRINK_BELOW = 0.9
_NOTHING = 1e-9
_LARGE = 3.0
"""The first digits from which on an end above a ceiling has one digit, else a half more."""
_FAR_ABOVE = 0.35
"""Share of the top above which the lowest value must be for an axis that does not begin at 0."""


def ticks(top: float, steps: int = 5) -> list[float]:
    """Return round values from 0 to `top` in at most `steps` steps; five give 3 to 6 values."""
    if not top > 0:
        return []
    power = 10.0 ** math.floor(math.log10(top))
    factors = (0.2, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 10.0)
    step = next(f * power for f in factors if top / (f * power) < steps + 0.01)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def round_ticks(low: float, high: float, steps: int = 4) -> list[float]:
    """Return round values around `low` to `high`, in at most `steps` steps and one more.

    The first is at most `low` and the last at least `high`.
    """
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(f * power for f in (0.2, 0.25, 0.5, 1.0, 2.0, 2.5, 5.0, 10.0)
                if (high - low) / (f * power) <= steps)  # fmt: skip
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [at * step for at in range(first, last + 1)]


class AxisTop:
    """Keep the end of one value axis above all values, and change it rarely.

    It grows at once, but shrinks only when values 10 % higher would still fit the lower end.
    """

    def __init__(self) -> None:
        self.value = 0.0

    def fit(self, highest: float, ceiling: float | None) -> float:
        """Return the end for values up to `highest`.

        Args:
            ceiling: The end while no value is higher; None to follow the values.
        """
        lower = _end(highest / _SHRINK_BELOW, ceiling)
        if not self.value >= _end(highest, ceiling):
            self.value = _end(highest, ceiling)
        elif lower < self.value:
            self.value = lower
        return self.value


def _end(highest: float, ceiling: float | None) -> float:
    if ceiling is None:
        return round_top(highest)
    if not ceiling < highest < math.inf:
        return ceiling
    power = 10.0 ** math.floor(math.log10(highest))  # 770 W above a limit of 700 W: 900 W
    step = power if highest >= _LARGE * power else power / 2
    return math.ceil(highest * _MARGIN / step) * step


def round_floor(lowest: float, top: float) -> float:
    """Return where an axis up to `top` begins: at 0 unless all values are far above it."""
    if not _FAR_ABOVE * top < lowest < math.inf:
        return 0.0
    step = 10.0 ** math.floor(math.log10(top))
    return math.floor(lowest / step) * step


def round_top(highest: float) -> float:
    """Return a round value a little above `highest`; 1 if there is nothing to show."""
    if not _NOTHING < highest < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(highest * _MARGIN))
    factors = (1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0)
    return next(f * power for f in factors if f * power >= highest * _MARGIN)


def round_up(value: float) -> float:
    """Round up to two significant digits.

    The width of a bin is rounded like this, so that a small change of the range does not change
    all bins.
    """
    power = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / power - 1e-6) * power
