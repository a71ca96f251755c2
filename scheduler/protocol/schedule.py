"""When jobs are expected to start and to end, as far as that is known."""

from __future__ import annotations

import msgspec

from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.wait_reasons import End


class Landing(msgspec.Struct, frozen=True):
    """Describe where and when a waiting job is expected to start."""

    job: int
    devices: tuple[str, ...]
    """Empty for a job that needs no device, or runs in a cluster."""
    at: float
    """Seconds since the epoch."""
    until: float | None
    """When it ends at the latest; None for a job without a time limit."""


class Moved(msgspec.Struct, frozen=True):
    """Name the place that a waiting job would be moved to."""

    job: int
    beside: int
    after: bool = False
    """Right after the other job, not right before it."""


def expected_end(job: Job, now: float) -> End | None:
    """Return when a job is expected to end, by its pace so far or by its time limit.

    None for a job that has no time limit and reported no progress, and for one that stays suspended
    until somebody resumes it.
    """
    state = job.state
    if not isinstance(state, Running):
        return None
    if (suspension := state.suspension) is None:
        return _end_of_work(state, job.spec.timeout, now)
    if suspension.resume_at is None:
        return None
    end = _end_of_work(state, job.spec.timeout, suspension.since)
    rest = max(suspension.resume_at, now) - suspension.since
    return None if end is None else End(end.at + rest, end.latest)


def _end_of_work(state: Running, limit: float, now: float) -> End | None:
    """Return when a job would end that is on its GPUs."""
    began, progress = state.worked_from, state.progress
    if progress is not None and progress.done > 0 and progress.time > began:
        pace = (progress.time - began) / progress.done
        at = max(progress.time + (progress.total - progress.done) * pace, now)
        return End(min(at, max(began + limit, now)) if limit else at)
    return End(max(began + limit, now), latest=True) if limit else None
