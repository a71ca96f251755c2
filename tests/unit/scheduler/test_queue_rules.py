"""Check dependencies, edits, moves, groups and forecasts, as pure rules and on a real store."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.language.numbers import GIB
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.job_options import (
    MAX_BATCH,
    check_indices,
    make_spec,
    parse_indices,
)
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Changes,
    Done,
    Forecast,
    Group,
    Job,
    Queued,
    Running,
    Spec,
    State,
    turn,
)
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import AfterJobs, DependencyFailed, End
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.editing import describe_changes, edited, moved
from gpudeck.scheduler.queue.placement import Availability, DeviceUse
from gpudeck.scheduler.queue.policy import Conditions
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.store import Store
from tests.support import eventually
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit_all, wait_reason
from tests.unit.scheduler.planning import decide, foretold, laned

GPUS = [Device(f"GPU-{i}", i, "H100", "nvidia") for i in range(2)]
RUNNING = Running("nonce", (), 0.0, 1, 1, "boot")


def job(number: int, state: State | None = None, **more: object) -> Job:
    return Job(number, Spec(("true",), f"job{number}", "/", **more), 0.0, state or Queued())  # type: ignore[arg-type]


@pytest.fixture
def queue(store: Store) -> Queue:
    """Return a queue that starts nothing, as it is paused."""
    made = make_queue(store)
    made.groups.pause(True)
    return made


def submit(queue: Queue, **more: object) -> int:
    return submit_all(queue, [Spec(("true",), "x", "/", {"A": "b"}, **more)], [CPU])[0].id  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.data())
def test_a_moved_job_keeps_its_place_and_the_others_their_order(
    data: st.DataObject,
) -> None:
    jobs = {n: job(n, priority=data.draw(st.integers(0, 1))) for n in range(1, 7)}
    for _ in range(data.draw(st.sampled_from((1, 5, 80)))):
        line = sorted(jobs.values(), key=turn)
        one, beside = (jobs[n] for n in data.draw(st.permutations(range(1, 7)))[:2])
        after = data.draw(st.booleans())
        for changed in moved(line, one, beside, after):
            jobs[changed.id] = changed
        new = [j.id for j in sorted(jobs.values(), key=turn)]
        expected = [j.id for j in line if j.id != one.id]
        expected.insert(expected.index(beside.id) + after, one.id)
        assert new == expected
    assert all(turn(job(7, priority=j.spec.priority)) > turn(j) for j in jobs.values()), (
        "who comes later comes after them"
    )


def test_between_two_places_there_is_always_another() -> None:
    line = [job(1), job(2), job(3)]
    for i in range(200):
        mover = line[2] if i % 2 else line[0]
        for changed in moved(line, mover, line[1], after=not i % 2):
            line = sorted([changed if j.id == changed.id else j for j in line], key=turn)
    assert len({j.place if j.place is not None else j.id for j in line}) == 3


def test_which_fields_may_be_changed_and_until_when() -> None:
    changes = Changes(priority=5, memory=GIB, notes="new")
    spec = edited(job(1, gpus=1), changes)
    assert (spec.priority, spec.memory, spec.notes, spec.gpus) == (5, GIB, "new", 1)
    assert (
        describe_changes(job(1, gpus=1).spec, spec)
        == f"memory 0 → {GIB}, priority 0 → 5, notes none → new"
    )
    with pytest.raises(
        UserError, match="job 1 is running: it is too late to change memory, priority"
    ):
        edited(job(1, RUNNING), changes)
    with pytest.raises(UserError, match="nothing to change"):
        edited(job(1), Changes())
    for state in (RUNNING, Done(0.0, 1.0)):
        assert edited(job(1, state), Changes(name="n", notes="x", tags=("a",))).tags == ("a",)


def test_groups_limit_and_pause_their_jobs_only() -> None:
    active = [
        job(1, RUNNING, group="a"),
        *(job(n, group="a") for n in (2, 3)),
        job(4, group="b"),
        job(5),
        job(6, hold=True),
    ]
    decided = decide(
        active, [CPU], False, 9, Conditions(groups={"a": Group("a", 2), "b": Group("b", 0, True)})
    )
    assert [s.job.id for s in decided.starts] == [2, 5]
    assert decided.reasons == {
        3: "group a is at its limit (2 of 2 running)",
        4: "group b is paused",
        6: "is on hold; to release it: gpudeck resume 6",
    }


def test_a_job_waits_for_its_dependencies_and_is_cancelled_if_one_fails(queue: Queue) -> None:
    first = submit(queue)
    good, any_end = submit(queue, after=(first,)), submit(queue, after_any=(first,))
    chain = submit(queue, after=(good,))
    queue.groups.pause(False)
    queue.groups.pause(True)
    queue.step([CPU])
    queue.canceller.cancel(first)
    queue.step([CPU])
    state = queue.get(good).state
    assert isinstance(state, Cancelled)
    assert str(state.reason) == f"job {first}, which had to succeed first, was cancelled"
    assert queue.get(chain).state == Cancelled(
        state_at(queue, chain), reason=explain(DependencyFailed(good, "cancelled"), 0.0)
    )
    assert isinstance(queue.get(any_end).state, Queued)
    assert [e.what for e in queue.queries.timeline(chain)] == ["submitted", "cancelled"]
    with pytest.raises(
        UserError,
        match=f"the job can't run: job {first}, which had to succeed first, was cancelled",
    ):
        submit(queue, after=(first,))
    submit(queue, after_any=(first,))


def state_at(queue: Queue, number: int) -> float:
    state = queue.get(number).state
    assert isinstance(state, Cancelled)
    return state.at


@pytest.mark.parametrize("field", ["after", "after_any"])
@pytest.mark.parametrize("number", [1, 99, 0, -1, 2**70])
def test_a_job_cannot_depend_on_itself_or_on_one_that_does_not_exist(
    queue: Queue, field: str, number: int
) -> None:
    with pytest.raises(NotFound):
        submit(queue, **{field: (number,)})
    assert finish(queue.queries.newest(9, active=True)) == ()


def test_dependencies_survive_a_restart(queue: Queue, store: Store) -> None:
    first = submit(queue)
    second = submit(queue, after=(first,), after_any=(first,))
    again = make_queue(store)
    again.groups.pause(False)
    assert wait_reason(again, second) == AfterJobs((first,), "x")
    again.canceller.cancel(first)
    once_more = make_queue(store)
    once_more.groups.pause(True)
    once_more.step([CPU])
    assert once_more.get(second).status == "cancelled", "also where the daemon ended in between"


def test_all_jobs_of_a_submission_are_accepted_or_none(queue: Queue) -> None:
    good = Spec(("true",), "x", "/")
    with pytest.raises(UserError, match="no command"):
        submit_all(queue, [good, msgspec.structs.replace(good, argv=())], [CPU])
    assert finish(queue.queries.newest(9, active=True)) == ()
    assert [j.id for j in submit_all(queue, [good] * 3, [CPU])] == [1, 2, 3]


def test_edits_moves_and_groups_survive_a_restart(queue: Queue, store: Store) -> None:
    ids = [submit(queue, group="g") for _ in range(3)]
    queue.editor.edit(ids[0], Changes(name="first", tags=("t",)), [CPU])
    queue.editor.move(ids[2], ids[0], after=False)
    queue.groups.set("g", 1, None)
    queue.groups.set("g", None, True)
    again = make_queue(store)
    assert [again.get(n).spec.name for n in ids] == ["first", "x", "x"]
    assert sorted(map(again.get, ids), key=turn) == [again.get(ids[n]) for n in (2, 0, 1)]
    assert [(g.group, g.waiting, g.running) for g in again.groups.states()] == [
        (Group("g", 1, True), 3, 0)
    ]
    assert [e.what for e in again.queries.timeline(ids[2])] == ["submitted", "moved"]
    assert store.env(ids[0]) == {"A": "b"}, "an edit does not lose it"


def test_an_edit_that_could_never_run_is_refused_and_changes_nothing(queue: Queue) -> None:
    number = submit(queue, gpus=1)
    with pytest.raises(UserError, match="needs 2 GPUs"):
        queue.editor.edit(number, Changes(gpus=2), [CPU])
    assert queue.get(number).spec.gpus == 1
    queue.canceller.cancel(number)
    assert queue.editor.edit(number, Changes(notes="why"), [CPU]).spec.notes == "why"
    assert next(j for j in queue.queries.overview() if j.id == number).spec.notes == "why"
    for changes in (
        Changes(notes="x" * 10_001),
        Changes(tags=("t" * 6000, "u" * 6000)),
        Changes(name="a\0b"),
    ):
        with pytest.raises(UserError, match="hold up to 10000 characters"):
            queue.editor.edit(number, changes, [CPU])
    for field, value in (
        ("container", "podman:" + "x" * 10_000),
        ("mounts", ("/a\0",)),
        ("mounts", ("/" + "x" * 6000,) * 2),
        ("container_env", ("X" * 6000,) * 2),
    ):
        contained = {"container": "podman:x", field: value}
        with pytest.raises(UserError, match="hold up to 10000 characters"):
            submit(queue, **contained)
    for signal in ("KILL", "SIGTERM", "term", "x" * 10**6):
        with pytest.raises(UserError, match="can be asked to end by TERM") as refused:
            submit(queue, resumable=signal)
        assert len(str(refused.value)) < 200
    with pytest.raises(UserError, match="up to 1000 parameters, folders and variables"):
        submit(queue, container="podman:x", container_env=("",) * 1001)
    with pytest.raises(UserError, match="a job has up to 100 tags"):
        queue.editor.edit(number, Changes(tags=("t",) * 101), [CPU])
    with pytest.raises(UserError, match="cancelled: only waiting jobs have a place"):
        queue.editor.move(number, submit(queue), after=False)


def on(number: int, device: str, **more: object) -> Job:
    return job(number, Running("n", (device,), 0.0, 1, 1, "b"), gpus=1, **more)


def test_a_forecast_plays_the_queue_forward() -> None:
    active = [on(1, "GPU-0"), on(2, "GPU-1"), job(3, gpus=1, timeout=50.0)]
    ends = {1: End(200.0), 2: End(150.0)}
    new = job(9, gpus=1)
    found = foretold(new, *laned(active), GPUS, Conditions(ends=ends, now=100.0))
    assert found.devices == ("GPU-0",) or found.devices == ("GPU-1",)
    assert found.at == 200.0, "job 3 takes GPU 1 at 150, until 200 at the latest"
    assert found.reason.startswith("needs 1 GPU; 0 free") or found.reason == "job 3 is ahead of it"
    assert foretold(new, *laned([on(1, "GPU-0")]), GPUS, Conditions(now=100.0)) == Forecast(
        ("GPU-1",), 100.0, ""
    )
    urgent = msgspec.structs.replace(new, spec=msgspec.structs.replace(new.spec, priority=1))
    assert foretold(urgent, *laned(active), GPUS, Conditions(ends=ends, now=100.0)).at == 150.0
    unknown = foretold(new, *laned([on(1, "GPU-0"), on(2, "GPU-1")]), GPUS, Conditions(now=100.0))
    assert unknown.at is None and "GPU 0 is held by job 1" in unknown.reason


def test_a_forecast_counts_the_memory_that_comes_free() -> None:
    sharing = [on(1, "GPU-0", memory=50 * GIB), on(2, "GPU-0", memory=20 * GIB)]
    sight = Availability({"GPU-0": DeviceUse(80 * GIB, 20.0 * GIB, {1: 45.0 * GIB, 2: 15.0 * GIB})})
    around = Conditions(sight, {1: End(300.0), 2: End(200.0)}, 100.0)
    assert foretold(job(9, gpus=1, memory=10 * GIB), *laned(sharing), GPUS[:1], around).at == 100.0
    assert foretold(job(9, gpus=1, memory=30 * GIB), *laned(sharing), GPUS[:1], around).at == 200.0
    assert foretold(job(9, gpus=1, memory=60 * GIB), *laned(sharing), GPUS[:1], around).at == 300.0


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3", [0, 1, 2, 3]), ("0-10:5", [0, 5, 10]), ("4,1, 7-8", [4, 1, 7, 8]), ("5", [5])],
)
def test_the_indices_of_an_array(text: str, found: list[int]) -> None:
    assert parse_indices(text) == found


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "0-9:0", "-1", "1,1", "0-999999999", "1-", "٣", "1;2"]
)
def test_invalid_indices_are_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_indices(text)
    assert "\n" not in str(caught.value)


def test_job_options_have_defaults() -> None:
    made = make_spec(["/bin/true"], {"env": {}, "cwd": "/"})
    assert msgspec.structs.replace(made, inherited=None) == Spec(("/bin/true",), "true", "/")
    asked = make_spec(
        ["x"],
        {
            "env": {},
            "memory": "2GiB",
            "timeout": "2h",
            "gpu_type": "h100",
            "tags": ["a"],
            "after": [3],
        },
    )
    assert (asked.gpus, asked.memory, asked.timeout, asked.tags, asked.after) == (
        1,
        2 * GIB,
        7200.0,
        ("a",),
        (3,),
    )


def test_no_job_starts_while_it_is_being_cancelled_with_many_others(queue: Queue) -> None:
    jobs = submit_all(queue, [Spec(("sleep", "600"), "x", "/")] * 300, [CPU])
    queue.step([CPU])
    first = {job.id for job in queue.running}
    for _ in queue.canceller.cancel_many((), ((jobs[0].id, jobs[-1].id),), None, ""):
        for number in first:
            eventually(lambda n=number: ended(queue, n))  # type: ignore[misc]
        queue.step([CPU])
        assert not queue.running
    assert {queue.get(job.id).status for job in jobs} == {"cancelled"}


def test_a_move_where_no_number_is_left_changes_a_few_neighbours_alone(queue: Queue) -> None:
    jobs = [
        job.id for job in submit_all(queue, [Spec(("true",), "x", "/", hold=True)] * 600, [CPU])
    ]
    order, most = list(jobs), 0
    for _ in range(200):
        before = {job.id: job.place for job in finish(queue.queries.newest(1000, active=True))}
        mover = order[-1]
        queue.editor.move(mover, order[1], after=False)
        order.insert(1, order.pop())
        after = finish(queue.queries.newest(1000, active=True))
        most = max(most, sum(before[job.id] != job.place for job in after))
    assert [job.id for job in sorted(after, key=turn)] == order
    assert 1 < most < 200


def test_as_many_jobs_as_the_limit_says_are_submitted_at_once() -> None:
    assert check_indices(range(MAX_BATCH)) == [*range(MAX_BATCH)]
    for indices in (range(0), range(MAX_BATCH + 1), [1, 2, 1]):
        with pytest.raises(UserError):
            check_indices(indices)
