"""Notify the desktop of new alerts and of long jobs that ended, outside quiet hours.

Notifications go to the desktop by the process that sends the daemon's notices, which also does
what the user chooses there. QtDBus cannot send the unsigned number that
org.freedesktop.Notifications expects, and many desktops have no tray.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable

import msgspec

from gpudeck.app.alerts.alert_rows import newly_raised
from gpudeck.app.format.job_rows import meaning
from gpudeck.app.format.values import duration
from gpudeck.app.language.texts import language, tr, tr_text
from gpudeck.scheduler.notices.envelope import COMMAND, Envelope
from gpudeck.scheduler.notices.notice import Notice, alert_notice, job_notice
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import is_quiet
from gpudeck.scheduler.protocol.snapshot import Snapshot


class Notifier:
    """Show a notification for each new alert and each long job that ends."""

    def __init__(self, show: Callable[[Notice], object]) -> None:
        """Call `show(notice)` for each notification from now on."""
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
                self._show(_job_ended(job))
        jobs = [job for job in self._long_jobs(snapshot) if job.id not in self._told]
        if is_quiet(snapshot.settings.quiet_hours, snapshot.time):
            return
        for job in jobs:
            self._show(_job_ended(job))
        if not snapshot.settings.alert_notify:
            return
        for alert in newly_raised(snapshot, self._shown, self._since):
            self._shown.add(alert.id)
            title = f"GPU Deck: {tr(alert.rule)}"
            self._show(_worded(alert_notice(alert), title, tr_text(alert.text)))

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
            and job.started
            and _run_time(job) >= 60 * minutes
        ]


def _run_time(job: Job) -> float:
    return (job.ended or 0.0) - (job.started or 0.0)


def _job_ended(job: Job) -> Notice:
    word = "failed" if meaning(job) == "failed" else job.status
    title = tr("GPU Deck: job {job} {state}", job=job.id, state=tr(word))
    name, took = job.spec.name[:200], duration(_run_time(job))
    reason = tr_text(getattr(job.state, "reason", ""))[:300]
    if reason:
        text = tr("{name}, after {time}: {reason}", name=name, time=took, reason=reason)
    else:
        text = tr("{name}, after {time}", name=name, time=took)
    return _worded(job_notice(job), title, text)


def _worded(notice: Notice, title: str, text: str) -> Notice:
    return msgspec.structs.replace(notice, title=title, text=text)


_PATIENCE_S = 10.0


def send_notice(notice: Notice, failed: Callable[[Notice], object]) -> None:
    """Show a notice on the desktop without waiting, with its actions.

    Args:
        notice: The notice.
        failed: Takes the notice, in another thread, where the desktop does not show it.
    """
    envelope = msgspec.json.encode(Envelope("desktop", "", notice, language()))

    def run() -> None:
        argv = (*COMMAND, str(_PATIENCE_S))
        try:
            done = subprocess.run(
                argv, check=False, timeout=_PATIENCE_S, input=envelope, capture_output=True
            )
        except (OSError, subprocess.TimeoutExpired):
            failed(notice)
        else:
            if done.returncode:
                failed(notice)

    threading.Thread(target=run, name="notify", daemon=True).start()
