"""Where and when a job would start, by the policy itself.

The queue is played forward, and each running job ends when it is expected to. The end of a job that
reports no progress and has no time limit is unknown, and so is a forecast that depends on it. Jobs
that do not start before a time of their user's choice join the queue at that time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain, islice
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from gpudeck.scheduler import attempts
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import (
    Forecast,
    Job,
    JobSuspension,
    Running,
    suspension_of,
    turn,
)
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.turns import Work
from gpudeck.scheduler.protocol.wait_reasons import End, NotBefore, WaitReason
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.lanes import Requirements, requirements
from gpudeck.scheduler.queue.placement import Availability, DeviceUse
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan, return_time
from gpudeck.scheduler.queue.preemption import turn_end
from gpudeck.scheduler.queue.transitions import with_state

WaitingJobs = Mapping[Requirements, Sequence[Job]]
"""For each lane its jobs that wait and may start, the first to be served first."""
MAX_PASSES, MAX_LANES = 50, 1000
"""Passes, and lanes in all of them."""
MOST_SCHEDULED = 200
"""The most waiting jobs in a schedule: those that are served first."""


class Pass(NamedTuple):
    """Describe one pass of a queue that is played forward."""

    plan: Plan
    now: float
    """Seconds since the epoch."""
    ends: Mapping[int, End]
    """When the jobs that run are expected to end, with those that the plan starts."""


def forecast(
    job: Job,
    running: Sequence[Job],
    lanes: WaitingJobs,
    devices: Sequence[Device],
    conditions: Conditions,
    before: Sequence[Job] = (),
) -> Work[Forecast]:
    """Return where and when a job would start that is in none of the lanes.

    Jobs that are served after it do not matter, but for those of other users, whose shares change.
    Others have a turn after each pass; what changes meanwhile is not considered.

    Args:
        lanes: The waiting jobs, of which those of a lane are in order.
        before: Jobs like it that are in none of the lanes, and are served right before it.
    """
    shared = bool(conditions.hours)  # users who share the queue overtake each other
    waiting = {
        key: ahead
        for key, lane in lanes.items()
        if (ahead := list(lane if shared else lane[: bisect_left(lane, turn(job), key=turn)]))
    }
    lane = waiting.setdefault(requirements(job.spec), [])
    place = bisect_left(lane, turn(job), key=turn)
    lane[place:] = (*before, job, *(j for j in lane[place:] if j.id != job.id))
    yield
    first, now = None, conditions.now
    for step in _play(running, waiting, devices, conditions):
        for start in step.plan.starts:
            if start.job.id == job.id:
                return make_forecast(start.devices, step.now, first, now)
        if first is None:
            held_back = job.spec.begin > now and not job.spec.hold
            first = NotBefore(job.spec.begin) if held_back else step.plan.reason(job)
        yield
    return make_forecast((), None, first, now)


def make_schedule(
    running: Sequence[Job],
    lanes: WaitingJobs,
    devices: Sequence[Device],
    conditions: Conditions,
    changed: Mapping[int, Job] = MappingProxyType({}),
) -> Work[tuple[Landing, ...]]:
    """Return where and when the jobs start that are served next, in order of their start.

    Others have a turn after each pass; what changes meanwhile is not considered.

    Args:
        lanes: The waiting jobs, of which those of a lane are in order.
        changed: Jobs that are taken to wait in this form, by number.
    """
    waiting = served_next(lanes, changed)
    yield
    landings: list[Landing] = []
    for step in _play(running, waiting, devices, conditions):
        for job, held in step.plan.starts:
            end = step.ends.get(job.id)
            landings.append(Landing(job.id, held, step.now, None if end is None else end.at))
        yield
    return tuple(landings)


def served_next(
    lanes: WaitingJobs, changed: Mapping[int, Job] = MappingProxyType({})
) -> dict[Requirements, list[Job]]:
    """Return the MOST_SCHEDULED jobs that are served first, by lane; see `make_schedule`."""
    heads = (
        islice((job for job in lane if job.id not in changed), MOST_SCHEDULED)
        for lane in lanes.values()
    )
    found = [*chain(*heads)]
    if changed:
        found += [changed[job.id] for job in chain(*lanes.values()) if job.id in changed]
    served = nsmallest(MOST_SCHEDULED, found, key=turn)
    waiting: dict[Requirements, list[Job]] = {}
    for job in served:
        waiting.setdefault(requirements(job.spec), []).append(job)
    return waiting


def _play(
    running: Sequence[Job],
    waiting: dict[Requirements, list[Job]],
    devices: Sequence[Device],
    conditions: Conditions,
) -> Iterator[Pass]:
    """Play the queue forward: yield what starts now, and what starts each time when jobs end."""
    active, now = {j.id: j for j in running}, conditions.now
    off = {n: j for n, j in active.items() if suspension_of(j) is not None and return_time(j)}
    left = {  # the ends of those that come back, in seconds after their return
        n: _moved(conditions.ends[n], -max(return_time(j), now))
        for n, j in off.items()
        if n in conditions.ends
    }
    on = {n: end for n, end in conditions.ends.items() if n not in off}
    conditions = conditions._replace(ends=on)
    begins = sorted({j.spec.begin for lane in waiting.values() for j in lane} - {0.0})
    for _ in range(max(1, min(MAX_PASSES, MAX_LANES // max(len(waiting), 1)))):
        # as if those that are suspended came back as soon as they may
        due = {
            n: _moved(end, max(return_time(active[n]), conditions.now)) for n, end in left.items()
        }
        known_ends = conditions._replace(ends={**conditions.ends, **due})
        begun = waiting
        if begins and begins[-1] > conditions.now:
            begun = _begun(waiting, conditions.now)
        plan = make_plan(active.values(), begun, devices, known_ends)
        ends = dict(conditions.ends)
        for back in plan.returns:
            state = msgspec.structs.replace(
                attempts.running(back), suspension=None, returned=conditions.now
            )
            active[back.id] = with_state(back, state)
            if back.id in left:
                ends[back.id] = _moved(left.pop(back.id), conditions.now)
        for started, held in plan.starts:
            active[started.id] = with_state(started, Running("", held, conditions.now, 0, 0, ""))
            if started.spec.timeout:
                ends[started.id] = End(conditions.now + started.spec.timeout, latest=True)
        yield Pass(plan, conditions.now, ends)
        gone = {start.job.id for start in plan.starts}
        for key in {requirements(start.job.spec) for start in plan.starts}:
            waiting[key] = [j for j in waiting[key] if j.id not in gone]
        if plan.victims:
            for number in plan.victims:
                active[number] = _moved_off(active[number], conditions.now)
                if number in ends:
                    left[number] = _moved(ends.pop(number), -conditions.now)
                availability = _without(conditions.availability, number)
                conditions = conditions._replace(availability=availability)
            cost = max(offer.cost for offer in plan.room.offers.values())
            conditions = conditions._replace(hours=plan.hours, ends=ends, now=conditions.now + cost)
            continue
        known = [n for n, j in active.items() if n in ends and isinstance(j.state, Running)]
        over = min(known, key=lambda number: (ends[number].at, number), default=None)
        bookings = (booking.end for booking in conditions.availability.bookings)
        backs = (return_time(j) for j in active.values())
        later = begins[bisect_right(begins, conditions.now) :][:1]
        changes = (*later, *bookings, *backs, *_turn_ends(active.values(), conditions.turns))
        begin = min((at for at in changes if at > conditions.now), default=math.inf)
        if over is None or begin < ends[over].at:
            if begin == math.inf:
                return
            conditions = conditions._replace(hours=plan.hours, ends=ends, now=begin)
            continue
        del active[over]
        conditions = conditions._replace(
            hours=plan.hours,
            availability=_without(conditions.availability, over),
            ends=ends,
            now=max(ends[over].at, conditions.now),
        )


def _turn_ends(active: Iterable[Job], turns: float) -> Iterator[float]:
    """Yield when running jobs have had their GPUs for a turn, where jobs take turns."""
    if turns < math.inf:
        for job in active:
            if job.spec.preemptible and isinstance(job.state, Running):
                yield turn_end(job.state, turns)


def _moved(end: End, seconds: float) -> End:
    return msgspec.structs.replace(end, at=end.at + seconds)


def _moved_off(job: Job, now: float) -> Job:
    """Return a running job as it is suspended for another one."""
    off = JobSuspension("suspended", now, now)
    return with_state(
        job, msgspec.structs.replace(attempts.running(job), suspension=off, returned=now)
    )


def _begun(lanes: WaitingJobs, now: float) -> dict[Requirements, list[Job]]:
    """Return the jobs that may start by now."""
    return {key: [job for job in lane if job.spec.begin <= now] for key, lane in lanes.items()}


def make_forecast(
    devices: tuple[str, ...], at: float | None, wait: WaitReason | None, now: float
) -> Forecast:
    """Return a forecast with both forms of its reason."""
    return Forecast(devices, at, render(wait, now) if wait is not None else "", wait)


def _without(availability: Availability, job_id: int) -> Availability:
    """Return the devices as they are once a job has freed what it allocated."""
    uses = {device: _freed(use, job_id) for device, use in availability.uses.items()}
    return availability._replace(uses=uses)


def _freed(use: DeviceUse, job_id: int) -> DeviceUse:
    used = {number: size for number, size in use.used.items() if number != job_id}
    free = None if use.free is None else use.free + use.used.get(job_id, 0.0)
    return use._replace(used=used, free=free)
