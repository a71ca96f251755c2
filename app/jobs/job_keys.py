"""What the jobs table sorts and folds a job by. Free of Qt; small, as many jobs are listed."""

from __future__ import annotations

import re
from sys import intern
from typing import NamedTuple

import msgspec

from gpudeck.app.format.job_rows import time_left
from gpudeck.app.language.texts import tr_noop
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import Job, Queued, Running, suspended_seconds
from gpudeck.scheduler.protocol.search import devices, outcome

RUNNING, WAITING, SUCCEEDED, FAILED, CANCELLED = KINDS = (
    tr_noop("Running"),
    tr_noop("Waiting"),
    tr_noop("Succeeded"),
    tr_noop("Failed"),
    tr_noop("Cancelled"),
)
_KIND_OF = {
    "starting": RUNNING,
    "running": RUNNING,
    "queued": WAITING,
    "done": SUCCEEDED,
    "failed": FAILED,
    "lost": FAILED,
    "rejected": FAILED,
    "cancelled": CANCELLED,
}
_INDEX = re.compile(r"\[\d+\]$")
NEVER = float("inf")


class FoldKey(NamedTuple):
    """Name an array or a group, whose jobs are one row while it is folded."""

    kind: str
    """array or group."""
    name: str
    submitted: float = 0.0
    """When the array was submitted, in seconds since the epoch."""


class JobKeys(NamedTuple):
    """Hold the kind, the fold and a value to sort by for each column of the table."""

    kind: str
    """One of KINDS."""
    fold: FoldKey | None
    values: tuple[float | str, ...]


class _Headline(msgspec.Struct):
    """Decode the speed of a Result."""

    tflops: float = 0.0


_RESULT = msgspec.json.Decoder(_Headline).decode


def keys_of(job: Job, now: float) -> JobKeys:
    """Return the keys of a job.

    Args:
        now: Seconds since the epoch, for jobs that run.
    """
    spec, state = job.spec, job.state
    kind = _KIND_OF[outcome(state)]
    began, end = job.started, job.ended
    until = now if end is None else end
    progress, left = None, None
    if isinstance(state, Running) and (progress := state.progress) is not None:
        goes_on = state.suspension is None
        left = time_left(progress, state.worked_from, now) if goes_on else None
    return JobKeys(
        kind,
        fold_of(job),
        (
            job.id,
            intern(spec.name.casefold()),
            KINDS.index(kind),
            intern(spec.where or " ".join(devices(state))),
            spec.gpus * 2.0**60 + spec.memory,
            progress.done / progress.total if progress else -1.0,
            -1.0 if began is None else until - began - suspended_seconds(job, until),
            NEVER if left is None else now + left,
            _tflops(job),
        ),
    )


def fold_of(job: Job) -> FoldKey | None:
    """Return the array of a job, or else its group."""
    if job.spec.index is not None:
        return FoldKey("array", intern(_INDEX.sub("", job.spec.name)), job.submitted)
    return FoldKey("group", intern(job.spec.group)) if job.spec.group else None


def _tflops(job: Job) -> float:
    if isinstance(job.state, Queued) or (result := job.result) is None:
        return -1.0
    try:
        return _RESULT(result).tflops
    except MALFORMED:
        return -1.0
