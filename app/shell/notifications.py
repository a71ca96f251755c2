"""Tells the desktop of alerts that were raised and of long jobs that ended since the window was opened, outside quiet hours."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from html import escape

from app.alerts.alert_rows import newly_raised
from app.format.job_rows import ended, meaning, started
from app.format.values import duration
from scheduler.protocol.jobs import Job
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


class JobEnds:
    """Looks at one snapshot after the other; what had ended before the first is no news."""

    def __init__(self) -> None:
        self._active: frozenset[int] = frozenset()

    def news(self, snapshot: Snapshot) -> list[tuple[str, str]]:
        """Title and text of what is to be told; nothing where the settings turn it off."""
        before, self._active = (
            self._active,
            frozenset(job.id for job in snapshot.jobs if job.active),
        )
        minutes = snapshot.settings.notify_minutes
        if isinstance(minutes, str):
            return []
        return [
            _told(job)
            for job in snapshot.jobs
            if job.id in before and not job.active and _ran(job) >= 60 * minutes and started(job)
        ]


def _ran(job: Job) -> float:
    return (ended(job) or 0.0) - (started(job) or 0.0)


def _told(job: Job) -> tuple[str, str]:
    word = "failed" if meaning(job) == "failed" else job.status
    reason = getattr(job.state, "reason", "")
    return (
        f"GPU Deck: job {job.id} {word}",
        f"{job.spec.name[:200]}, after {duration(_ran(job))}"
        + (f": {reason[:300]}" if reason else ""),
    )


COMMAND = "notify-send"
_PATIENCE_S = 10.0


def notify(title: str, text: str = "") -> bool:
    """Show a notification; returns at once. False where this machine has no command for it."""
    if (command := shutil.which(COMMAND)) is None:
        return False
    # the text may come from a job: desktops read markup in it
    words = [command, "--app-name=GPU Deck", "--", title, escape(text, quote=False)]
    threading.Thread(target=_run, args=(words,), name="notify", daemon=True).start()
    return True


def _run(words: list[str]) -> None:
    try:
        subprocess.run(
            words, check=False, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # a desktop that shows no notification is no trouble of the job or the GPU
