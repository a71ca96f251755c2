"""Decide which charts and tiles are painted again with which reading.

A live time axis moves in steps of two pixels of the narrowest chart, since smaller moves would
not be seen. Between two steps only charts with new values are drawn, a few with each reading.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

Limits = tuple[float, float]
TEXTS_A_SECOND = 5
"""Digits that change more often cannot be read."""
CHARTS_A_SECOND = 3
"""Charts that are drawn a second, at least one with each reading, where only time has passed."""


class StaggeredRefresh:
    """Refresh each of several texts with every n-th reading, so that no reading costs much."""

    def __init__(self) -> None:
        self._every, self._turn = 1, 0

    def begin(self, hz: float) -> None:
        """Note that a reading has come; `hz` is the number of readings a second."""
        self._every = max(math.ceil(hz / TEXTS_A_SECOND), 1)
        self._turn = (self._turn + 1) % self._every

    def includes(self, at: int) -> bool:
        """Report if the text at this index is refreshed with this reading."""
        return at % self._every == self._turn


def stepped(limits: Limits, step: float) -> Limits:
    """Return the limits of a live axis, moved to the right to a multiple of `step` seconds."""
    end = math.ceil(limits[1] / step) * step
    return end - (limits[1] - limits[0]), end


class RedrawSchedule:
    """Choose the charts to draw again, those that were drawn longest ago first."""

    def __init__(self) -> None:
        self._appearance: Hashable = None
        self._drawn: dict[str, Limits] = {}
        self._due = 0.0
        """The charts that may be drawn with the next reading, of which only a part is whole."""

    def next_charts(
        self, fields: tuple[str, ...], limits: Limits, appearance: Hashable, hz: float
    ) -> tuple[str, ...]:
        """Return the fields of the charts to draw now.

        Args:
            fields: The fields of all charts.
            limits: Both ends of the time axis.
            appearance: All that the charts depend on apart from time; they are all drawn again
                when it changes.
            hz: Readings a second.
        """
        if appearance != self._appearance:
            self._appearance, self._drawn = appearance, {}
        self._due += max(CHARTS_A_SECOND / hz, 1.0)
        count, self._due = int(self._due), self._due % 1.0
        late = [field for field in fields if self._drawn.get(field, limits) != limits]
        late.sort(key=lambda field: self._drawn[field])
        chosen = (
            *(field for field in fields if field not in self._drawn),
            *late[:count],
        )
        self._drawn |= dict.fromkeys(chosen, limits)
        return chosen
