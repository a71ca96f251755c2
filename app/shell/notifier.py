"""Tells the desktop of alerts that were raised and of long jobs that ended since the window was opened, outside quiet hours."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.alerts.alert_rows import newly_raised
from app.jobs.ends import JobEnds
from scheduler.protocol.settings import is_quiet
from scheduler.protocol.snapshot import Snapshot


class Herald:
    """`show(title, text)` shows one notification. Alerts from before it was made are told by their list alone."""

    def __init__(self, show: Callable[[str, str], object]) -> None:
        self._show = show
        self._since = time.time()
        self._told: set[int] = set()
        self._ends = JobEnds()

    def hear(self, snapshot: Snapshot) -> None:
        """Tell of what is new; an alert that lasts through quiet hours is told after them."""
        ends = self._ends.news(snapshot)
        if is_quiet(snapshot.settings.quiet_hours, snapshot.time):
            return
        for title, text in ends:
            self._show(title, text)
        if not snapshot.settings.alert_notify:
            return
        for alert in newly_raised(snapshot, self._told, self._since):
            self._told.add(alert.id)
            self._show(f"GPU Deck: {alert.rule}", alert.text)
