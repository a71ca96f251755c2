"""Remember which automatic reports are still to be written.

This is kept on disk, so that a long wait for an idle GPU survives any end of the process.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Self

import msgspec

from gpudeck.assistant.reports import files
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import Ended, Job
from gpudeck.scheduler.protocol.search import ENDED, Search
from gpudeck.scheduler.protocol.settings import Settings

OVERLAP_S = 300.0
"""Seconds by which searches overlap: the end of a job may be stored after later ends."""
MOST_FOUND = 1000


class ReportBacklog(msgspec.Struct, frozen=True):
    """Record which ends of jobs were handled, and which reports are still to be written."""

    looked: float
    """The time up to which ends of jobs were handled, seconds since the epoch."""
    day: float
    """The time up to which daily reports were written."""
    began: float
    """Jobs that ended before this time get no report."""
    known: tuple[int, ...] = ()
    """Jobs that ended within OVERLAP_S before `looked`, and were handled."""
    jobs: tuple[int, ...] = ()
    """Jobs still to be reported on, in this order."""

    def without_first(self) -> Self:
        """Return the backlog without its first job."""
        return msgspec.structs.replace(self, jobs=self.jobs[1:])

    def with_daily_report_until(self, until: float) -> Self:
        """Return the backlog after a daily report up to `until`."""
        return msgspec.structs.replace(self, day=until)


def load() -> ReportBacklog:
    """Return the stored backlog, or one that begins now. Raises UserError."""
    try:
        with paths.open_plain(files.folder() / files.MARK) as f:
            return msgspec.json.decode(f.read(), type=ReportBacklog)
    except (OSError, *MALFORMED):
        now = time.time()
        return ReportBacklog(now, now, now)


def save(mark: ReportBacklog) -> None:
    """Store the backlog. Raises UserError."""
    files.write_private(files.folder() / files.MARK, msgspec.json.encode(mark))


def forget() -> None:
    """Delete the stored backlog, so that the next one begins anew. Raises UserError."""
    (files.folder() / files.MARK).unlink(missing_ok=True)


def add_ended_jobs(
    deck: Client, mark: ReportBacklog, settings: Settings, now: float
) -> ReportBacklog:
    """Return the backlog with the jobs that ended since and ran for long enough."""
    since = min(mark.looked, now) - OVERLAP_S
    found = deck.find(Search(outcomes=ENDED, since=since), MOST_FOUND)[0]
    new = sorted(
        (job for job in found if job.id not in mark.known and _at(job) >= mark.began), key=_at
    )
    due = tuple(job.id for job in new if _long(job, settings))
    known = tuple(job.id for job in found if _at(job) >= now - OVERLAP_S)
    return ReportBacklog(now, mark.day, mark.began, known, (*mark.jobs, *due)[-files.KEPT :])


def is_daily_report_due(mark: ReportBacklog, settings: Settings, now: float) -> bool:
    """Return True if the time of day for a report has come since the last one."""
    if not settings.report_daily:
        return False
    hour, minute = map(int, settings.report_daily.split(":"))
    at = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    last = at if at.timestamp() <= now else at - timedelta(days=1)
    return mark.day < last.timestamp()


def _at(job: Job) -> float:
    assert isinstance(job.state, Ended)
    return job.state.at


def _long(job: Job, settings: Settings) -> bool:
    state = job.state
    assert isinstance(state, Ended)
    least = settings.report_jobs
    return least != "off" and state.started is not None and state.at - state.started >= 60 * least
