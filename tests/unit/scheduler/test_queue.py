"""Drive the queue by hand, as a daemon's loop would, on a real store with real runners."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.executors import local
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Done, Failed, Spec
from gpudeck.scheduler.protocol.turns import finish
from gpudeck.scheduler.protocol.wait_reasons import OtherDevices, StartFailed
from gpudeck.scheduler.queue import job_index, planner, queries
from gpudeck.scheduler.store import Store
from tests.support import eventually, lives
from tests.unit.scheduler.own_queue import CPU, GPU, ended, make_queue, submit_all, wait_reason


def test_a_job_submitted_before_the_devices_are_known_is_for_the_first_that_are(
    store: Store,
) -> None:
    queue = make_queue(store)
    queue.groups.pause(True)
    job = submit_all(queue, [Spec(("true",), "a", "/", gpus=1)], [])[0]
    queue.step([GPU])
    assert store.get(job.id).spec.kind == "nvidia"
    again = make_queue(store)
    again.groups.pause(False)
    again.step([CPU])
    assert wait_reason(again, job.id) == OtherDevices("nvidia", "cpu")


class Clock:
    """Stop the clock by which a failed start is tried again, until a test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        for module in (job_index, planner):
            monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


@pytest.fixture
def immovable(home: Path) -> Iterator[Callable[[int], None]]:
    """Return a function that mounts a file system on a job's folder, which then cannot be moved."""
    mounted: list[Path] = []

    def mount(job: int) -> None:
        folder = paths.ensure(paths.job_folder(job))
        command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
        if os.getuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("only root may mount a file system")
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_job_whose_folder_cannot_be_moved_fails_and_delays_no_other(
    store: Store, immovable: Callable[[int], None]
) -> None:
    queue = make_queue(store)
    first, second = (
        submit_all(queue, [Spec(("true",), "a", "/", gpus=1)], [CPU])[0] for _ in range(2)
    )
    immovable(first.id)
    queue.step([CPU])
    state = queue.get(first.id).state
    assert isinstance(state, Failed)
    assert f"{first.id} holds an older job of this number, and cannot be moved: " in str(
        state.reason
    )
    queue.step([CPU])
    eventually(lambda: ended(queue, second.id))
    assert isinstance(queue.get(second.id).state, Done)


def test_a_job_that_cannot_be_watched_never_runs_and_is_tried_again_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse to watch a runner, as when the daemon has no descriptor left."""
    runners: list[int] = []

    def watch(job: int, runner: int) -> None:
        runners.append(runner)
        if job == 1 and len(runners) == 1:
            raise UserError("no more processes can be watched")

    clock = Clock(monkeypatch)
    queue = make_queue(store, watch)
    first, second = (submit_all(queue, [Spec(("true",), "a", "/")], [CPU])[0] for _ in range(2))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for _ in range(3):
        with pytest.raises(UserError, match="no more processes can be watched"):
            queue.step([CPU])
    assert wait_reason(queue, first.id) == StartFailed("no more processes can be watched")
    assert not lives(runners[0])
    assert len(runners) == 2, "it was tried once, and the other one started"
    queue.reap([first.id])  # a watch that came too late
    eventually(lambda: ended(queue, second.id))
    clock.now += job_index.RETRY_S
    queue.step([CPU])
    eventually(lambda: ended(queue, first.id))
    assert isinstance(queue.get(first.id).state, Done)


def test_a_job_starts_with_an_empty_folder_whatever_an_older_store_left_there(store: Store) -> None:
    queue = make_queue(store)
    folder = paths.ensure(paths.job_folder(1))
    (folder / "log").write_text("of the old job 1\n")
    (paths.ensure(folder / "artefacts") / "plot.svg").write_text("<svg/>")
    job = submit_all(queue, [Spec(("echo", "new"), "a", "/")], [CPU])[0]
    queue.step([CPU])
    eventually(lambda: ended(queue, job.id))
    assert (folder / "log").read_text() == "new\n"
    assert list((folder / "artefacts").iterdir()) == []
    (old,) = folder.parent.glob("1.old-*")
    assert (old / "log").read_text() == "of the old job 1\n"
    assert (old / "artefacts" / "plot.svg").exists()


def test_a_job_that_is_prepared_again_leaves_no_folder_behind(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(store)
    job, clock = submit_all(queue, [Spec(("true",), "a", "/")], [CPU])[0], Clock(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(local.sys, "executable", "/nowhere")
        with pytest.raises(UserError, match="no process can be started: No such file or directory"):
            queue.step([CPU])
    clock.now += job_index.RETRY_S
    queue.step([CPU])
    eventually(lambda: ended(queue, job.id))
    assert [f.name for f in (paths.home() / "jobs").iterdir()] == ["1"]


@pytest.mark.parametrize("active", [True, False])
def test_the_length_of_a_list_is_limited(
    store: Store, monkeypatch: pytest.MonkeyPatch, active: bool
) -> None:
    monkeypatch.setattr(queries, "MAX_LISTED", 2)
    queue = make_queue(store)
    ids = [submit_all(queue, [Spec(("true",), "a", "/")], [CPU])[0].id for _ in range(4)]
    assert [job.id for job in finish(queue.queries.newest(10**9, active))] == [ids[3], ids[2]]
    assert finish(queue.queries.newest(-1, active)) == ()


def test_an_event_is_added_to_jobs_that_wait_and_to_jobs_that_ended(store: Store) -> None:
    queue = make_queue(store)
    job = submit_all(queue, [Spec(("true",), "a", "/")], [CPU])[0].id
    queue.add_event(job, "note", "first")
    queue.canceller.cancel(job)
    queue.add_event(job, "note", "second")
    texts = [(event.what, event.text) for event in make_queue(store).queries.timeline(job)]
    assert [text for text in texts if text[0] == "note"] == [("note", "first"), ("note", "second")]
    assert make_queue(store).queries.get(job).status == "cancelled"
    with pytest.raises(NotFound):
        queue.add_event(job + 1, "note", "nobody")
