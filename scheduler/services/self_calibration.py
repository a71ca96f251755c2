"""Calibrate GPUs without being asked, while all that could be calibrated have long been idle.

The daemon queues the job of `gpudeck calibrate` itself, once for each driver, as one that runs only
while GPUs are idle. If it has to leave them, it is cancelled, and tried again after the next long
idle time. Where cards differ, there is a job for each kind of them, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpudeck.extras import missing_of
from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol import calibration, paths
from gpudeck.scheduler.protocol.calibration_job import (
    calibration_jobs,
    has_counters,
    versions_of,
)
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.job_options import MAX_PRIORITY
from gpudeck.scheduler.protocol.jobs import Job, Running, Spec
from gpudeck.scheduler.protocol.setting_table import Threshold
from gpudeck.scheduler.protocol.snapshot import DeviceState, Idle

REVIEW_S = 2.0
"""The interval at which it is checked whether the GPUs are idle."""
START_S = 60.0
"""A job that has not started after this time is cancelled, as something else is in its way."""
LATER_S = 12 * 3600.0
"""It is tried again after this time: a drained GPU or a paused queue may be in its way."""


class Attempts(msgspec.Struct, frozen=True):
    """Hold what was tried."""

    job: int = 0
    """The number of the job, while it waits or runs."""
    tried: frozenset[tuple[str, str, str]] = frozenset()
    """GPUs with the VBIOS and the driver for which a job was queued, and not ended for others."""


class SelfCalibration:
    """Queue a calibration where one is due, and cancel it where it had to leave.

    Args:
        file: Keeps what was tried.
        after: Returns the setting: minutes of rest, or "off".
        states: Returns the state of every device.
        jobs: Returns the jobs that run or are served next.
        submit: Queues a job, and returns it. Raises UserError.
        cancel: Cancels a job. Raises UserError.
        notify: Takes a text while the job waits or runs, and None afterwards.
    """

    def __init__(
        self,
        file: Path,
        after: Callable[[], Threshold],
        states: Callable[[], Sequence[DeviceState]],
        jobs: Callable[[], Sequence[Job]],
        submit: Callable[[Spec], Job],
        cancel: Callable[[int], None],
        notify: Callable[[Text | None], None],
    ) -> None:
        self._file, self._after, self._notify = file, after, notify
        self._states, self._jobs = states, jobs
        self._submit, self._cancel = submit, cancel
        self._attempts = _load(file)
        self._idle_since: float | None = None
        self._review_at = 0.0

    def review(self) -> None:
        """Begin a calibration where one is due, or cancel one that had to leave its GPUs.

        Raises:
            UserError: The job cannot be queued or cancelled now.
        """
        now = time.monotonic()
        if self._attempts.job:
            self._yield()
        elif now >= self._review_at:
            self._review_at = now + REVIEW_S
            self._begin_if_due(now)

    def job_ended(self, job: Job) -> None:
        """Forget the job once it has ended."""
        if job.id == self._attempts.job:
            self._keep(Attempts(tried=self._attempts.tried))
            self._notify(None)

    def _begin_if_due(self, now: float) -> None:
        after = self._after()
        states = [] if after == "off" else [s for s in self._states() if has_counters(s)]
        idle = all(isinstance(state.use, Idle) and not state.leased for state in states)
        untried = frozenset(_card(state.device) for state in states) - self._attempts.tried
        if after == "off" or not idle or not untried:
            self._idle_since = None
            return
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since < 60.0 * after:
            return
        self._idle_since = None
        wanted = untried - _calibrated()  # a file is read, so only now
        if not wanted or missing_of("compute"):
            return
        jobs = calibration_jobs(self._states(), -MAX_PRIORITY, when_idle=True)
        due = next(each for each in jobs if wanted.intersection(map(_card, each.gpus)))
        job = self._submit(due.spec)
        held = wanted.intersection(map(_card, due.gpus))
        self._keep(Attempts(job.id, self._attempts.tried | held))
        self._notify(
            phrase(
                "job {job} calibrates the GPUs, which were idle for long. It ends as soon as "
                "anything else needs one of them. To turn this off: {command}",
                job=job.id,
                command="gpudeck settings calibrate_after=off",
            )
        )

    def _yield(self) -> None:
        jobs = self._jobs()
        job = next((job for job in jobs if job.id == self._attempts.job and job.active), None)
        if job is None:  # it ended while no daemon ran
            self._keep(Attempts(tried=self._attempts.tried))
            self._notify(None)
        elif not _is_ending(job) and (self._after() == "off" or _is_in_the_way(job)):
            if job.status == "queued" and not job.tries:
                self._review_at = time.monotonic() + LATER_S
            cards = frozenset(_card(s.device) for s in self._states() if has_counters(s))
            self._keep(Attempts(job.id, self._attempts.tried - cards))
            self._cancel(job.id)

    def _keep(self, attempts: Attempts) -> None:
        """Store what was tried; where the disk refuses it, it holds until the daemon ends."""
        self._attempts = attempts
        try:
            paths.replace_file(self._file, msgspec.json.encode(attempts))
        except OSError:
            return


def _load(file: Path) -> Attempts:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Attempts)
    except (OSError, *MALFORMED):
        return Attempts()


def _card(gpu: Device) -> tuple[str, str, str]:
    """Return what a calibration holds for: a GPU with its VBIOS and its driver."""
    return (gpu.id, *versions_of(gpu))


def _calibrated() -> frozenset[tuple[str, str, str]]:
    return frozenset((c.device, c.vbios, c.driver) for c in calibration.load())


def _is_in_the_way(job: Job) -> bool:
    """Return whether the job had to leave its GPUs, or cannot start."""
    return job.status == "queued" and (job.tries > 0 or time.time() - job.submitted > START_S)


def _is_ending(job: Job) -> bool:
    return isinstance(job.state, Running) and job.state.stopping
