"""Start short jobs on devices that wait for another job, and never delay that one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.devices import Device, Process
from gpudeck.scheduler.protocol.jobs import Group, Job, Queued, Running, Spec
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.wait_reasons import Behind, End
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue import policy
from gpudeck.scheduler.queue.backfill import MAX_CONSIDERED
from gpudeck.scheduler.queue.placement import Availability, DeviceUse
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from tests.unit.scheduler.planning import foretold, laned

GPUS = [Device(f"GPU-{i}", i, "H100" if i < 3 else "A100", "nvidia") for i in range(5)]
USE = DeviceUse(80.0 * GIB, 80.0 * GIB, {})
OTHERS = USE._replace(others=(Process(4711, "python", "ada", 0.0),))
HOUR = 3600.0
GROUPS = {"two": Group("two", 2)}


def job(number: int, gpus: int = 1, hours: float = 0.0, **more: object) -> Job:
    """Return a job that waits; its time limit is 0 for none."""
    spec = Spec(("true",), f"job{number}", "/", gpus=gpus, timeout=hours * HOUR, **more)  # type: ignore[arg-type]
    return Job(number, spec, 0.0, Queued())


def on(found: Job, devices: Sequence[str], at: float = 0.0) -> Job:
    return msgspec.structs.replace(found, state=Running("nonce", tuple(devices), at, 1, 1, "boot"))


class Play(NamedTuple):
    """A machine whose jobs use their time limits, and never end where they have none."""

    devices: Sequence[Device]
    uses: dict[str, DeviceUse]

    def plan(self, jobs: Sequence[Job], now: float) -> Plan:
        running, lanes = laned(jobs)
        ends = {j.id: e for j in running if (e := expected_end(j, now)) is not None}
        return make_plan(
            running, lanes, self.devices, Conditions(Availability(self.uses), ends, now, GROUPS)
        )

    def step(self, jobs: Sequence[Job], now: float) -> tuple[Plan, list[Job]]:
        """Return the plan, and the jobs once it is carried out."""
        plan = self.plan(jobs, now)
        starts = {start.job.id: start.devices for start in plan.starts}
        return plan, [on(j, starts[j.id], now) if j.id in starts else j for j in jobs]

    def starts(self, jobs: Sequence[Job], now: float) -> dict[int, float]:
        """Return when each job starts, from this moment on."""
        started: dict[int, float] = {}
        while now < math.inf:
            plan, jobs = self.step(jobs, now)
            started |= {start.job.id: now for start in plan.starts}
            now, jobs = after(jobs)
        return started


def after(jobs: Sequence[Job]) -> tuple[float, list[Job]]:
    """Return the moment of the next end, and the jobs that are left then."""
    ends = {
        j.id: j.state.at + j.spec.timeout
        for j in jobs
        if isinstance(j.state, Running) and j.spec.timeout
    }
    now = min(ends.values(), default=math.inf)
    return now, [j for j in jobs if ends.get(j.id) != now]


hours = st.one_of(st.just(0.0), st.integers(1, 12).map(float))
jobs_that_wait = st.lists(
    st.fixed_dictionaries(
        {
            "gpus": st.integers(1, 5),
            "hours": hours,
            "memory": st.sampled_from((0, 0, 0, 20 * GIB, 50 * GIB)),
            "gpu_type": st.sampled_from(("", "", "h100", "a100")),
            "group": st.sampled_from(("", "", "two")),
            "priority": st.integers(0, 1),
        }
    ),
    min_size=1,
    max_size=7,
)
jobs_that_run = st.lists(
    st.tuples(hours, st.sampled_from((0, 0, 20 * GIB)), st.integers(0, 4)), max_size=5
)


def machine(
    running: Sequence[tuple[float, int, int]], waiting: Sequence[dict[str, object]]
) -> list[Job]:
    """Return jobs of which no two that run exclude each other on one device."""
    jobs: list[Job] = []
    held: dict[int, list[int]] = {}
    for length, memory, device in running:
        beside = held.setdefault(device, [])
        if not beside or (memory and all(beside) and len(beside) < 3):
            beside.append(memory)
            jobs.append(on(job(len(jobs) + 1, 1, length, memory=memory), [f"GPU-{device}"]))
    return [*jobs, *(job(100 + n, **more) for n, more in enumerate(waiting))]  # type: ignore[arg-type]


@settings(deadline=None, max_examples=300)
@given(jobs_that_run, jobs_that_wait, st.sets(st.integers(0, 4), max_size=1))
def test_no_reserved_job_starts_later_than_without_backfill(
    running: list[tuple[float, int, int]],
    waiting: list[dict[str, object]],
    foreign: set[int],
) -> None:
    """Compare each moment of the play with how it would go on if no job were backfilled."""
    play = Play(GPUS, {d.id: OTHERS if d.index in foreign else USE for d in GPUS})
    jobs, now = machine(running, waiting), 0.0
    latest: dict[int, float] = {}
    started: dict[int, float] = {}
    while now < math.inf:
        plan, following = play.step(jobs, now)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(policy, "MAX_CONSIDERED", 0)
            without = play.starts(jobs, now)
        for reserved in set(plan.reservations().values()):
            latest[reserved] = min(latest.get(reserved, math.inf), without.get(reserved, math.inf))
        started |= {start.job.id: now for start in plan.starts}
        held = [d for j in following if isinstance(j.state, Running) for d in j.state.devices]
        alone = [
            d
            for j in following
            if isinstance(j.state, Running) and not j.spec.memory
            for d in j.state.devices
        ]
        assert all(held.count(device) == 1 for device in alone)
        now, jobs = after(following)
    for reserved, at in latest.items():
        assert started.get(reserved, math.inf) <= at, (reserved, at)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(hours, max_size=4),
    st.lists(st.tuples(st.integers(1, 5), hours), min_size=1, max_size=7),
    st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12),
)
def test_jobs_that_end_before_their_limits_keep_what_a_reservation_promises(
    running: list[float], waiting: list[tuple[int, float]], shares: list[float]
) -> None:
    """Let each job end after a share of its time limit."""
    play = Play(GPUS, dict.fromkeys((d.id for d in GPUS), USE))
    jobs = [on(job(n, 1, length), [f"GPU-{n}"]) for n, length in enumerate(running)]
    jobs += [job(5 + n, *needs) for n, needs in enumerate(waiting)]
    now, promised, started = 0.0, dict[int, float](), dict[int, float]()
    while now < math.inf:
        plan, jobs = play.step(jobs, now)
        started |= {start.job.id: now for start in plan.starts}
        for reserved in set(plan.reservations().values()) - promised.keys():
            promised[reserved] = play.starts(jobs, now).get(reserved, math.inf)
        ends = {
            j.id: j.state.at + shares[j.id] * j.spec.timeout
            for j in jobs
            if isinstance(j.state, Running) and j.spec.timeout
        }
        now = min(ends.values(), default=math.inf)
        jobs = [j for j in jobs if ends.get(j.id) != now]
    for reserved, at in promised.items():
        assert started.get(reserved, math.inf) <= at


def held(limit: float) -> list[Job]:
    """Return a job that holds one GPU of five for an hour, one for all, and a short one."""
    return [on(job(1, 1, 1.0), ["GPU-0"]), job(2, 5), job(3, 1, limit)]


PLAY = Play(GPUS, dict.fromkeys((d.id for d in GPUS), USE))


def test_a_job_that_ends_in_time_uses_a_gpu_that_waits_for_a_larger_job() -> None:
    plan = PLAY.plan(held(0.9), 0.0)
    assert [(start.job.id, start.devices) for start in plan.starts] == [(3, ("GPU-1",))]
    assert render(plan.reason(held(0.9)[1]), 0.0).startswith("needs 5 GPUs; 3 free: GPU 0 is held")


@pytest.mark.parametrize("limit", [0.0, 0.999, 1.0, 2.0], ids=["none", "margin", "equal", "long"])
def test_a_job_that_may_end_too_late_waits(limit: float) -> None:
    plan = PLAY.plan(held(limit), 0.0)
    assert plan.starts == []
    assert plan.reason(held(limit)[2]) == Behind(2)


def test_a_job_is_not_backfilled_while_the_end_of_another_is_unknown() -> None:
    jobs = [on(job(1), ["GPU-0"]), job(2, 5), job(3, 1, 0.1)]
    assert PLAY.plan(jobs, 0.0).starts == []


def test_short_jobs_behind_many_others_are_found_in_a_short_pass() -> None:
    long = [job(n, 1) for n in range(10, 10 + MAX_CONSIDERED + 100)]
    assert [s.job.id for s in PLAY.plan([*held(0.9), *long], 0.0).starts] == [3]
    last = job(5000, 1, 0.5)
    assert PLAY.plan([*held(2.0), *long, last], 0.0).starts == [], "it was not considered"


def test_a_forecast_includes_backfill() -> None:
    jobs = held(0.9)
    running, lanes = laned(jobs[:2])
    ends = {1: End(HOUR, latest=True)}
    conditions = Conditions(Availability(PLAY.uses), ends, 0.0)
    short = foretold(jobs[2], running, lanes, GPUS, conditions)
    assert (short.at, short.devices) == (0.0, ("GPU-1",))
    all_of_them = foretold(jobs[1], running, {}, GPUS, conditions)
    assert all_of_them.at == HOUR
