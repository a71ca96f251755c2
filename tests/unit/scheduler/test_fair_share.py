"""Users of one queue take turns by their GPU-hours: in the documented order, and nobody starves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Job, Queued, Running, Spec, Usage
from gpudeck.scheduler.protocol.wait_reasons import Behind, BehindUser
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.fair_share import FairShare
from gpudeck.scheduler.queue.policy import Conditions, make_plan
from tests.unit.scheduler.planning import foretold, laned

HOUR = 3600.0
DAY = 24 * HOUR
GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(3)]
A, B, C = 1001, 1002, 1003


def job(number: int, user: int, gpus: int = 1, priority: int = 0, **more: object) -> Job:
    spec = Spec(("true",), f"job{number}", "/", gpus=gpus, priority=priority, user=user, **more)  # type: ignore[arg-type]
    return Job(number, spec, 0.0, Queued())


def on(found: Job, devices: Sequence[str], at: float = 0.0) -> Job:
    return msgspec.structs.replace(found, state=Running("nonce", tuple(devices), at, 1, 1, "boot"))


def ended(number: int, user: int, hours: float, at: float, gpus: int = 1) -> Job:
    held = tuple(f"GPU-{i}" for i in range(gpus))
    state = Done(at - hours * HOUR, at, held)
    return msgspec.structs.replace(job(number, user, gpus), state=state)


def shares(*jobs: Job, half_life: float = DAY) -> FairShare:
    return FairShare(lambda: half_life, lambda since: iter(jobs))


def starts(jobs: Sequence[Job], hours: dict[int | None, float]) -> list[int]:
    running, lanes = laned(jobs)
    plan = make_plan(running, lanes, GPUS, Conditions(hours=hours))
    return [start.job.id for start in plan.starts]


def test_hours_count_half_after_a_half_life_and_running_jobs_count_at_least_one() -> None:
    found = shares(ended(1, A, 8.0, 0.0), ended(2, A, 2.0, DAY, gpus=2), ended(3, C, 9.0, 0.0))
    assert found.of([A, B], [], DAY) == {A: 4.0 + 4.0, B: 0.0}
    assert found.of([A, B], [], 2 * DAY) == {A: 4.0, B: 0.0}
    runs = [on(job(4, B, 2), ["GPU-0", "GPU-1"], DAY), on(job(5, B), ["GPU-2"], DAY - 3 * HOUR)]
    assert found.of([A, B], runs, DAY) == {A: 8.0, B: 2.0 + 3.0}


def test_what_ends_later_is_added_and_the_clock_may_jump() -> None:
    found = shares(ended(1, A, 1.0, DAY))
    found.add(ended(2, A, 50.0, DAY))  # it is among the stored jobs that are read first
    assert found.of([A], [], DAY) == {A: 1.0}
    found.add(ended(3, A, 1.0, 0.0))  # the clock was set back
    assert found.of([A], [], DAY) == {A: 1.5}
    assert found.of([A], [], 0.0) == {A: 1.5}
    retried = msgspec.structs.replace(ended(4, A, 1.0, DAY), usage=Usage(seconds=3 * HOUR))
    found.add(retried)
    found.add(msgspec.structs.replace(job(5, A), state=Cancelled(DAY)))  # it never ran
    assert found.of([A], [], DAY) == {A: 4.5}
    assert shares(ended(1, A, 1.0, 0.0), half_life=0.0).of([A, B], [], DAY) == {}


def test_users_take_turns_within_a_priority() -> None:
    jobs = [job(n, A) for n in (1, 2, 3)] + [job(n, B) for n in (4, 5)]
    assert starts(jobs, {}) == [1, 2, 3]
    assert starts(jobs, {A: 0.0, B: 0.0}) == [1, 4, 2]
    assert starts(jobs, {A: 2.0, B: 0.5}) == [4, 5, 1]
    assert starts([*jobs, job(6, A, priority=1)], {A: 9.0, B: 0.0}) == [6, 4, 5]


def test_the_reason_names_the_shares() -> None:
    jobs = [job(1, A, 2), job(2, B, 3), on(job(9, C), ["GPU-0"])]
    running, lanes = laned(jobs)
    plan = make_plan(running, lanes, GPUS, Conditions(hours={A: 8.24, B: 1.5, C: 1.0}))
    assert plan.starts == []
    reason = plan.reason(jobs[0])
    assert reason == BehindUser(2, 8.2, 1.5)
    assert render(reason, 0.0) == (
        "job 2 is ahead of it, as its user has had 1.5 GPU-hours lately, and the user of this one "
        "8.2 (fair share)"
    )
    plan = make_plan(running, lanes, GPUS, Conditions())
    assert plan.starts[0].job.id == 1
    assert make_plan(running, laned(jobs[1:])[1], GPUS, Conditions()).reason(jobs[1]) != Behind(2)


def test_a_forecast_lets_other_users_go_first() -> None:
    mine, other = job(1, A, 3), job(2, B, 3, timeout=HOUR)
    conditions = Conditions(hours={A: 8.0, B: 0.0})
    found = foretold(mine, [], laned([other])[1], GPUS, conditions)
    assert found.at == HOUR
    assert found.reason.startswith("needs 3 GPUs; 0 free: GPU 0 is held by job 2 (job2)")


users = st.sampled_from((A, B, C))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(users, st.integers(0, 1)), min_size=1, max_size=9),
    st.fixed_dictionaries(dict.fromkeys((A, B, C), st.integers(0, 4).map(float))),
)
def test_the_order_is_the_documented_one(
    waiting: list[tuple[int, int]], hours: dict[int | None, float]
) -> None:
    """Compare with an oracle that looks at every job for each GPU."""
    jobs = [job(n, user, 1, priority) for n, (user, priority) in enumerate(waiting, 1)]
    left, counted, expected = list(jobs), dict(hours), list[int]()
    while left and len(expected) < len(GPUS):
        top = max(j.spec.priority for j in left)
        of_top = [j for j in left if j.spec.priority == top]
        fewest = min(counted[j.spec.user] for j in of_top)
        first = min(j.id for j in of_top if counted[j.spec.user] == fewest)
        (chosen,) = (j for j in left if j.id == first)
        left.remove(chosen)
        counted[chosen.spec.user] += 1.0
        expected.append(first)
    assert starts(jobs, hours) == expected


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.tuples(users, st.integers(1, 3), st.integers(1, 8)), min_size=1, max_size=6),
    st.lists(st.tuples(st.sampled_from((A, B)), st.integers(1, 2)), min_size=1, max_size=4),
)
def test_nobody_starves_beside_users_who_submit_without_end(
    waiting: list[tuple[int, int, int]], streams: list[tuple[int, int]]
) -> None:
    """Each stream always has a job of one hour that waits; all other jobs start in the end."""
    found = shares()
    fixed = [job(n, u, g, timeout=h * HOUR) for n, (u, g, h) in enumerate(waiting, 1)]
    jobs, number, now = list(fixed), 1000, 0.0
    left = {j.id for j in fixed}
    for _ in range(400):
        for stream, (user, gpus) in enumerate(streams):
            if not any(j.spec.name == f"stream{stream}" and j.status == "queued" for j in jobs):
                number += 1
                made = job(number, user, gpus, timeout=HOUR)
                spec = msgspec.structs.replace(made.spec, name=f"stream{stream}")
                jobs.append(msgspec.structs.replace(made, spec=spec))
        running, lanes = laned(jobs)
        hours = found.of({j.spec.user for j in jobs}, running, now)
        plan = make_plan(running, lanes, GPUS, Conditions(now=now, hours=hours))
        for start in plan.starts:
            left.discard(start.job.id)
            jobs = [on(j, start.devices, now) if j.id == start.job.id else j for j in jobs]
        if not left:
            return
        ends = {j.id: j.state.at + j.spec.timeout for j in jobs if isinstance(j.state, Running)}
        now = min(ends.values())
        for over in [j for j in jobs if ends.get(j.id) == now]:
            assert isinstance(over.state, Running)
            found.add(
                msgspec.structs.replace(over, state=Done(over.state.at, now, over.state.devices))
            )
        jobs = [j for j in jobs if ends.get(j.id) != now]
    raise AssertionError(f"jobs {sorted(left)} never started")


def test_one_users_queue_is_served_as_it_came() -> None:
    by_user = defaultdict(list)
    for n, user in enumerate((A, A, A), 1):
        by_user[user].append(job(n, user))
    assert starts(by_user[A], {}) == [1, 2, 3]
    assert pytest.approx(0.5) == shares(ended(1, A, 1.0, 0.0)).of([A], [], DAY)[A]


def test_users_take_turns_with_jobs_that_need_no_gpu() -> None:
    """One job does not wait behind all jobs of another user's array."""
    array = [job(number, A, gpus=0) for number in range(1, 9)]
    running = [on(one, ()) for one in array[:3]]
    theirs, gpu = job(9, B, gpus=0), job(10, A)
    found, lanes = laned([*running, *array[3:], theirs, gpu])
    for hours, first in (({A: 0.0, B: 5.0}, 9), ({}, 4)):
        plan = make_plan(found, lanes, GPUS, Conditions(processors=4, hours=hours))
        assert {start.job.id for start in plan.starts} == {first, gpu.id}
        found, lanes = laned([*running, *array[3:], theirs, gpu])
