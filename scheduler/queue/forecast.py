"""Where and when a job would start, by the policy itself: the queue is played forward, each running job ending when it is expected to.

Pure. Of a job that tells no progress and has no limit nobody knows its end: a forecast that depends on it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import Forecast, Job, Running, turn
from scheduler.queue.expected_end import End
from scheduler.queue.lanes import requirements
from scheduler.queue.placement import Availability, DeviceUse
from scheduler.queue.policy import Conditions, JobsByLane, plan

MAX_PASSES, MAX_LANES = 50, 1000
"""Passes, and lanes that are looked at in all of them: the daemon answers nobody meanwhile."""


def forecast(
    job: Job,
    going: Sequence[Job],
    lanes: JobsByLane,
    devices: Sequence[Device],
    paused: bool,
    slots: int,
    around: Conditions,
) -> Forecast:
    """`job`: one that was not submitted. `going`, `lanes`: as of `plan`; jobs that come after it in their turn do not matter."""
    waiting = {
        key: ahead
        for key, lane in lanes.items()
        if (ahead := [j for j in lane if turn(j) < turn(job)])
    }
    waiting.setdefault(requirements(job.spec), []).append(job)
    running, first = {j.id: j for j in going}, ""
    for _ in range(max(1, min(MAX_PASSES, MAX_LANES // len(waiting)))):
        decided = plan(list(running.values()), waiting, devices, paused, slots, around)
        found = next((start for start in decided.starts if start.job.id == job.id), None)
        if found is not None:
            return Forecast(found.devices, around.now, first)
        first = first or decided.why(job)
        for key, count in Counter(requirements(start.job.spec) for start in decided.starts).items():
            waiting[key] = waiting[key][count:]  # of a lane the first ones start
        started = {
            start.job.id: _running(start.job, start.devices, around.now) for start in decided.starts
        }
        running |= started
        ends = {
            **around.ends,
            **{
                n: End(around.now + j.spec.timeout, latest=True)
                for n, j in started.items()
                if j.spec.timeout
            },
        }
        known = [n for n, j in running.items() if n in ends and isinstance(j.state, Running)]
        if not known:
            break
        over = min(known, key=lambda number: (ends[number].at, number))
        del running[over]
        now = max(ends[over].at, around.now)
        around = around._replace(sight=_without(around.sight, over), ends=ends, now=now)
    return Forecast((), None, first)


def _running(job: Job, devices: tuple[str, ...], now: float) -> Job:
    return msgspec.structs.replace(job, state=Running("", devices, now, 0, 0, ""))


def _without(sight: Availability, job_id: int) -> Availability:
    """The devices once a job has given back what it allocated."""
    return sight._replace(
        seen={device: _freed(seen, job_id) for device, seen in sight.seen.items()}
    )


def _freed(seen: DeviceUse, job_id: int) -> DeviceUse:
    used: Mapping[int, float] = {
        number: size for number, size in seen.used.items() if number != job_id
    }
    return seen._replace(
        used=used, free=None if seen.free is None else seen.free + seen.used.get(job_id, 0.0)
    )
