"""Drawn queues with priorities and preemptible jobs: what is foretold is what happens.

Each queue is played by a clock of the test's own, step by step: jobs end at their time limits, jobs
that are to leave their GPUs need their time for it, and suspended jobs come back in their turn. All
that a forecast, the schedule and the wait reasons said in the beginning is compared with that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
import pytest

from gpudeck.scheduler.attempts import running as state_of
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension, Queued, Running, Spec, turn
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from gpudeck.scheduler.queue.preemption import PAUSE_S, turn_end
from tests.unit.scheduler.planning import foretold, laned, scheduled

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(4)]
NOW = 100_000.0
HOUR = 3600.0
STEPS = 3000
COST = 100.0
"""Seconds that the move of one job takes at most."""


class Begun(NamedTuple):
    """Say where and when a job started."""

    at: float
    devices: tuple[str, ...]


class World:
    """Play a queue by what the policy decides."""

    def __init__(self, jobs: list[Job], turns: float = math.inf) -> None:
        self.now, self.turns = NOW, turns
        self.waiting = {job.id: job for job in jobs if isinstance(job.state, Queued)}
        self.running = {job.id: job for job in jobs if isinstance(job.state, Running)}
        self.left = {n: self._end(job) - NOW for n, job in self.running.items()}
        """Seconds of work of each job that runs or is suspended."""
        self.leaving: dict[int, float] = {}
        """When each job that leaves its GPUs is off them."""
        self.moves: dict[int, list[float]] = {}
        self.begun: dict[int, Begun] = {}
        self.crossed = False
        """Whether a job or a turn ended while another job left its GPUs, which forecasts do not
        foresee."""

    @staticmethod
    def _end(job: Job) -> float:
        return state_of(job).at + job.spec.timeout

    def conditions(self) -> Conditions:
        on = {n: w.End(self.now + left, latest=True) for n, left in self.left.items()}
        return Conditions(ends=on, now=self.now, turns=self.turns)

    def plan(self, gpus: Sequence[Device] = GPUS) -> Plan:
        active = [*self.running.values(), *self.waiting.values()]
        running, lanes = laned(active)
        return make_plan(running, lanes, gpus, self.conditions())

    def step(self, gpus: Sequence[Device] = GPUS) -> bool:
        """Carry out a plan, and let time pass until something happens; return False at the end."""
        plan = self.plan(gpus)
        for back in plan.returns:
            self._set(back.id, suspension=None, returned=self.now)
        for job, devices in plan.starts:
            del self.waiting[job.id]
            self.begun[job.id] = Begun(self.now, devices)
            state = Running("nonce", devices, self.now, 1, 1, "boot")
            self.running[job.id] = msgspec.structs.replace(job, state=state)
            self.left[job.id] = job.spec.timeout
        for victim in plan.victims:
            assert state_of(self.running[victim]).suspension is None, "it computes"
            cost = max(offer.cost for offer in plan.room.offers.values())
            self.moves.setdefault(victim, []).append(self.now)
            self.leaving[victim] = self.now + cost
            self._set(victim, suspension=JobSuspension("suspending", self.now))
        ends = [self.now + self.left[n] for n in self.computing()]
        over = (turn_end(state_of(self.running[n]), self.turns) for n in self.computing())
        turns = [at for at in over if self.now < at < math.inf]
        moments = [*ends, *self.leaving.values(), *turns]
        if not moments:
            return False
        self.crossed |= bool(self.leaving) and min(moments) in turns
        self._pass_time(min(moments))
        return True

    def computing(self) -> list[int]:
        return [n for n, job in self.running.items() if state_of(job).suspension is None]

    def _pass_time(self, until: float) -> None:
        for number in self.computing():
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


def draw_turns(drawn: random.Random) -> list[Job]:
    """Return preemptible jobs for one GPU each: two run, and others wait, mostly of the same
    priority."""

    def spec(number: int) -> Spec:
        return Spec(
            ("train",), f"job{number}", "/", kind="nvidia", gpus=1,
            priority=drawn.choice((0, 0, 1)), preemptible=drawn.random() < 0.8,
            timeout=HOUR * drawn.uniform(0.5, 8.0),
        )  # fmt: skip

    since = [NOW - drawn.uniform(0.0, 1700.0) for _ in GPUS[:2]]
    states = [Running("nonce", (GPUS[i].id,), at, 1, 1, "boot") for i, at in enumerate(since)]
    states += [Queued()] * drawn.randint(1, 4)  # type: ignore[list-item]
    made = [spec(number) for number in range(1, len(states) + 1)]
    return [Job(n, made[n - 1], 0.0, state) for n, state in enumerate(states, 1)]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("queues", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_preemptible_jobs_of_drawn_queues_take_turns(queues: int) -> None:
    drawn, moved, foreseen = random.Random(queues), 0, 0
    for number in range(queues):
        jobs, turns = draw_turns(drawn), HOUR * drawn.choice((0.1, 1.0, 2.0))
        world = World(jobs, turns)
        running, lanes = laned(jobs)
        landings = scheduled(running, lanes, GPUS[:2], world.conditions())
        plan = world.plan(GPUS[:2])
        reasons = {job.id: plan.reason(job) for job in world.waiting.values()}
        for _ in range(STEPS):
            if not world.step(GPUS[:2]):
                break
        assert not world.waiting and not world.running, f"{number}: every job runs and ends"
        for moves in world.moves.values():
            gaps = (after - before for before, after in pairwise(moves))
            assert all(gap >= PAUSE_S for gap in gaps), f"{number}: moved twice within ten minutes"
        moved += bool(world.moves)
        for job, reason in reasons.items():
            if isinstance(reason, w.TakesTurn) and not world.crossed:
                foreseen += 1
                begun = world.begun[job].at
                assert begun <= reason.at + COST, f"{number}: job {job} starts late"
        if not world.crossed:
            for landing in landings:
                begun = world.begun[landing.job].at
                assert landing.at == pytest.approx(begun, abs=0.01), f"{number}: job {landing.job}"
    assert moved > queues / 2 and foreseen > queues / 10


def test_three_jobs_take_turns_in_the_order_in_which_they_came() -> None:
    def spec(number: int) -> Spec:
        return Spec(
            ("train",), f"job{number}", "/", kind="nvidia", gpus=1, preemptible=True,
            timeout=2.5 * HOUR,
        )  # fmt: skip

    first = Running("nonce", (GPUS[0].id,), NOW, 1, 1, "boot")
    jobs = [Job(n, spec(n), 0.0, first if n == 1 else Queued()) for n in (1, 2, 3)]
    world, seen = World(jobs, HOUR), list[int]()
    assert world.plan(GPUS[:1]).reason(jobs[1]) == w.TakesTurn((1,), NOW + HOUR)
    assert world.plan(GPUS[:1]).reason(jobs[2]) == w.Behind(2)
    while world.step(GPUS[:1]):  # in their third turns, they end within one step
        seen += [n for n in world.computing() if not seen or seen[-1] != n]
    assert seen == [1, 2, 3, 1, 2, 3]
    assert [len(world.moves[n]) for n in (1, 2, 3)] == [2, 2, 2]
