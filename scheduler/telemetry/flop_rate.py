"""Compute TFLOP/s from the FLOPs that our own jobs count, for devices without counters. Pure."""

from __future__ import annotations

import math
from collections import deque

from gpudeck.scheduler.protocol.jobs import Progress

WINDOW_S = 2.0
"""The span of the rate: jobs report a few times a second."""
STALE_S = 1.2
"""A job that reported nothing for this long has paused: jobs report four times a second."""


class FlopRate:
    """Track the rate at which one job's count goes up."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, progress: Progress) -> None:
        """Take in a report; one that goes back in time or count is dropped."""
        time, count = progress.time, progress.flops
        if self._points and (time < self._points[-1][0] or count < self._points[-1][1]):
            return
        # reports read at the same moment, of a job that sends no time: the last one counts
        if self._points and time == self._points[-1][0]:
            self._points.pop()
        self._points.append((time, count))
        while len(self._points) > 2 and self._points[0][0] < time - WINDOW_S:
            self._points.popleft()

    def tflops(self, now: float) -> float | None:
        """Return TFLOP/s over the window, or None if the job has not counted lately."""
        if len(self._points) < 2 or now - self._points[-1][0] > STALE_S:
            return None
        (t0, f0), (t1, f1) = self._points[0], self._points[-1]
        rate = (f1 - f0) / (t1 - t0) / 1e12
        return rate if math.isfinite(rate) else None  # counts near the largest float
