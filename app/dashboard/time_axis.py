"""Which part of the history all charts show: the newest seconds, or a stretch the user moved to."""

from __future__ import annotations

from app.charts.history import SECONDS

SHORTEST = 10.0
"""Seconds; the closest one can zoom."""
LONGEST = 30 * 86400.0
"""As far back as the daemon remembers."""
FIRST = 60.0
"""Seconds shown at first; more as there is more, until the user chooses."""


class TimeAxis:
    """The shared time axis. Live: its right end is the newest reading."""

    def __init__(self) -> None:
        self.seconds = FIRST
        self._fits = True
        self._end: float | None = None
        self._known = (0.0, 0.0)

    @property
    def live(self) -> bool:
        return self._end is None

    @property
    def limits(self) -> tuple[float, float]:
        """Left and right end, seconds since the epoch."""
        end = self._known[1] if self._end is None else self._end
        return end - self.seconds, end

    def extend(self, oldest: float, newest: float) -> None:
        """Tell what the window itself knows; a live axis moves on with it, and no axis stays on what has been forgotten."""
        self._known = (oldest, newest)
        if self._fits:
            self.seconds = min(max(newest - oldest, FIRST), SECONDS)
        if self._end is not None:
            self._place(self._end)

    def go_live(self, seconds: float | None = None) -> None:
        """Follow the newest reading, showing the last `seconds`."""
        if seconds is not None:
            self.seconds, self._fits = seconds, False
        self._end = None

    def pan(self, seconds: float) -> None:
        """Move to the right by `seconds` (negative: into the past). Reaching the newest reading makes it live."""
        self._place(self.limits[1] + seconds)

    def zoom(self, factor: float, at: float) -> None:
        """Show `factor` times as many seconds, with the moment `at` staying in its place."""
        start, end = self.limits
        self._fits = False
        seconds = min(max(self.seconds * factor, SHORTEST), LONGEST)
        share = (end - at) / (end - start)
        self.seconds = seconds
        self._place(at + share * seconds)

    def show(self, start: float, end: float) -> None:
        """Show this stretch."""
        self._fits = False
        self.seconds = min(max(end - start, SHORTEST), LONGEST)
        self._place(start + self.seconds)

    def _place(self, end: float) -> None:
        newest = self._known[1]
        end = max(end, newest - LONGEST + self.seconds)
        self._end = None if end >= newest else end
