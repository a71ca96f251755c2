"""Delete folders, set clocks back and fill disks under a queue with a real store and runners."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpudeck.scheduler import attempts
from gpudeck.scheduler.executors import local
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Failed, Job, Lost, Queued, Running, Spec
from gpudeck.scheduler.queue.admission import MAX_ARGUMENT
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.queue.retry import remaining_delay
from gpudeck.scheduler.services import runner_watch
from gpudeck.scheduler.services.notices import NoticeBoard
from gpudeck.scheduler.services.runner_watch import RunnerWatch
from gpudeck.scheduler.store import Store
from tests.support import eventually, lives
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit, submit_all


@pytest.mark.parametrize("how", ["ends", "killed"])
@pytest.mark.parametrize("what", ["all folders", "folder", "content"])
def test_a_job_whose_folder_is_deleted_while_it_runs_does_not_run_again(
    queue: Queue, tmp_path: Path, how: str, what: str
) -> None:
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    code = f"echo $GPUDECK_ATTEMPT >> {ledger}; while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    job = submit(queue, "sh", "-c", code, env={"PATH": os.environ["PATH"]})
    queue.step([CPU])
    eventually(ledger.exists)
    state, folder = queue.get(job).state, paths.job_folder(job)
    assert isinstance(state, Running)
    deleted = {"all folders": [folder.parent], "folder": [folder]}
    for entry in deleted.get(what) or list(folder.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if how == "killed":
        os.kill(state.runner, signal.SIGKILL)
    go.touch()
    eventually(lambda: ended(queue, job) or isinstance(queue.get(job).state, Queued))
    found = queue.get(job).state
    if how == "ends":
        assert isinstance(found, Failed) and found.code == 3, (
            "its runner could say how it ended all the same"
        )
    else:
        assert isinstance(found, Lost)
    queue.step([CPU])
    assert len(ledger.read_text().split()) == 1


@pytest.mark.parametrize("back", [5.0, 60.0, 1800.0, 86400.0])
def test_a_clock_that_is_set_back_does_not_make_a_job_wait_longer(
    queue: Queue, back: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(queue, "false", retries=2, backoff=8.0)
    queue.step([CPU])
    eventually(lambda: ended(queue, job) or queue.get(job).tries)
    waits, now = queue.get(job), time.time()
    assert 0 < remaining_delay(waits, now) <= 8.0
    assert remaining_delay(waits, now - back) <= 8.1


def test_a_working_folder_that_was_deleted_is_named_in_the_failure(
    queue: Queue, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    job = submit_all(queue, [Spec(("true",), "x", str(folder))], [CPU])[0].id
    folder.rmdir()
    queue.step([CPU])
    eventually(lambda: ended(queue, job))
    state = queue.get(job).state
    assert (
        isinstance(state, Failed)
        and str(state.reason)
        == f"cannot start 'true' in {folder}: there is no such folder any more"
    )


def test_arguments_that_the_kernel_refuses_are_refused_on_submission(queue: Queue) -> None:
    """Compare the limit with that of the kernel, to the byte."""
    longest = "x" * (MAX_ARGUMENT - 1)
    for argument in (longest + "x", "ü" * (MAX_ARGUMENT // 2)):
        with pytest.raises(
            UserError, match="an argument must be shorter than 128 KiB: write it to a file"
        ):
            submit(queue, "true", argument)
    job = submit(queue, "true", longest)
    queue.step([CPU])
    eventually(lambda: ended(queue, job))
    assert isinstance(queue.get(job).state, Done)


@pytest.mark.parametrize("why", ["folder", "environment"])
def test_the_place_of_a_job_that_cannot_start_goes_to_the_next_in_the_same_pass(
    queue: Queue, store: Store, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start the other job in the same pass, as there may be no other for hours."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    first, second = submit(queue, env={"A": "1"}), submit(queue)
    if why == "environment":
        store.connection.execute("UPDATE environments SET env = '{}' WHERE env LIKE '%A%'")
    else:
        prepare = local.next_folder

        def in_the_way(job: Job) -> Path:
            if job.id == first:
                raise attempts.FolderError("in the way")
            return prepare(job)

        monkeypatch.setattr(local, "next_folder", in_the_way)
    queue.step([CPU])
    assert isinstance(queue.get(second).state, Running)
    eventually(lambda: ended(queue, second))
    assert isinstance(queue.get(second).state, Done)


def test_simultaneous_ends_are_reaped_together_and_retried_slowly_on_a_full_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Count the tries, as each scans all processes while the daemon answers nobody."""
    tried: list[list[int]] = []
    full = True

    def reap(jobs: Iterable[int]) -> None:
        tried.append(list(jobs))
        if full:
            raise UserError("the disk is full")

    async def end_thirty() -> None:
        nonlocal full
        runners = RunnerWatch(reap, NoticeBoard(lambda: None), lambda: None, lambda job: None)
        monkeypatch.setattr(runner_watch, "RETRY_S", 3600.0)
        monkeypatch.setattr(runner_watch, "BATCH", 20)
        monkeypatch.setattr(runner_watch, "PAUSE_S", 0.0)
        for job in range(30):
            runners.runner_ended(job)
        while len(tried) < 2:
            await asyncio.sleep(0)
        assert tried == [list(range(20)), list(range(20, 30))], "others are answered in between"
        for _ in range(5):
            runners.retry()
        assert len(tried) == 2, "not before some time has passed"
        monkeypatch.setattr(runner_watch, "RETRY_S", 0.0)
        runners.reap(range(20))
        for _ in range(5):
            runners.retry()
        assert tried[2:] == [list(range(20))] * 6
        full = False
        runners.retry()
        runners.retry()
        assert tried[-1] == list(range(20, 30))
        assert not runners.unstored

    asyncio.run(end_thirty())


def test_all_running_jobs_are_adopted_on_a_full_disk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Local(lambda job, runner: None)
    queue = make_queue(store, local=last)
    ran, runs = submit(queue), submit(queue, "sleep", "600")
    queue.step([CPU])
    left = [queue.get(ran), queue.get(runs)]
    eventually(lambda: not lives(queue.get(ran).state.runner))  # type: ignore[union-attr]
    watched: list[int] = []
    again = make_queue(store, lambda job, runner: watched.append(job))
    monkeypatch.setattr(
        store, "update_all", lambda *_: (_ for _ in ()).throw(UserError("the disk is full"))
    )
    for _ in range(3):
        with pytest.raises(UserError, match="the disk is full"):
            again.recover()
    assert watched == [runs], "watched once, after one that could not be stored"
    monkeypatch.undo()
    again.recover()
    assert isinstance(again.get(ran).state, Done)
    again.canceller.cancel(runs)
    eventually(lambda: ended(again, runs))
    last.kill(left)  # reap the runners, as their daemon is gone
