"""Collect the curves of the values that a job prints, such as its loss."""

from __future__ import annotations

import numpy as np

from gpudeck.app.charts.series import Floats
from gpudeck.scheduler.protocol.printed_values import MAX_LINE, values_of

MOST_CURVES = 6
MOST_POINTS = 2000
"""Of a curve with more, every second point is dropped."""
STEPS = ("step", "global_step", "iter", "iteration", "epoch")
"""The names that count the steps of the values in the same line, the best first."""
COUNTERS = frozenset((*STEPS, "time"))
"""Names that count and need no curve."""


class PrintedCurves:
    """Read the values of each line, in the order in which the names first appear."""

    def __init__(self, most: int = MOST_CURVES) -> None:
        """Keep up to `most` names."""
        self._most = most
        self._rest = b""
        self._points: dict[str, list[tuple[float, float]]] = {}
        """The step and the value of each point."""

    def feed(self, data: bytes) -> None:
        """Take the bytes of the log that follow the last ones."""
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE else b""
        for line in lines:
            found = values_of(line)
            step = next((found[name] for name in STEPS if name in found), None)
            for name, value in found.items():
                self._add(name, step, value)

    def _add(self, name: str, step: float | None, value: float) -> None:
        known = name in self._points or len(self._points) < self._most
        if name in COUNTERS or not known:
            return
        points = self._points.setdefault(name, [])
        last = points[-1][0] if points else 0.0
        points.append((last + 1 if step is None else step, value))
        if len(points) > MOST_POINTS:
            del points[::2]

    @property
    def points(self) -> dict[str, tuple[Floats, Floats]]:
        """Return the steps and the values of each name with two or more values, [n] each.

        Lines without a step count up from the one before.
        """
        made = {name: np.asarray(p).T for name, p in self._points.items() if len(p) > 1}
        return {name: (both[0], both[1]) for name, both in made.items()}
