"""What users, clocks and disks do to a queue that works: folders deleted, clocks set back, full disks. Real store, real runners."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler import paths
from scheduler.devices.model import Device
from scheduler.errors import UserError
from scheduler.executors import base
from scheduler.jobs import Done, Failed, Lost, Queued, Running, Spec
from scheduler.queue import queue as module
from scheduler.queue.admit import MAX_ARGUMENT
from scheduler.queue.queue import Queue
from scheduler.queue.retry import rests
from scheduler.store import Store
from tests.support import eventually, lives

CPU = Device("cpu", 0, "EPYC", "cpu")


@pytest.fixture
def store(home: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = Store(paths.store_file())
    yield found
    found.close()


@pytest.fixture
def queue(store: Store) -> Queue:
    return Queue(store, lambda job, runner: None)


def submit(queue: Queue, *argv: str, **more: object) -> int:
    return queue.submit([Spec(argv or ("true",), "x", "/", **more)], [CPU])[0].id  # type: ignore[arg-type]


def ended(queue: Queue, job: int) -> bool:
    state = queue.get(job).state
    if isinstance(state, Running) and not lives(state.runner):
        queue.runner_ended(job)
    return not queue.get(job).active


@pytest.mark.parametrize("how", ["ends", "killed"])
@pytest.mark.parametrize("what", ["folder", "content"])
def test_a_job_whose_folder_is_deleted_while_it_runs_does_not_run_again(queue: Queue, tmp_path: Path, how: str, what: str) -> None:
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    code = f"echo $GPUDECK_ATTEMPT >> {ledger}; while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    job = submit(queue, "sh", "-c", code, env={"PATH": os.environ["PATH"]})
    queue.step([CPU])
    eventually(ledger.exists)
    state, folder = queue.get(job).state, paths.job_folder(job)
    assert isinstance(state, Running)
    for entry in [folder] if what == "folder" else list(folder.iterdir()):
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    if how == "killed":
        os.kill(state.runner, signal.SIGKILL)
    go.touch()
    eventually(lambda: ended(queue, job) or isinstance(queue.get(job).state, Queued))
    found = queue.get(job).state
    if how == "ends":
        assert isinstance(found, Failed) and found.code == 3, "its runner could say how it ended all the same"
    else:
        assert isinstance(found, Lost)
    queue.step([CPU])
    assert len(ledger.read_text().split()) == 1


@pytest.mark.parametrize("back", [5.0, 60.0, 1800.0, 86400.0])
def test_a_clock_that_is_set_back_does_not_make_a_job_wait_longer(queue: Queue, back: float, monkeypatch: pytest.MonkeyPatch) -> None:
    job = submit(queue, "false", retries=2, backoff=8.0)
    queue.step([CPU])
    eventually(lambda: ended(queue, job) or queue.get(job).tries)
    waits, now = queue._active[job], time.time()
    assert 0 < rests(waits, now) <= 8.0
    assert rests(waits, now - back) <= 8.1


def test_what_no_process_can_be_given_is_refused_when_it_is_submitted(queue: Queue) -> None:
    """As the kernel would refuse it, to the byte."""
    longest = "x" * (MAX_ARGUMENT - 1)
    for argument in (longest + "x", "ü" * (MAX_ARGUMENT // 2)):
        with pytest.raises(UserError, match="no process can be given an argument of 128 KiB: put it into a file"):
            submit(queue, "true", argument)
    job = submit(queue, "true", longest)
    queue.step([CPU])
    eventually(lambda: ended(queue, job))
    assert isinstance(queue.get(job).state, Done)


@pytest.mark.parametrize("why", ["folder", "environment"])
def test_a_job_that_cannot_be_started_for_good_leaves_its_place_to_the_next_at_once(
    queue: Queue, store: Store, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same pass: there may be no other for hours."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    first, second = submit(queue, env={"A": "1"}), submit(queue)
    if why == "environment":
        store._db.execute("UPDATE environments SET env = '{}' WHERE env LIKE '%A%'")
    else:
        prepare = module.local.next_folder

        def in_the_way(job: module.Job) -> Path:
            if job.id == first:
                raise base.FolderError("in the way")
            return prepare(job)

        monkeypatch.setattr(module.local, "next_folder", in_the_way)
    queue.step([CPU])
    assert isinstance(queue.get(second).state, Running)
    eventually(lambda: ended(queue, second))
    assert isinstance(queue.get(second).state, Done)
