"""Notify the desktop of new alerts and of long jobs that ended, outside quiet hours.

Notifications go to the desktop's own command. QtDBus cannot send the unsigned number that
org.freedesktop.Notifications expects, and many desktops have no tray.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from html import escape

from gpudeck.app.alerts.alert_rows import newly_raised
from gpudeck.app.format.job_rows import ended, meaning, started
from gpudeck.app.format.values import duration
from gpudeck.app.language.texts import tr, tr_sentence, tr_text
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import is_quiet
from gpudeck.scheduler.protocol.snapshot import Snapshot


class Notifier:
    """Show a notification for each new alert and each long job that ends."""

    def __init__(self, show: Callable[[str, str], object]) -> None:
        """Call `show(title, text)` for each notification from now on."""
        self._show = show
        self._since = time.time()
        self._shown: set[int] = set()
        self._told: set[int] = set()
        """Jobs of whose end the user was told because of asking for it."""
        self._active: frozenset[int] = frozenset()

    def update(self, snapshot: Snapshot, wanted: set[int] | None = None) -> None:
        """Notify of what is new. An alert that lasts through quiet hours is shown after them.

        Args:
            wanted: Jobs whose end the user asked for, which is shown whenever it comes.
        """
        asked = wanted if wanted is not None else set()
        for job in snapshot.jobs:
            if job.id in asked and not job.active:
                asked.discard(job.id)
                self._told.add(job.id)
                self._show(*_job_text(job))
        jobs = [job for job in self._long_jobs(snapshot) if job.id not in self._told]
        if is_quiet(snapshot.settings.quiet_hours, snapshot.time):
            return
        for job in jobs:
            self._show(*_job_text(job))
        if not snapshot.settings.alert_notify:
            return
        for alert in newly_raised(snapshot, self._shown, self._since):
            self._shown.add(alert.id)
            self._show(f"GPU Deck: {tr_sentence(alert.rule)}", tr_text(alert.text))

    def _long_jobs(self, snapshot: Snapshot) -> list[Job]:
        """Return the jobs that ended since the last snapshot, after the time of the settings."""
        before = self._active
        self._active = frozenset(job.id for job in snapshot.jobs if job.active)
        minutes = snapshot.settings.notify_minutes
        if isinstance(minutes, str):  # off
            return []
        return [
            job
            for job in snapshot.jobs
            if job.id in before
            and not job.active
            and started(job)
            and _run_time(job) >= 60 * minutes
        ]


def _run_time(job: Job) -> float:
    return (ended(job) or 0.0) - (started(job) or 0.0)


def _job_text(job: Job) -> tuple[str, str]:
    word = "failed" if meaning(job) == "failed" else job.status
    title = tr("GPU Deck: job {job} {state}", job=job.id, state=tr(word))
    name, took = job.spec.name[:200], duration(_run_time(job))
    reason = tr_sentence(getattr(job.state, "reason", ""))[:300]
    if reason:
        return title, tr("{name}, after {time}: {reason}", name=name, time=took, reason=reason)
    return title, tr("{name}, after {time}", name=name, time=took)


COMMAND = "notify-send"
_PATIENCE_S = 10.0


def notify(title: str, text: str = "") -> bool:
    """Show a notification without waiting. Return False if the desktop has no command for it."""
    if (command := shutil.which(COMMAND)) is None:
        return False
    # escaped, since the text may come from a job, and desktops interpret markup
    argv = [command, "--app-name=GPU Deck", "--", title, escape(text, quote=False)]
    threading.Thread(target=_run, args=(argv,), name="notify", daemon=True).start()
    return True


def _run(argv: list[str]) -> None:
    try:
        subprocess.run(
            argv, check=False, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL, capture_output=True
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # without a notification, the window still shows the alert or the job
