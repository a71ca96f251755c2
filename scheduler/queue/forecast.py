"""Where and when a job would start, by the policy itself: the queue is played forward, each running job ending when it is expected to.

Pure. Of a job that tells no progress and has no limit nobody knows its end: a forecast that depends on it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from scheduler.devices.model import Device
from scheduler.jobs import Forecast, Job, Queued, Running, turn
from scheduler.queue.expected import End
from scheduler.queue.placement import Seen, Sight
from scheduler.queue.policy import Around, plan

MAX_PASSES = 50
"""The daemon answers nobody meanwhile."""


def forecast(job: Job, active: Sequence[Job], devices: Sequence[Device], paused: bool, slots: int, around: Around) -> Forecast:
    """`job`: one that was not submitted. `active`: as of `plan`; those that come after it in their turn do not matter."""
    jobs = [j for j in active if not isinstance(j.state, Queued) or turn(j) < turn(job)]
    first = ""
    for _ in range(MAX_PASSES):
        decided = plan([*jobs, job], devices, paused, slots, around)
        found = next((start for start in decided.starts if start.job.id == job.id), None)
        if found is not None:
            return Forecast(found.devices, around.now, first)
        first = first or decided.reasons[job.id]
        started = {start.job.id: _running(start.job, start.devices, around.now) for start in decided.starts}
        jobs = [started.get(j.id, j) for j in jobs]
        ends = {**around.ends, **{n: End(around.now + j.spec.timeout, latest=True) for n, j in started.items() if j.spec.timeout}}
        going = [j.id for j in jobs if j.id in ends and isinstance(j.state, Running)]
        if not going:
            break
        over = min(going, key=lambda number: (ends[number].at, number))
        jobs = [j for j in jobs if j.id != over]
        now = max(ends[over].at, around.now)
        around = around._replace(sight=_without(around.sight, over), ends=ends, now=now)
    return Forecast((), None, first)


def _running(job: Job, devices: tuple[str, ...], now: float) -> Job:
    return msgspec.structs.replace(job, state=Running("", devices, now, 0, 0, ""))


def _without(sight: Sight, job_id: int) -> Sight:
    """The devices once a job has given back what it allocated."""
    return sight._replace(seen={device: _freed(seen, job_id) for device, seen in sight.seen.items()})


def _freed(seen: Seen, job_id: int) -> Seen:
    used: Mapping[int, float] = {number: size for number, size in seen.used.items() if number != job_id}
    return seen._replace(used=used, free=None if seen.free is None else seen.free + seen.used.get(job_id, 0.0))
