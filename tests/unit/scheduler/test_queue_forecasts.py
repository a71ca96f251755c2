"""Drawn queues with priorities and preemptible jobs: what is foretold is what happens.

Each queue is played by a clock of the test's own, step by step: jobs end at their time limits, jobs
that are to leave their GPUs need their time for it, and suspended jobs come back in their turn. All
that a forecast, the schedule and the wait reasons said in the beginning is compared with that.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest

from gpudeck.scheduler.attempts import running as state_of
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension, Queued, Running, Spec, turn
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from gpudeck.scheduler.queue.preemption import PAUSE_S
from tests.unit.scheduler.planning import foretold, laned, scheduled

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(4)]
NOW = 100_000.0
HOUR = 3600.0
STEPS = 200


class Begun(NamedTuple):
    """Say where and when a job started."""

    at: float
    devices: tuple[str, ...]


class World:
    """Play a queue by what the policy decides."""

    def __init__(self, jobs: list[Job]) -> None:
        self.now = NOW
        self.waiting = {job.id: job for job in jobs if isinstance(job.state, Queued)}
        self.running = {job.id: job for job in jobs if isinstance(job.state, Running)}
        self.left = {n: self._end(job) - NOW for n, job in self.running.items()}
        """Seconds of work of each job that runs or is suspended."""
        self.leaving: dict[int, float] = {}
        """When each job that leaves its GPUs is off them."""
        self.moves: dict[int, list[float]] = {}
        self.begun: dict[int, Begun] = {}
        self.crossed = False
        """Whether a job ended while another one left its GPUs, which forecasts do not foresee."""

    @staticmethod
    def _end(job: Job) -> float:
        return state_of(job).at + job.spec.timeout

    def conditions(self) -> Conditions:
        on = {n: w.End(self.now + left, latest=True) for n, left in self.left.items()}
        return Conditions(ends=on, now=self.now)

    def plan(self) -> Plan:
        active = [*self.running.values(), *self.waiting.values()]
        running, lanes = laned(active)
        return make_plan(running, lanes, GPUS, self.conditions())

    def step(self) -> bool:
        """Carry out a plan, and let time pass until something happens; return False at the end."""
        plan = self.plan()
        for back in plan.returns:
            self._set(back.id, suspension=None)
        for job, devices in plan.starts:
            del self.waiting[job.id]
            self.begun[job.id] = Begun(self.now, devices)
            state = Running("nonce", devices, self.now, 1, 1, "boot")
            self.running[job.id] = msgspec.structs.replace(job, state=state)
            self.left[job.id] = job.spec.timeout
        for victim in plan.victims:
            cost = max(offer.cost for offer in plan.room.offers.values())
            self.moves.setdefault(victim, []).append(self.now)
            self.leaving[victim] = self.now + cost
            self._set(victim, suspension=JobSuspension("suspending", self.now))
        ends = [self.now + self.left[n] for n in self._computing()]
        moments = [*ends, *self.leaving.values()]
        if not moments:
            return False
        self._pass_time(min(moments))
        return True

    def _computing(self) -> list[int]:
        return [n for n, job in self.running.items() if state_of(job).suspension is None]

    def _pass_time(self, until: float) -> None:
        for number in self._computing():
            self.left[number] -= until - self.now
        self.now = until
        for number in [n for n, left in self.left.items() if left <= 1e-6]:
            self.crossed |= bool(self.leaving)
            del self.running[number], self.left[number]
        for number in [n for n, at in self.leaving.items() if at <= self.now]:
            del self.leaving[number]
            off = JobSuspension("suspended", self.now, self.now)
            self._set(number, suspension=off, returned=self.now)

    def _set(self, number: int, **changes: object) -> None:
        job = self.running[number]
        state = msgspec.structs.replace(state_of(job), **changes)
        self.running[number] = msgspec.structs.replace(job, state=state)


def draw_queue(drawn: random.Random) -> list[Job]:
    """Return running jobs that fill some GPUs, and waiting jobs."""

    def spec(number: int, gpus: int) -> Spec:
        return Spec(
            ("train",), f"job{number}", "/", kind="nvidia", gpus=gpus,
            priority=drawn.randint(0, 2), preemptible=drawn.random() < 0.5,
            timeout=HOUR * drawn.randint(1, 40) + drawn.randint(0, 3599),
        )  # fmt: skip

    jobs, free = list[Job](), [gpu.id for gpu in GPUS]
    for number in range(1, drawn.randint(2, 5)):
        if free:
            gpus = drawn.randint(1, min(2, len(free)))
            held, free = tuple(free[:gpus]), free[gpus:]
            since = NOW - drawn.uniform(700.0, 3000.0)
            state = Running("nonce", held, since, 1, 1, "boot")
            jobs.append(Job(number, spec(number, gpus), 0.0, state))
    first = len(jobs) + 1
    for number in range(first, first + drawn.randint(1, 8)):
        jobs.append(Job(number, spec(number, drawn.randint(1, 4)), 0.0, Queued()))
    return jobs


def check_reasons(world: World, plan: Plan) -> None:
    """Assert that each reason says what is so."""
    started = {job.id for job, _ in plan.starts}
    holders = {
        device: n
        for n, job in (*world.running.items(), *((j.id, j) for j, _ in plan.starts))
        for device in (
            next((d for j, d in plan.starts if j.id == n), ())
            if n in started
            else state_of(job).devices
        )
    }
    for job in world.waiting.values():
        if job.id in started:
            continue
        reason = plan.reason(job)
        if isinstance(reason, w.Preempts):
            assert set(reason.jobs) <= plan.victims | set(world.leaving)
            for number in reason.jobs:
                spec = world.running[number].spec
                assert spec.preemptible and spec.priority < job.spec.priority
        if isinstance(reason, w.NoRoom):
            labels = {f"GPU {gpu.index}": gpu.id for gpu in GPUS}
            for blocker in reason.devices:
                if isinstance(blocker, w.HeldBy):
                    assert holders[labels[blocker.device]] == blocker.job


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("queues", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_what_is_foretold_of_drawn_queues_is_what_happens(queues: int) -> None:
    drawn, preempted, compared = random.Random(queues), 0, 0
    for number in range(queues):
        jobs = draw_queue(drawn)
        world = World(jobs)
        running, lanes = laned(jobs)
        conditions = world.conditions()
        landings = scheduled(running, lanes, GPUS, conditions)
        last = max(world.waiting.values(), key=turn)
        without = laned([job for job in jobs if job.id != last.id])[1]
        first = foretold(last, running, without, GPUS, conditions)
        check_reasons(world, world.plan())
        for _ in range(STEPS):
            if not world.step():
                break
        assert not world.waiting and not world.running, f"{number}: every job runs and ends"
        for moves in world.moves.values():
            gaps = (after - before for before, after in pairwise(moves))
            assert all(gap >= PAUSE_S for gap in gaps), f"{number}: moved twice within ten minutes"
        preempted += bool(world.moves)
        if world.crossed:
            continue
        compared += 1
        seen = {landing.job: (landing.at, landing.devices) for landing in landings}
        assert seen.keys() == world.begun.keys(), number
        for job, (at, devices) in seen.items():
            assert at == pytest.approx(world.begun[job].at, abs=0.01), f"{number}: job {job}"
            assert devices == world.begun[job].devices, f"{number}: job {job}"
        assert first.at == pytest.approx(world.begun[last.id].at, abs=0.01), number
    assert preempted > queues / 10 and compared > queues / 2
