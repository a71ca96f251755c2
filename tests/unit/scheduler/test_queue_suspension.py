"""Suspended jobs in the plan, in forecasts, and in what counts as their time."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.attempts import Exit
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.executors.registry import ExecutorRegistry
from gpudeck.scheduler.executors.remote_runner import (
    CONTINUE_CLOCK,
    PAUSE_CLOCK,
    YIELD,
    EndRequest,
)
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.jobs import (
    NO_RESULT,
    Event,
    Job,
    JobSuspension,
    Progress,
    Queued,
    Running,
    Spec,
    find_stays,
    held_devices,
    held_seconds,
)
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.protocol.wait_reasons import End
from gpudeck.scheduler.queue.placement import Availability, DeviceUse
from gpudeck.scheduler.queue.policy import Conditions, Plan, make_plan
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.queue.transitions import ended, on_again
from gpudeck.scheduler.queue.user_limits import Allowance
from gpudeck.scheduler.store import Store
from tests.unit.scheduler.own_queue import submit_all
from tests.unit.scheduler.planning import foretold, laned

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(3)]
NOW = 1000.0
OFF = JobSuspension("suspended", 500.0)
DUE = JobSuspension("suspended", 500.0, 900.0)


def job(number: int, state: Queued | Running, **options: object) -> Job:
    spec = Spec(("true",), f"job{number}", "/", kind="nvidia", gpus=1)
    return Job(number, msgspec.structs.replace(spec, **options), 0.0, state)


def on(number: int, gpu: int, suspension: JobSuspension | None = None, **options: object) -> Job:
    state = Running("nonce", (GPUS[gpu].id,), 100.0, 1, 1, "boot", suspension=suspension)
    return job(number, state, **options)


def plan(*jobs: Job, availability: Availability = Availability(), now: float = NOW) -> Plan:  # noqa: B008
    running, lanes = laned(jobs)
    return make_plan(running, lanes, GPUS[:1], Conditions(availability, {}, now))


def test_a_suspended_job_leaves_its_gpu_to_others() -> None:
    found = plan(on(1, 0, OFF), job(2, Queued()))
    assert [start.job.id for start in found.starts] == [2] and not found.returns


def test_a_job_comes_back_before_those_that_came_later() -> None:
    found = plan(on(1, 0, DUE), job(2, Queued()))
    assert [back.id for back in found.returns] == [1] and not found.starts
    found = plan(on(1, 0, DUE), job(2, Queued(), priority=1))
    assert [start.job.id for start in found.starts] == [2] and not found.returns


def test_a_job_that_cannot_come_back_keeps_its_gpu_from_the_jobs_after_it() -> None:
    back = on(1, 0, DUE)
    found = plan(back, on(2, 0), job(3, Queued()))
    assert not found.starts and not found.returns
    reason = found.room.return_reason(back)
    assert isinstance(reason, w.NoRoom)
    (blocker,) = reason.devices
    assert isinstance(blocker, w.HeldBy) and blocker.job == 2


def test_a_booking_keeps_a_job_away_only_while_it_lasts() -> None:
    booking = Booking((GPUS[0].id,), 900.0, 2000.0)
    booked = Availability(bookings=(booking,))
    assert not plan(on(1, 0, DUE), availability=booked).returns
    assert plan(on(1, 0, DUE), availability=booked, now=2000.0).returns
    later = Availability(bookings=(msgspec.structs.replace(booking, begin=1500.0),))
    assert plan(on(1, 0, DUE), availability=later).returns


def both(suspension: JobSuspension | None = None, **options: object) -> Job:
    """Return job 1, which runs on the first two GPUs."""
    devices = tuple(gpu.id for gpu in GPUS[:2])
    state = Running("nonce", devices, 100.0, 1, 1, "boot", suspension=suspension)
    return job(1, state, gpus=2, **options)


def test_a_booking_of_one_gpu_leaves_the_others_of_a_suspended_job_to_all() -> None:
    booked = Availability(bookings=(Booking((GPUS[0].id,), 900.0, 30_000.0),))
    running, lanes = laned([both(DUE), job(2, Queued())])
    found = make_plan(running, lanes, GPUS[:2], Conditions(booked, {}, NOW))
    assert not found.returns
    assert [(start.job.id, start.devices) for start in found.starts] == [(2, (GPUS[1].id,))]


def test_suspended_jobs_give_no_user_more_gpus_than_the_limit() -> None:
    limit = Allowance(UserLimits(gpus=1), held=1, hours=0.0)
    back = on(1, 0, DUE, user=7)
    running, lanes = laned([back, on(2, 1, user=7)])
    found = make_plan(running, lanes, GPUS, Conditions(now=NOW, allowances={7: limit}))
    assert not found.returns
    assert isinstance(found.room.return_reason(back), w.UserGpus)
    free = Allowance(UserLimits(gpus=1), held=0, hours=0.0)
    running, lanes = laned([back, job(3, Queued(), user=7)])
    found = make_plan(running, lanes, GPUS, Conditions(now=NOW, allowances={7: free}))
    assert [each.id for each in found.returns] == [1] and not found.starts


def test_nothing_starts_on_a_gpu_for_whose_job_another_is_suspended_now() -> None:
    ends = {1: End(NOW + 7200.0), 2: End(NOW + 3600.0)}
    jobs = [
        on(1, 1, preemptible=True), on(2, 2), job(3, Queued(), gpus=2, priority=1),
        job(4, Queued(), timeout=1800.0),
    ]  # fmt: skip
    running, lanes = laned(jobs)
    found = make_plan(running, lanes, GPUS, Conditions(now=NOW, ends=ends))
    assert isinstance(found.room.reason(jobs[2]), w.Preempts)
    assert not found.starts


@given(st.data())
def test_no_gpu_is_given_twice_and_every_job_comes_back(data: st.DataObject) -> None:
    """Play drawn queues to their end: jobs are suspended, due, and come back in their turn."""
    count = data.draw(st.integers(1, 8))
    jobs: dict[int, Job] = {}
    for number in range(1, count + 1):
        kind = data.draw(st.sampled_from(("wait", "off", "due")))
        gpu, priority = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 1))
        suspension = {"off": OFF, "due": DUE}.get(kind)
        jobs[number] = (
            job(number, Queued(), priority=priority)
            if suspension is None
            else on(number, gpu, suspension, priority=priority)
        )
    for _ in range(3 * count):
        running, lanes = laned(list(jobs.values()))
        found = make_plan(running, lanes, GPUS, Conditions(now=NOW))
        for start in found.starts:
            gpu = next(i for i, each in enumerate(GPUS) if each.id == start.devices[0])
            jobs[start.job.id] = on(start.job.id, gpu)
        for back in found.returns:
            assert isinstance(back.state, Running)
            state = msgspec.structs.replace(back.state, suspension=None)
            jobs[back.id] = msgspec.structs.replace(back, state=state)
        held = [device for each in jobs.values() for device in held_devices(each)]
        assert len(held) == len(set(held)), "no device is given twice"
        ending = next((n for n, each in jobs.items() if held_devices(each)), None)
        if ending is not None:
            del jobs[ending]
    left = [each.state for each in jobs.values()]
    assert all(isinstance(state, Running) and state.suspension == OFF for state in left)


def test_a_forecast_knows_when_jobs_come_back() -> None:
    """Job 1 has 60 s of its limit left when it comes back at 1200; job 3 starts after it."""
    back = on(1, 0, JobSuspension("suspended", 500.0, 1200.0), timeout=460.0)
    end = expected_end(back, NOW)
    assert end is not None and end.at == 1260.0
    waiting = job(3, Queued(), timeout=10.0, priority=-1)
    held = on(2, 0, timeout=1000.0)  # until 1100
    running, lanes = laned([back, held])
    ends = {each.id: found for each in running if (found := expected_end(each, NOW)) is not None}
    conditions = Conditions(Availability(), ends, NOW)
    assert foretold(waiting, running, lanes, GPUS[:1], conditions).at == 1100.0
    long = msgspec.structs.replace(held, spec=msgspec.structs.replace(held.spec, timeout=1150.0))
    running, lanes = laned([back, long])
    ends = {each.id: found for each in running if (found := expected_end(each, NOW)) is not None}
    conditions = Conditions(Availability(), ends, NOW)
    assert foretold(waiting, running, lanes, GPUS[:1], conditions).at == 1310.0


def test_suspended_time_counts_neither_for_the_pace_nor_for_the_gpu_hours() -> None:
    off = on(1, 0, OFF, timeout=0.0)
    assert isinstance(off.state, Running)
    state = msgspec.structs.replace(off.state, progress=Progress(40.0, 100.0, time=500.0))
    back, _ = on_again(off, state, Event(800.0, "resumed"))
    assert isinstance(back.state, Running) and back.state.suspended == 300.0
    end = expected_end(back, NOW)
    assert end is not None and end.at == 500.0 + 300.0 + 600.0
    assert held_seconds(back, 900.0) == 500.0
    record = Exit("nonce", 100.0, 1400.0, 0, "")
    done = msgspec.structs.replace(back, state=ended(back.state, record, NO_RESULT, ""))
    assert held_seconds(done, NOW * 2) == 1000.0


@pytest.fixture
def request_to_end() -> Iterator[EndRequest]:
    numbers = (signal.SIGALRM, signal.SIGTERM, PAUSE_CLOCK, CONTINUE_CLOCK, YIELD)
    before = {number: signal.getsignal(number) for number in numbers}
    yield EndRequest(lambda number: None)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    for number, handler in before.items():
        signal.signal(number, handler)


def left() -> float:
    return signal.getitimer(signal.ITIMER_REAL)[0]


def test_the_clock_of_a_time_limit_stops_while_a_job_is_suspended(
    request_to_end: EndRequest,
) -> None:
    request_to_end.limit(1000.0)
    for _ in range(2):  # a later daemon sends it again
        signal.raise_signal(PAUSE_CLOCK)
        assert left() == 0.0
    for _ in range(2):
        signal.raise_signal(CONTINUE_CLOCK)
        assert 0.0 < left() <= 1000.0
    signal.raise_signal(PAUSE_CLOCK)
    signal.raise_signal(signal.SIGTERM)  # a cancellation kills it after its grace period
    signal.raise_signal(CONTINUE_CLOCK)
    assert 0.0 < left() < 100.0


def test_a_job_that_is_asked_to_end_keeps_its_grace_period(request_to_end: EndRequest) -> None:
    request_to_end.limit(1000.0)
    request_to_end.allow_yield(signal.SIGUSR1)
    signal.raise_signal(PAUSE_CLOCK)
    signal.raise_signal(YIELD)
    signal.raise_signal(CONTINUE_CLOCK)
    assert 0.0 < left() < 100.0


def test_a_preemptible_job_gives_its_gpu_to_a_higher_priority() -> None:
    victim, urgent = on(1, 0, preemptible=True), job(2, Queued(), priority=1)
    found = plan(victim, urgent)
    assert found.victims == {1} and not found.starts
    assert found.reason(urgent) == w.Preempts((1,), found.room.offers[2].cost)
    assert not plan(victim, job(2, Queued())).victims, "a job of the same priority waits"
    assert not plan(on(1, 0), urgent).victims
    assert isinstance(victim.state, Running)
    moved = msgspec.structs.replace(victim.state, returned=NOW - 599.0)
    assert not plan(msgspec.structs.replace(victim, state=moved), urgent).victims
    leaving = on(1, 0, JobSuspension("suspending", NOW), preemptible=True)
    running, lanes = laned([leaving, on(3, 1, preemptible=True), urgent])
    assert not make_plan(running, lanes, GPUS[:2], Conditions(now=NOW)).victims, "one is enough"


def test_a_job_that_ends_soon_is_not_preempted() -> None:
    running, lanes = laned([on(1, 0, preemptible=True), job(2, Queued(), priority=1)])
    for seconds, victims in ((100.0, set()), (10_000.0, {1})):
        conditions = Conditions(ends={1: w.End(NOW + seconds)}, now=NOW)
        assert make_plan(running, lanes, GPUS[:1], conditions).victims == victims


@given(st.data())
def test_the_forecast_of_a_preempting_job_is_what_happens(data: st.DataObject) -> None:
    """Victims are preemptible, of a lower priority and not moved lately; once they left, the job
    starts when its forecast said so."""
    running = [
        on(
            number,
            number - 1,
            preemptible=data.draw(st.booleans()),
            priority=data.draw(st.integers(0, 2)),
            timeout=data.draw(st.sampled_from((0.0, 1000.0, 5000.0, 90_000.0))),
        )
        for number in (1, 2, 3)
    ]
    urgent = job(9, Queued(), gpus=data.draw(st.integers(1, 3)), priority=2)
    ends = {each.id: end for each in running if (end := expected_end(each, NOW)) is not None}
    conditions = Conditions(ends=ends, now=NOW)
    lanes = laned([urgent])[1]
    found = make_plan(running, lanes, GPUS, conditions)
    for each in running:
        if each.id in found.victims:
            assert each.spec.preemptible and each.spec.priority < urgent.spec.priority
    at = foretold(urgent, running, {}, GPUS, conditions).at
    if not found.victims:
        assert not found.starts and (at is None or at >= min(end.at for end in ends.values()))
        return
    cost = found.room.offers[9].cost
    assert at == NOW + cost
    off = JobSuspension("suspended", NOW, NOW)
    left = [
        on(each.id, each.id - 1, off, preemptible=True, priority=each.spec.priority)
        if each.id in found.victims
        else each
        for each in running
    ]
    after = make_plan(left, laned([urgent])[1], GPUS, conditions._replace(now=NOW + cost))
    assert [start.job.id for start in after.starts] == [9] and not after.victims


def test_the_stays_of_a_job_are_those_of_its_newest_attempt() -> None:
    events = [
        Event(at, what)
        for at, what in (
            (5.0, "suspended"), (10.0, "started"), (20.0, "suspending"), (21.0, "suspended"),
            (30.0, "resuming"), (31.0, "resumed"), (40.0, "suspended"),
        )
    ]  # fmt: skip
    assert find_stays(events, 10.0, 50.0) == [(10.0, 21.0), (31.0, 40.0)]
    assert find_stays(events[:-1], 10.0, None) == [(10.0, 21.0), (31.0, None)]
    assert find_stays((), 10.0, 50.0) == [(10.0, 50.0)]


def test_a_suspended_job_comes_back_only_to_what_is_free() -> None:
    assert not plan(on(1, 0, DUE), on(2, 0)).returns, "another job has the whole GPU"
    gpu = GPUS[0].id
    room = Availability({gpu: DeviceUse(80.0 * GIB, 30.0 * GIB, {})})
    small, large = (on(1, 0, DUE, memory=int(size * GIB)) for size in (20, 40))
    assert plan(small, availability=room).returns
    assert not plan(large, availability=room).returns
    assert not plan(small, availability=room._replace(held_by_others={gpu: 15.0 * GIB})).returns


def test_a_suspended_job_with_memory_of_its_own_takes_nothing_from_others() -> None:
    room = {gpu.id: DeviceUse(80.0 * GIB, 30.0 * GIB, {}) for gpu in GPUS}
    back = on(1, 0, DUE, memory=20 * GIB)
    assert not plan(back, on(2, 0), availability=Availability(room)).returns, (
        "job 2 has the GPU to itself"
    )
    waits = job(3, Queued(), gpus=2, memory=20 * GIB, priority=1)
    running, lanes = laned([back, on(2, 1), waits])
    conditions = Conditions(Availability(room), {}, NOW)
    assert not make_plan(running, lanes, GPUS[:2], conditions).returns, (
        "job 3 came first, and waits for this memory and the other GPU"
    )
    smaller = job(3, Queued(), gpus=2, memory=10 * GIB, priority=1)
    running, lanes = laned([back, on(2, 1), smaller])
    assert make_plan(running, lanes, GPUS[:2], conditions).returns


def moving_queue(store: Store, state: Running, **options: object) -> tuple[Queue, list[int]]:
    """Return a queue with one job on GPU 0, and the list of the jobs that it has moved."""
    spec = Spec(("train",), "job1", "/", kind="nvidia", gpus=1)
    store.insert(msgspec.structs.replace(spec, **options), NOW, state)
    moved: list[int] = []

    def move(each: Job) -> None:
        moved.append(each.id)

    executors = ExecutorRegistry(Local(lambda number, runner: None), {})
    return Queue(store, executors, bring_back=move, preempt=move), moved


def test_a_job_whose_suspension_fails_is_not_asked_again_at_once(store: Store) -> None:
    state = Running("nonce", (GPUS[0].id,), 100.0, 1, 1, "boot")
    queue, moved = moving_queue(store, state, preemptible=True)
    submit_all(queue, [job(2, Queued(), priority=1).spec], GPUS[:1])
    for _ in range(3):
        queue.step(GPUS[:1])
    assert moved == [1]


def test_a_job_comes_back_once_the_assistant_has_left_its_gpu(store: Store) -> None:
    queue, moved = moving_queue(
        store, Running("n", (GPUS[0].id,), 100.0, 1, 1, "b", suspension=DUE)
    )
    queue.step(GPUS[:1], Availability(leased={GPUS[0].id}))
    assert not moved
    queue.step(GPUS[:1])
    assert moved == [1]
