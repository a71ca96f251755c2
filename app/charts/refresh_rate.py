"""When which chart is drawn anew. A live time axis moves in steps of the narrowest chart's bins, two pixels: what lies between them would
not be seen. Within a step only what is new is drawn; and of several charts that are due at once some wait for the next readings."""

from __future__ import annotations

import math
from collections.abc import Hashable

Limits = tuple[float, float]
FIGURES_A_SECOND = 5
"""Digits that change more often cannot be read."""
A_SECOND = 4
"""So many charts are drawn a second where only time has passed, and at least one with each reading: of fast readings each costs little."""


class Turns:
    """Which of several figures is renewed with which reading: each in its turn, so that no reading costs more than another."""

    def __init__(self) -> None:
        self._every, self._turn = 1, 0

    def begin(self, hz: float) -> None:
        """A reading has come, of `hz` a second."""
        self._every = max(math.ceil(hz / FIGURES_A_SECOND), 1)
        self._turn = (self._turn + 1) % self._every

    def due(self, at: int) -> bool:
        """Whether the figure at this place is renewed now."""
        return at % self._every == self._turn


def stepped(limits: Limits, step: float) -> Limits:
    """The limits of a live axis, moved to the right to a whole number of steps (seconds)."""
    end = math.ceil(limits[1] / step) * step
    return end - (limits[1] - limits[0]), end


class Pace:
    """What each chart showed when it was drawn last."""

    def __init__(self) -> None:
        self._look: Hashable = None
        self._drawn: dict[str, Limits] = {}

    def due(
        self, fields: tuple[str, ...], limits: Limits, look: Hashable, hz: float
    ) -> tuple[str, ...]:
        """The charts to be drawn now. `look`: all that they depend on beside time; where it changed, all of them are due. `hz`: readings
        a second."""
        if look != self._look:
            self._look, self._drawn = look, {}
        late = sorted(
            (f for f in fields if f in self._drawn and self._drawn[f] != limits),
            key=lambda f: self._drawn[f],
        )
        found = (
            *(f for f in fields if f not in self._drawn),
            *late[: max(round(A_SECOND / hz), 1)],
        )
        self._drawn |= dict.fromkeys(found, limits)
        return found

    def forget(self) -> None:
        """All charts are due: what they show has become something else."""
        self._look = None
