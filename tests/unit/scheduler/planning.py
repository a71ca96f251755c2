"""Ask the policy about a list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Forecast, Job, Queued
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.forecast import forecast, make_schedule
from gpudeck.scheduler.queue.lanes import Lanes, Requirements
from gpudeck.scheduler.queue.policy import Conditions, Start, make_plan


class Decided(NamedTuple):
    """A plan, with the reason of each job that waits."""

    starts: list[Start]
    reasons: dict[int, str]


def laned(active: Sequence[Job]) -> tuple[list[Job], dict[Requirements, list[Job]]]:
    """Return the jobs that run, and those that wait in their lanes."""
    jobs, waiting = {job.id: job for job in active}, Lanes()
    for job in active:
        waiting.update(job)
    lanes = {key: [jobs[n] for *_, n in lane] for key, lane in waiting.by_requirements().items()}
    return [job for job in active if job.active and not isinstance(job.state, Queued)], lanes


def decide(
    active: Sequence[Job],
    devices: Sequence[Device],
    paused: bool,
    processors: int,
    conditions: Conditions = Conditions(),  # noqa: B008
) -> Decided:
    """Return which of the jobs start, and why the others wait."""
    running, lanes = laned(active)
    conditions = conditions._replace(paused=paused, processors=processors)
    plan = make_plan(running, lanes, devices, conditions)
    started = {start.job.id for start in plan.starts}
    waiting = [job for lane in lanes.values() for job in lane if job.id not in started]
    reasons = {job.id: render(plan.reason(job), conditions.now) for job in waiting}
    return Decided(plan.starts, reasons)


def foretold(*args: Any) -> Forecast:
    """Return where and when a job would start, worked out in one go; see `forecast`."""
    return finish(forecast(*args))


def scheduled(*args: Any) -> tuple[Landing, ...]:
    """Return when jobs are expected to start, worked out in one go; see `make_schedule`."""
    return finish(make_schedule(*args))
