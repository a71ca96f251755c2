"""Collect the curves of the values that a job prints, such as its loss."""

from __future__ import annotations

import numpy as np

from gpudeck.app.charts.series import Floats
from gpudeck.scheduler.protocol.printed_values import MAX_LINE, values_of

MOST_CURVES = 6
MOST_POINTS = 2000
"""Of a curve with more, every second point is dropped."""
COUNTERS = frozenset(("step", "epoch", "iter", "iteration", "time"))
"""Names that count and need no curve."""


class PrintedCurves:
    """Read the values of each line, in the order in which the names first appear."""

    def __init__(self) -> None:
        self._rest = b""
        self._values: dict[str, list[float]] = {}

    def feed(self, data: bytes) -> None:
        """Take the bytes of the log that follow the last ones."""
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest if len(rest) <= MAX_LINE else b""
        for line in lines:
            for name, value in values_of(line).items():
                self._add(name, value)

    def _add(self, name: str, value: float) -> None:
        if name in COUNTERS or (name not in self._values and len(self._values) >= MOST_CURVES):
            return
        values = self._values.setdefault(name, [])
        values.append(value)
        if len(values) > MOST_POINTS:
            del values[::2]

    @property
    def curves(self) -> dict[str, Floats]:
        """Return the values of each name with two or more, oldest first."""
        return {name: np.asarray(v) for name, v in self._values.items() if len(v) > 1}
