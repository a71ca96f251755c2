"""Estimate how long jobs take from their progress and past runs, and find jobs that are stuck."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Done, Job, Running
from gpudeck.scheduler.protocol.search import Search

_PAST = 30
"""The most earlier runs that an estimate rests on."""
_ENOUGH = 3
"""Runs from which on a spread is given."""
QUIET_S = 600.0
"""A job without output and progress for this long, whose GPUs do nothing, seems stuck."""
IDLE_UTIL = 5.0
"""Percent of utilisation up to which a GPU does nothing."""


class Estimate(NamedTuple):
    """Describe how long something takes, in seconds, and what that rests on."""

    seconds: float
    low: float
    high: float
    runs: int = 0
    """Earlier runs that it rests on; 0: the job's own progress."""


def past_durations(daemon: Client, job: Job) -> list[float]:
    """Return the durations of earlier successful runs of a job with this name, newest first."""
    found, _ = daemon.find(Search(text=job.spec.name, outcomes=("done",)), 4 * _PAST)
    same = (other for other in found if other.spec.name == job.spec.name and other.id != job.id)
    ended = [other.state for other in same if isinstance(other.state, Done)]
    return [state.at - state.started - state.suspended for state in ended][:_PAST]


def spread(durations: Sequence[float]) -> Estimate | None:
    """Return the median with the 10th and 90th percentiles; None without a run."""
    if not durations:
        return None
    if len(durations) < _ENOUGH:
        middle = statistics.median(durations)
        return Estimate(middle, min(durations), max(durations), len(durations))
    cuts = statistics.quantiles(durations, n=10, method="inclusive")
    return Estimate(statistics.median(durations), cuts[0], cuts[-1], len(durations))


def time_left(daemon: Client, job: Job, now: float) -> Estimate | None:
    """Return how long a job still runs, or would run if it waits; None if nothing tells."""
    elapsed = now - job.state.worked_from if isinstance(job.state, Running) else 0.0
    progress = job.state.progress if isinstance(job.state, Running) else None
    if progress is not None and 0 < progress.done < progress.total:
        # The pace until the last report; what was reported may be the end of a step long ago.
        pace = (progress.time or now) - (now - elapsed)
        left = max(pace, 0.0) * (progress.total - progress.done) / progress.done
        left = max(left - (now - (progress.time or now)), 0.0)
        return Estimate(left, 0.8 * left, 1.25 * left)
    past = spread(past_durations(daemon, job))
    if past is None:
        return None
    rest = [max(value - elapsed, 0.0) for value in (past.seconds, past.low, past.high)]
    return Estimate(rest[0], rest[1], rest[2], past.runs)


class Liveness(NamedTuple):
    """Describe what shows that a running job goes on: seconds without output and progress."""

    stuck: bool
    output: float | None
    """Seconds since the last output; None if there was none."""
    progress: float | None
    """Seconds since the last progress; None if it reports none."""
    util: float | None
    """The mean utilisation of its devices in that time, in percent."""
    read: float
    """The seconds that this is about: the last ten minutes, or as long as it runs."""


def liveness(daemon: Client, job: Job, now: float) -> Liveness:
    """Return whether a running job seems stuck, with the evidence."""
    assert isinstance(job.state, Running)
    began = job.state.at
    try:
        output = now - (paths.job_folder(job.id) / "log").stat().st_mtime
    except OSError:
        output = None
    reported = job.state.progress
    progress = now - reported.time if reported is not None and reported.time else None
    used: list[float] = []
    for device in job.state.devices:
        history = daemon.history(device, ("util",), max(began, now - QUIET_S), now, 60)
        used += [value for value in history.columns.get("util", ()) if value is not None]
    util = statistics.fmean(used) if used else None
    silent = [now - began, *(value for value in (output, progress) if value is not None)]
    stuck = min(silent) > QUIET_S and (util is None or util <= IDLE_UTIL)
    return Liveness(stuck, output, progress, util, min(now - began, QUIET_S))
