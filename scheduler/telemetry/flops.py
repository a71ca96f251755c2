"""TFLOP/s from what our own jobs count, for devices without counters of their own. Pure."""

from __future__ import annotations

import math
from collections import deque

from scheduler.protocol.jobs import Progress

WINDOW_S = 2.0
"""The rate is taken over this span: jobs report a few times a second."""
STALE_S = 1.2
"""A job that counted nothing for this long has stopped its work, even if it lives: jobs report, and are heard, four times a second."""


class FlopRate:
    """The rate at which one job's count goes up."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, progress: Progress) -> None:
        if self._points and (
            progress.time < self._points[-1][0] or progress.flops < self._points[-1][1]
        ):
            return
        if (
            self._points and progress.time == self._points[-1][0]
        ):  # lines heard in one look, of a job that tells no time: the last counts
            self._points.pop()
        self._points.append((progress.time, progress.flops))
        while len(self._points) > 2 and self._points[0][0] < progress.time - WINDOW_S:
            self._points.popleft()

    def tflops(self, now: float) -> float | None:
        """TFLOP/s over the window, None where the job has not counted lately."""
        if len(self._points) < 2 or now - self._points[-1][0] > STALE_S:
            return None
        (t0, f0), (t1, f1) = self._points[0], self._points[-1]
        rate = (f1 - f0) / (t1 - t0) / 1e12
        return rate if math.isfinite(rate) else None  # counts near the largest float
