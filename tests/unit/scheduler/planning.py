"""The policy asked about a list of jobs, as tests have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.protocol.devices import Device
from scheduler.protocol.jobs import Job, Queued
from scheduler.queue.lanes import Lanes, Requirements
from scheduler.queue.policy import Conditions, Plan, Start, plan


class Decided(NamedTuple):
    starts: list[Start]
    reasons: dict[int, str]
    """For each job that waits on: why."""


def laned(active: Sequence[Job]) -> tuple[list[Job], dict[Requirements, list[Job]]]:
    """Jobs that run, and those that wait in their lanes, as the daemon has them."""
    jobs, line = {job.id: job for job in active}, Lanes()
    for job in active:
        line.put(job)
    lanes = {need: [jobs[number] for number in lane] for need, lane in line.lanes().items()}
    return [job for job in active if job.active and not isinstance(job.state, Queued)], lanes


def decide(
    active: Sequence[Job],
    devices: Sequence[Device],
    paused: bool,
    slots: int,
    around: Conditions = Conditions(),  # noqa: B008
) -> Decided:
    """What starts of `active`, and why the others wait."""
    going, lanes = laned(active)
    decided: Plan = plan(going, lanes, devices, paused, slots, around)
    started = {start.job.id for start in decided.starts}
    waiting = [job for lane in lanes.values() for job in lane if job.id not in started]
    return Decided(decided.starts, {job.id: decided.why(job) for job in waiting})
