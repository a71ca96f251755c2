"""Compare the order of waiting jobs with sorting them anew after each change."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Job, Queued, Running, Spec, State, turn
from gpudeck.scheduler.queue.dependencies import Dependents
from gpudeck.scheduler.queue.lanes import Lanes, requirements

STATES: tuple[State, ...] = (Queued(), Running("n", (), 0.0, 1, 1, "b"), Cancelled(1.0))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 6),
            st.integers(-1, 1),
            st.sampled_from([None, 0.5, 3.5]),
            st.sampled_from(STATES),
        ),
        max_size=40,
    )
)
def test_the_order_of_waiting_jobs_is_what_sorting_gives(
    changes: list[tuple[int, int, float | None, State]],
) -> None:
    lanes, jobs = Lanes(), {}
    for number, priority, place, state in changes:
        job = Job(number, Spec(("x",), "x", "/", priority=priority), 0.0, state, place)
        jobs[number] = job
        lanes.update(job)
        lanes.update(msgspec.structs.replace(job))
        waiting = sorted((j for j in jobs.values() if isinstance(j.state, Queued)), key=turn)
        assert list(lanes) == [j.id for j in waiting]
        assert lanes.ids() == {j.id for j in waiting}
        assert len(lanes) == len(waiting)
        assert all((n in lanes) == (n in lanes.ids()) for n in range(8))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from([0, 1]), st.integers(-1, 1), st.booleans()),
        max_size=30,
    ),
    st.integers(0, 4),
)
def test_lanes_hold_each_job_once_and_next_includes_one_that_needs_a_device(
    changes: list[tuple[int, int, int, bool]], count: int
) -> None:
    lanes, jobs = Lanes(), {}
    for number, gpus, priority, hold in changes:
        jobs[number] = Job(
            number, Spec(("x",), "x", "/", gpus=gpus, priority=priority, hold=hold), 0.0, Queued()
        )
        lanes.update(jobs[number])
    by_need = {key: [n for *_, n in lane] for key, lane in lanes.by_requirements().items()}
    ordered = [job.id for job in sorted(jobs.values(), key=turn)]
    assert all(
        lane == [n for n in ordered if requirements(jobs[n].spec) == key]
        for key, lane in by_need.items()
    )
    assert sorted(n for lane in by_need.values() for n in lane) == sorted(jobs)
    assert lanes.next(count)[:count] == ordered[:count]
    assert (
        lanes.need_devices
        == any(job.spec.gpus for job in jobs.values())
        == any(jobs[n].spec.gpus for n in lanes.next(count))
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.sets(st.integers(1, 8)),
            st.sampled_from([Queued(), Running("n", (), 0.0, 1, 1, "b"), Done(0.0, 1.0)]),
        )
    )
)
def test_dependents_know_which_jobs_wait_for_others(
    changes: list[tuple[int, set[int], State]],
) -> None:
    dependents, active, jobs = Dependents(), {}, {}
    for number, before, state in changes:
        if number in jobs and not jobs[number].active:
            continue  # an end is final
        after = (
            jobs[number].spec.after
            if number in jobs
            else tuple(n for n in before if n < number and n in jobs)
        )
        job = jobs[number] = Job(number, Spec(("x",), "x", "/", after=after), 0.0, state)
        active.pop(number, None)
        if job.active:
            active[number] = job
        waited = {
            n for n, j in jobs.items() if isinstance(j.state, Queued) and number in j.spec.after
        }
        assert dependents.update(job, active) == (set() if job.active else waited)
        assert dependents.ids() == {
            n
            for n, j in active.items()
            if isinstance(j.state, Queued) and any(a in active for a in j.spec.after)
        }
