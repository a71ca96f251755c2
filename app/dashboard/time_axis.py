"""Choose the part of the history that all charts show."""

from __future__ import annotations

from gpudeck.app.charts.history import SECONDS

SHORTEST = 10.0
"""Seconds of the closest zoom."""
LONGEST = 30 * 86400.0
"""Seconds that the daemon remembers."""
FIRST = 15.0
"""Seconds shown at first; more as there is more, until the user chooses."""
_GROWTH = 1.25
"""Each longer stretch is this many times as long: all charts are drawn anew then."""


class TimeAxis:
    """The time axis of all charts. While it is live, its right end is the newest reading."""

    def __init__(self) -> None:
        self.seconds = FIRST
        self._grows = True
        self._end: float | None = None
        self._known = (0.0, 0.0)

    @property
    def live(self) -> bool:
        """Report if the axis follows the newest reading."""
        return self._end is None

    @property
    def limits(self) -> tuple[float, float]:
        """Return the left and the right end, seconds since the epoch."""
        end = self._known[1] if self._end is None else self._end
        return end - self.seconds, end

    def extend(self, oldest: float, newest: float) -> None:
        """Note what the window knows, and move on if the axis is live."""
        self._known = (oldest, newest)
        if self._grows:
            while self.seconds < min(newest - oldest, SECONDS):
                self.seconds = min(self.seconds * _GROWTH, SECONDS)
        if self._end is not None:
            self._place(self._end)

    def go_live(self, seconds: float | None = None) -> None:
        """Follow the newest reading; show the last `seconds` if they are given."""
        if seconds is not None:
            self.seconds, self._grows = seconds, False
        self._end = None

    def pan(self, seconds: float) -> None:
        """Move to the right; to the left if `seconds` is negative."""
        self._place(self.limits[1] + seconds)

    def zoom(self, factor: float, at: float) -> None:
        """Show `factor` times as many seconds, with the moment `at` staying in its place."""
        start, end = self.limits
        share = (end - at) / (end - start)
        self._set_length(self.seconds * factor)
        self._place(at + share * self.seconds)

    def show(self, start: float, end: float) -> None:
        """Show the time from `start` to `end`."""
        self._set_length(end - start)
        self._place(start + self.seconds)

    def _set_length(self, seconds: float) -> None:
        self._grows = False
        self.seconds = min(max(seconds, SHORTEST), LONGEST)

    def _place(self, end: float) -> None:
        """Set the right end; go live if it reaches the newest reading."""
        newest = self._known[1]
        end = max(end, newest - LONGEST + self.seconds)
        self._end = None if end >= newest else end
