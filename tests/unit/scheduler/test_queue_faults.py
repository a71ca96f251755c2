"""Break what surrounds the queue: runners, stored jobs and the disk. The store is real."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from gpudeck.scheduler import attempts
from gpudeck.scheduler.executors import local as local_module
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import (
    Cancelled,
    Cancelling,
    Changes,
    Done,
    Failed,
    Queued,
    Running,
    Spec,
)
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import (
    DependencyFailed,
    EnvironmentMissing,
    Held,
    OtherDevices,
    StartFailed,
)
from gpudeck.scheduler.queue import cancellation, forecast, job_index
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.queue.transitions import Change
from gpudeck.scheduler.store import Store
from tests.support import eventually, lives
from tests.unit.scheduler.own_queue import (
    CPU,
    GPU,
    ended,
    make_queue,
    submit,
    submit_all,
    wait_reason,
)


def refuse(patch: pytest.MonkeyPatch, store: Store, state: type) -> None:
    """Let the store refuse jobs in this state, as on a full disk."""
    update = store.update_all

    def refusing(changes: Sequence[Change]) -> None:
        if any(isinstance(job.state, state) for job, _ in changes):
            raise UserError("the disk is full")
        update(changes)

    patch.setattr(store, "update_all", refusing)


def test_a_job_after_one_that_a_repair_lost_is_cancelled_and_delays_no_other(
    store: Store,
) -> None:
    queue = make_queue(store)
    first = submit(queue)
    child = submit(queue, after=(first,))
    other = submit(queue)
    store.connection.execute("DELETE FROM jobs WHERE id = ?", (first,))
    queue = make_queue(store)
    queue.step([CPU])
    assert (
        str(queue.get(child).state.reason) == f"job {first}, which had to succeed first, was lost"
    )  # type: ignore[union-attr]
    eventually(lambda: ended(queue, other))
    assert isinstance(queue.get(other).state, Done)


def test_a_job_whose_environment_is_damaged_is_held_and_never_runs_with_another(
    store: Store, tmp_path: Path
) -> None:
    queue = make_queue(store)
    printed = tmp_path / "printed"
    command = ("/bin/sh", "-c", f'echo "$WHO" >> {printed}')
    bereft, other = (
        submit(queue, *command, env={"WHO": "first"}),
        submit(queue, *command, env={"WHO": "second"}),
    )
    store.connection.execute("UPDATE environments SET env = replace(env, 'first', 'FIRST')")
    queue.step([CPU])
    assert wait_reason(queue, bereft) == EnvironmentMissing()
    eventually(lambda: ended(queue, other))
    queue.editor.edit(bereft, Changes(hold=False), [CPU])
    queue.step([CPU])
    queue = make_queue(store)
    queue.step([CPU])
    assert wait_reason(queue, bereft) == EnvironmentMissing()
    assert [event.what for event in queue.queries.timeline(bereft)] == [
        "submitted",
        "held",
        "edited",
        "held",
    ]
    assert printed.read_text() == "second\n"
    again = submit(queue, *command, env={"WHO": "first"})
    queue.editor.edit(bereft, Changes(hold=False), [CPU])
    queue.step([CPU])
    eventually(lambda: ended(queue, again) and ended(queue, bereft))
    assert printed.read_text() == "second\nfirst\nfirst\n", (
        "it was submitted again, and is there again"
    )


def test_a_chain_of_jobs_after_one_that_failed_is_cancelled_at_once(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [submit(queue, "false")]
    for _ in range(20):
        jobs.append(submit(queue, after=(jobs[-1],)))
    both = submit(queue, after=(jobs[3],), after_any=(jobs[9],))
    spared = submit(queue, after_any=(jobs[20],), hold=True)
    queue.step([CPU])
    eventually(lambda: ended(queue, jobs[0]))
    commits: list[int] = []
    monkeypatch.setattr(
        store,
        "update_all",
        lambda changes, update=store.update_all: (
            commits.append(len(changes)),
            update(changes),
        ),
    )
    queue.step([CPU])
    assert commits == [21], (
        "one transaction: each costs a wait for the disk, in which nobody is answered"
    )
    assert all(isinstance(queue.get(n).state, Cancelled) for n in (*jobs[1:], both))
    assert (
        str(queue.get(jobs[1]).state.reason) == f"job {jobs[0]}, which had to succeed first, failed"
    )  # type: ignore[union-attr]
    assert (
        str(queue.get(both).state.reason)
        == f"job {jobs[3]}, which had to succeed first, was cancelled"
    )  # type: ignore[union-attr]
    assert isinstance(queue.get(spared).state, Queued)


def test_many_jobs_that_can_never_run_are_cancelled_in_batches_and_none_starts(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the daemon between two batches: the next one goes on."""
    monkeypatch.setattr(cancellation, "MAX_CHECKED", 4)
    monkeypatch.setattr(os, "cpu_count", lambda: 100)
    first = submit(queue, hold=True)
    after, spared = (
        [submit(queue, after=(first,)) for _ in range(9)],
        submit(queue, after_any=(first,), hold=True),
    )
    last = submit(queue, after=(after[8],))
    queue.canceller.cancel(first)
    queue.step([CPU])
    assert [queue.get(n).status for n in after] == ["cancelled"] * 4 + ["queued"] * 5
    assert queue.unfinished
    reason = f"job {first}, which had to succeed first, was cancelled"
    assert wait_reason(queue, after[4]) == DependencyFailed(first, "cancelled"), (
        "the reason, until it is cancelled"
    )
    queue = make_queue(store)
    queue.recover()
    while queue.unfinished:
        queue.step([CPU])
    assert {str(queue.get(n).state.reason) for n in after} == {reason}  # type: ignore[union-attr]
    assert queue.get(last).status == "cancelled" and queue.get(spared).status == "queued"
    assert all(
        [e.what for e in queue.queries.timeline(n)] == ["submitted", "cancelled"]
        for n in (*after, last)
    )


def test_many_ends_take_one_scan_of_the_processes_and_one_commit(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill runners, and find what they left behind of each of their jobs."""
    monkeypatch.setattr(os, "cpu_count", lambda: 100)
    jobs = [submit(queue, "sleep", "600") for _ in range(4)]
    good = submit(queue, "true")
    queue.step([CPU])
    runners = [queue.get(n).state.runner for n in (*jobs, good)]  # type: ignore[union-attr]
    left = [eventually(psutil.Process(runner).children)[0].pid for runner in runners[:4]]
    for runner in runners[:4]:
        os.kill(runner, signal.SIGKILL)
    eventually(lambda: not any(map(lives, runners)))
    scans, commits = [], []
    find, update = local_module.find_remains, store.update_all
    monkeypatch.setattr(
        local_module, "find_remains", lambda *given: (scans.append(given), find(*given))[1]
    )
    monkeypatch.setattr(
        store,
        "update_all",
        lambda changes: (commits.append(len(changes)), update(changes))[1],
    )
    queue.reap([*jobs, good])
    assert commits == [5]
    assert len(scans) <= 4, "until one finds nothing, and once more"
    eventually(lambda: not any(map(lives, left)))
    assert [queue.get(n).status for n in (*jobs, good)] == ["lost"] * 4 + ["done"]


@pytest.mark.parametrize("abandoned", [False, True])
def test_a_spare_runner_that_was_stopped_is_continued_or_killed(
    store: Store, abandoned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Local(lambda job, runner: None)
    queue = make_queue(store, local=local)
    others = psutil.Process().children()
    local.start_spare()
    (spare,) = set(psutil.Process().children()).difference(others)
    os.kill(spare.pid, signal.SIGSTOP)
    job = submit(queue, "sh", "-c", "exit 0", env={"LONG": "x" * 100_000})
    if abandoned:
        refuse(monkeypatch, store, Running)
        with pytest.raises(UserError, match="the disk is full"):
            queue.step([CPU])
        assert not lives(spare.pid)
    else:
        queue.step([CPU])
        eventually(lambda: ended(queue, job))
        assert isinstance(queue.get(job).state, Done)


def test_a_job_whose_runner_was_stopped_can_be_cancelled(queue: Queue) -> None:
    job = submit(queue, "sleep", "600")
    queue.step([CPU])
    state = queue.get(job).state
    assert isinstance(state, Running)
    eventually((paths.job_folder(job) / attempts.LOG_FILE).exists)
    os.kill(state.runner, signal.SIGSTOP)
    queue.canceller.cancel(job)
    eventually(lambda: ended(queue, job))
    assert isinstance(queue.get(job).state, Cancelled)


def test_a_forecast_does_not_use_up_the_next_attempt_of_a_job(queue: Queue) -> None:
    job = submit(queue, "false", retries=1, backoff=0.05)
    queue.step([CPU])
    eventually(lambda: ended(queue, job) or queue.get(job).tries)
    time.sleep(0.06)
    finish(queue.submission.forecast(Spec(("true",), "y", "/"), [CPU]))
    assert queue.retry_is_ready(time.time())


def test_a_failed_start_is_no_longer_the_reason_once_the_job_is_held(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_index, "RETRY_S", 0.05)
    job = submit(queue)
    with monkeypatch.context() as patch:
        patch.setattr(local_module.sys, "executable", "/nowhere")
        with pytest.raises(UserError, match="no process can be started"):
            queue.step([CPU])
    queue.editor.edit(job, Changes(hold=True), [CPU])
    time.sleep(0.06)
    queue.step([CPU])
    assert wait_reason(queue, job) == Held(job)


def test_a_job_for_gpus_that_is_edited_while_they_are_gone_does_not_run_on_the_cpu(
    queue: Queue,
) -> None:
    job = submit_all(queue, [Spec(("true",), "x", "/", gpus=1)], [GPU])[0].id
    queue.editor.edit(job, Changes(notes="mind the seed", priority=3), [CPU])
    queue.step([CPU])
    assert wait_reason(queue, job) == OtherDevices("nvidia", "cpu")
    queue.editor.edit(job, Changes(gpus=0), [CPU])
    assert queue.get(job).spec.kind == ""


def test_a_job_whose_failure_cannot_be_stored_waits_on(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(queue, gpus=1)

    def in_the_way(*_: object) -> None:
        raise attempts.FolderError("in the way")

    with monkeypatch.context() as patch:
        refuse(patch, store, Failed)
        patch.setattr(local_module, "next_folder", in_the_way)
        with pytest.raises(UserError, match="the disk is full"):
            queue.step([CPU])
    assert wait_reason(queue, job) == StartFailed("the disk is full")


def test_orphans_of_a_job_that_ended_are_reaped_while_it_runs(queue: Queue) -> None:
    job = submit(
        queue, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do (true &); done; echo all; exec sleep 600"
    )
    queue.step([CPU])
    state, log = queue.get(job).state, paths.job_folder(job) / attempts.LOG_FILE
    assert isinstance(state, Running)
    eventually(lambda: log.exists() and b"all" in log.read_bytes())

    def children() -> list[str]:
        return Path(f"/proc/{state.runner}/task/{state.runner}/children").read_text().split()

    try:
        eventually(lambda: len(children()) == 1, 3.0)
    finally:
        queue.canceller.cancel(job)
        eventually(lambda: ended(queue, job))


def test_a_forecast_reads_a_limited_number_of_lanes(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forecast behind jobs that all need something else, which cost the most."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    for number in range(40):
        submit(queue, timeout=60.0, group=f"group {number}")
    queue.step([CPU])
    scans: list[int] = []

    def count(going: object, lanes: dict[object, object], *rest: object) -> object:
        scans.append(len(lanes))
        return make_plan(going, lanes, *rest)  # type: ignore[arg-type]

    make_plan = forecast.make_plan
    monkeypatch.setattr(forecast, "make_plan", count)
    monkeypatch.setattr(forecast, "MAX_LANES", 200)
    assert finish(queue.submission.forecast(Spec(("true",), "y", "/"), [CPU])).at is None, "unknown"
    assert 40 < sum(scans) <= 200
    queue.canceller.cancel(1)
    eventually(lambda: ended(queue, 1))


@pytest.mark.parametrize("last", ["runs", "ended"])
def test_a_further_attempt_that_the_store_lost_is_not_run_twice(
    store: Store, tmp_path: Path, last: str
) -> None:
    """Restore a job as it was before its second attempt, as a repair does."""
    seconds = 600 if last == "runs" else 0
    second = f"[ $GPUDECK_TRY = 2 ] && exec sleep {seconds}"
    code = f"echo $GPUDECK_TRY >> {tmp_path / 'tries'}; {second}; exit 1"
    local = Local(lambda job, runner: None)
    queue = make_queue(store, local=local)
    job = submit(queue, "sh", "-c", code, retries=1, backoff=0.0, env={"PATH": os.environ["PATH"]})
    queue.step([CPU])
    eventually(lambda: ended(queue, job) or queue.get(job).tries)
    before = store.get(job)
    make_queue(store).recover()
    assert store.get(job) == before, "an attempt that ended as the store knows is none that it lost"
    queue.step([CPU])
    eventually(lambda: (tmp_path / "tries").read_text() == "1\n2\n")
    if last == "ended":
        eventually(lambda: ended(queue, job))
    else:
        assert isinstance(queue.get(job).state, Running)
    second = queue.get(job)
    store.update(before)
    queue = make_queue(store)
    queue.recover()
    queue.step([CPU])
    again = queue.get(job)
    if last == "runs":
        assert again.state == second.state, "it runs on"
        queue.canceller.cancel(job)
        local.kill([second])  # reap the runner, as its daemon is gone
    else:
        assert (again.status, again.tries) == ("done", 1)
    assert (tmp_path / "tries").read_text() == "1\n2\n"


def test_the_number_of_jobs_in_one_submission_is_limited(queue: Queue) -> None:
    with pytest.raises(UserError, match="up to 10000 jobs"):
        submit_all(queue, [Spec(("true",), "x", "/")] * 10_001, [CPU])
    assert queue.queries.overview() == ()


def test_many_jobs_are_cancelled_in_one_commit_and_a_second_cancel_is_no_error(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    array = [
        job.id
        for job in submit_all(
            queue, [Spec(("sleep", "600"), f"a[{i}]", "/", index=i) for i in range(4)], [CPU]
        )
    ]
    same = [
        job.id
        for job in submit_all(
            queue, [Spec(("sleep", "600"), f"a[{i}]", "/", index=i) for i in range(2)], [CPU]
        )
    ]
    grouped, plain = submit(queue, group="g"), submit(queue)
    queue.step([CPU])
    assert [queue.get(n).status for n in array] == ["running", "running", "queued", "queued"]
    commits: list[int] = []
    update = store.update_all
    monkeypatch.setattr(
        store,
        "update_all",
        lambda changes: (commits.append(len(changes)), update(changes))[1],
    )
    assert finish(queue.canceller.cancel_many((), (), array[3], "")) == Cancelling(
        tuple(array[2:]), tuple(array[:2])
    )
    assert commits == [4]
    assert finish(queue.canceller.cancel_many(array, (), array[0], "")) == Cancelling(
        (), tuple(array[:2]), tuple(array[2:])
    ), "as it was"
    assert [e.what for e in queue.queries.timeline(array[0])] == [
        "submitted",
        "started",
        "stop requested",
    ], "asked once: its grace period goes on"
    assert finish(queue.canceller.cancel_many((), (), None, "g")) == Cancelling((grouped,))
    eventually(lambda: all(ended(queue, n) for n in array))
    assert {queue.get(n).status for n in array} == {"cancelled"}
    assert finish(
        queue.canceller.cancel_many((), ((-(10**30), 10**30), (1, 10**9)), None, "")
    ) == Cancelling((*same, plain))
    assert queue.waiting == 0 and not queue.running


@pytest.mark.parametrize(
    ("jobs", "ranges", "array", "group", "why"),
    [
        ((), (), None, "", "name what to cancel"),
        ((), ((5, 4),), None, "", "ranges go upwards"),
        (range(100_001), (), None, "", "up to 100000 numbers"),
        ((), (), 99, "", "there is no job 99"),
        ((), (), 1, "", "job 1 is not part of an array"),
        ((), (), 2**70, "", "there is no job"),
    ],
)
def test_an_invalid_cancel_request_cancels_nothing(
    queue: Queue,
    jobs: tuple[int, ...],
    ranges: tuple[tuple[int, int], ...],
    array: int | None,
    group: str,
    why: str,
) -> None:
    job = submit(queue, hold=True)
    with pytest.raises(UserError, match=why):
        finish(queue.canceller.cancel_many(jobs, ranges, array, group))
    assert queue.get(job).status == "queued"


def test_unknown_job_numbers_are_reported_and_ignored(queue: Queue) -> None:
    job = submit(queue, hold=True)
    wrong = (0, -1, job + 1, 2**63, 2**70)
    assert finish(
        queue.canceller.cancel_many((*wrong, job, job), ((2**70, 2**71),), None, "nobody")
    ) == Cancelling((job,), (), (), tuple(sorted(wrong)))
    assert finish(queue.canceller.cancel_many(range(100_000), (), None, "")).ended == (job,)


def test_a_cancel_on_a_full_disk_ends_running_jobs_and_keeps_waiting_ones(
    queue: Queue, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancel on a full disk, which one of the jobs may fill."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    runs, waits = submit(queue, "sleep", "600"), submit(queue)
    queue.step([CPU])
    with monkeypatch.context() as patch:
        patch.setattr(
            store,
            "update_all",
            lambda *_: (_ for _ in ()).throw(UserError("the disk is full")),
        )
        with pytest.raises(UserError, match="the disk is full"):
            finish(queue.canceller.cancel_many((), ((1, 10),), None, ""))
    eventually(lambda: ended(queue, runs))
    assert (queue.get(runs).status, queue.get(waits).status) == ("cancelled", "queued")
