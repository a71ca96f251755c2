"""Which reports are still to be written by themselves: kept on disk, so that a long wait for idle devices survives any end."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Self

import msgspec

from assistant.reports import files
from scheduler.client import Client
from scheduler.protocol import paths
from scheduler.protocol.errors import MALFORMED
from scheduler.protocol.jobs import Cancelled, Done, Ended, Failed, Job, Lost
from scheduler.protocol.search import ENDED, Search
from scheduler.protocol.settings import Settings

OVERLAP_S = 300.0
"""So far back it looks again: an end may be stored later than the ends of others that came after it."""
MOST_FOUND = 1000


class ReportBacklog(msgspec.Struct, frozen=True):
    """How far it has come."""

    looked: float
    """Up to when the ends of jobs have been looked at, seconds since the epoch."""
    day: float
    """Up to when daily reports tell."""
    began: float
    """Jobs that ended before are not reported on."""
    known: tuple[int, ...] = ()
    """Jobs that ended in the last OVERLAP_S before, and were looked at."""
    jobs: tuple[int, ...] = ()
    """Those to be reported on, the first to be written first."""

    def without_first(self) -> Self:
        return msgspec.structs.replace(self, jobs=self.jobs[1:])

    def with_daily_report_until(self, until: float) -> Self:
        """A daily report tells until then."""
        return msgspec.structs.replace(self, day=until)


def load() -> ReportBacklog:
    """Where it stopped; where there is nothing, or nothing that can be read: now. Raises UserError."""
    try:
        with paths.open_plain(files.folder() / files.MARK) as f:
            return msgspec.json.decode(f.read(), type=ReportBacklog)
    except (OSError, *MALFORMED):
        now = time.time()
        return ReportBacklog(now, now, now)


def save(mark: ReportBacklog) -> None:
    """Raises UserError."""
    files.write_private(files.folder() / files.MARK, msgspec.json.encode(mark))


def forget() -> None:
    """Begin anew the next time. Raises UserError."""
    (files.folder() / files.MARK).unlink(missing_ok=True)


def add_ended_jobs(
    deck: Client, mark: ReportBacklog, settings: Settings, now: float
) -> ReportBacklog:
    """With the jobs that ended since, as far as they ran for long enough."""
    since = min(mark.looked, now) - OVERLAP_S
    found = deck.find(Search(outcomes=ENDED, since=since), MOST_FOUND)[0]
    new = sorted(
        (job for job in found if job.id not in mark.known and _at(job) >= mark.began), key=_at
    )
    due = tuple(job.id for job in new if _long(job, settings))
    known = tuple(job.id for job in found if _at(job) >= now - OVERLAP_S)
    return ReportBacklog(now, mark.day, mark.began, known, (*mark.jobs, *due)[-files.KEPT :])


def is_daily_report_due(mark: ReportBacklog, settings: Settings, now: float) -> bool:
    """Whether the time of day has come since the last report."""
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
    assert isinstance(state, Done | Failed | Cancelled | Lost)
    least = settings.report_jobs
    return least != "off" and state.started is not None and state.at - state.started >= 60 * least
