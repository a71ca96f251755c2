"""Attack the evidence of which attempts began: no job runs twice, and none is queued for ever."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gpudeck.scheduler.executors import local as local_module
from gpudeck.scheduler.executors import tickets
from gpudeck.scheduler.executors.local import Local
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.jobs import Failed, Job, Lost, Queued, Running, Spec, Starting
from gpudeck.scheduler.queue import job_index
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.queue.transitions import MAX_UNBEGUN
from gpudeck.scheduler.store import Store
from tests.support import LACKS, eventually, lives
from tests.unit.scheduler.own_queue import CPU, ended, make_queue, submit

ENV = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_index, "RETRY_S", 0.001)


def finish(queue: Queue, job: int) -> None:
    """Start and reap the job until it has ended."""

    def over() -> bool:
        queue.step([CPU])
        return ended(queue, job)

    eventually(over)


def ledger(tmp_path: Path) -> list[str]:
    file = tmp_path / "ran"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    "damage",
    [
        'rm -f "$F/runner.lock"',
        'rm -f "$F/runner.lock"; mkdir "$F/runner.lock"',
        ': > "$F/runner.lock"',
        'rm -rf "$F/../../attempts"',
        'rm -rf "$F"',
    ],
)
def test_a_job_that_destroys_the_evidence_and_kills_its_runner_is_lost_and_ran_once(
    store: Store, tmp_path: Path, damage: str
) -> None:
    queue = make_queue(store)
    code = f'F="$GPUDECK_ARTEFACTS/.."; echo ran >> {tmp_path}/ran; {damage}; kill -9 $PPID'
    job = submit(queue, "sh", "-c", code, env=ENV, retries=2)
    finish(queue, job)
    assert isinstance(queue.get(job).state, Lost)
    queue = make_queue(store)
    queue.recover()
    queue.step([CPU])
    assert isinstance(queue.get(job).state, Lost)
    assert ledger(tmp_path) == ["ran"]


def test_a_job_that_puts_a_folder_in_place_of_its_mark_is_tried_as_often_as_requested(
    queue: Queue, tmp_path: Path
) -> None:
    code = f'echo ran >> {tmp_path}/ran; cd "$GPUDECK_ARTEFACTS/.."; rm runner.lock; '
    code += "mkdir runner.lock exit.json exit.new; exit 3"
    job = submit(queue, "sh", "-c", code, env=ENV, retries=1, backoff=0.0)
    finish(queue, job)
    state = queue.get(job).state
    assert isinstance(state, Failed)
    assert state.code == 3
    assert ledger(tmp_path) == ["ran"] * 2


def test_a_record_is_not_written_through_a_link(queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    code = f'cd "$GPUDECK_ARTEFACTS/.." && ln -s {tmp_path}/mine exit.new'
    job = submit(queue, "sh", "-c", code, env=ENV)
    finish(queue, job)
    assert queue.get(job).status == "done"
    assert (tmp_path / "mine").read_text() == "keep"


def test_an_attempt_whose_ticket_is_missing_does_not_begin_and_is_made_again(
    store: Store, tmp_path: Path
) -> None:
    """Remove the tickets of attempts that wait at their gates, as another job may do."""
    local = Local(lambda job, runner: None)
    queue = make_queue(store, local=local)
    job = submit(queue, "sh", "-c", f"echo ran >> {tmp_path}/ran", env=ENV)
    prepare = local.prepare

    def robbed(*args: object) -> Running:
        local.prepare = prepare  # type: ignore[method-assign]
        state = prepare(*args)  # type: ignore[arg-type]
        shutil.rmtree(paths.attempts())
        return state

    local.prepare = robbed  # type: ignore[method-assign, assignment]
    finish(queue, job)
    assert queue.get(job).status == "done"
    assert ledger(tmp_path) == ["ran"]
    told = [str(event.text) for event in store.timeline(job) if event.what == "queued again"]
    assert told == ["its runner could not record that it begins: No such file or directory"]


def test_a_job_whose_attempts_never_begin_fails_with_the_reason(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count across restarts of the daemon, which forgets nothing."""

    def deaf() -> local_module.GatedRunner:
        process = subprocess.Popen(["sh", "-c", "read gate; exit 3"], stdin=subprocess.PIPE)
        return local_module.GatedRunner(process, None)

    monkeypatch.setattr(local_module, "start_runner", deaf)
    local = Local(lambda job, runner: None)
    job = submit(make_queue(store), retries=1000)

    def over() -> bool:
        queue = make_queue(store, local=local)
        queue.recover()
        queue.step([CPU])
        return ended(queue, job)

    eventually(over)
    state = store.get(job).state
    assert isinstance(state, Failed)
    why = "its runner ended before it ran anything"
    assert str(state.reason) == f"none of {MAX_UNBEGUN} attempts began: {why}"
    what = [event.what for event in store.timeline(job)]
    assert what == [
        "submitted",
        *["started", "queued again"] * (MAX_UNBEGUN - 1),
        "started",
        "failed",
    ]
    queue = make_queue(store)
    queue.recover()
    queue.checkpoint()
    assert not list(paths.attempts().iterdir())


def test_an_attempt_that_began_and_that_the_store_forgot_is_lost(
    store: Store, tmp_path: Path
) -> None:
    """Set the store back to before the runner was committed, and remove the job's own mark."""
    local = Local(lambda job, runner: None)
    queue = make_queue(store, local=local)
    code = f'echo ran >> {tmp_path}/ran; rm "$GPUDECK_ARTEFACTS/../runner.lock"; exec sleep 600'
    job = submit(queue, "sh", "-c", code, env=ENV)
    waiting = store.get(job)
    queue.step([CPU])
    state = queue.get(job).state
    assert isinstance(state, Running)
    eventually(lambda: ledger(tmp_path))
    for forgotten in (Starting(state.attempt, (), 1.0), Queued()):
        store.update(msgspec.structs.replace(waiting, state=forgotten))
        os.kill(state.runner, signal.SIGKILL)
        eventually(lambda: not lives(state.runner))
        again = make_queue(store)
        again.recover()
        again.step([CPU])
        assert isinstance(again.get(job).state, Lost)
    local.kill([queue.get(job)])
    assert ledger(tmp_path) == ["ran"]


def test_the_ticket_of_an_older_job_of_the_same_number_does_not_count(
    store: Store, tmp_path: Path
) -> None:
    paths.ensure(paths.attempts())
    old = Job(1, Spec(("true",), "old", "/"), 1.0, Running("old", ("cpu",), 1.0, 1, 1, "boot"))
    tickets.issue(paths.attempts() / "old.began", msgspec.json.encode(old))
    queue = make_queue(store)
    job = submit(queue, "sh", "-c", f"echo ran >> {tmp_path}/ran", env=ENV)
    assert job == 1
    queue = make_queue(store)
    queue.recover()
    finish(queue, job)
    assert queue.get(job).status == "done"
    assert ledger(tmp_path) == ["ran"]
    queue.checkpoint()
    assert not list(paths.attempts().iterdir()), "what nobody holds is swept"


@pytest.mark.skipif(
    shutil.which("strace") is None,
    reason=f"{LACKS} strace, which shows the order of the calls. Install it: apt install strace",
)
def test_it_is_on_disk_that_an_attempt_began_before_its_command_starts(
    queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    start = subprocess.Popen

    def traced(argv: list[str], **more: object) -> subprocess.Popen[bytes]:
        watch = ["strace", "-f", "-y", "-qq", "-o", str(calls), "-e"]
        return start([*watch, "trace=rename,renameat,fsync,execve", *argv], **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(local_module.subprocess, "Popen", traced)
    job = submit(queue, sys.executable, "-S", "-c", "import sys; sys.exit(5)", env=ENV)
    finish(queue, job)
    state = queue.get(job).state
    assert isinstance(state, Failed) and state.code == 5
    lines = calls.read_text().splitlines()
    began = next(i for i, line in enumerate(lines) if re.search(r'rename.*\.began"', line))
    command = next(i for i, line in enumerate(lines) if "execve(" in line and "sys.exit(5)" in line)
    folder = re.compile(rf"fsync\(\d+<{paths.attempts()}>\) += 0")
    synced = [i for i, line in enumerate(lines) if folder.search(line)]
    assert began < synced[0] < command
    mark = re.compile(r"fsync\(\d+<[^>]*/runner\.lock>\) += 0")
    assert any(mark.search(line) for line in lines[:command])


def test_a_runner_that_took_its_ticket_is_known_to_live(queue: Queue) -> None:
    job = submit(queue, "sleep", "600", env=ENV)
    queue.step([CPU])
    state = queue.get(job).state
    assert isinstance(state, Running)
    ticket = paths.attempts() / state.attempt
    eventually(lambda: tickets.is_locked(ticket))
    tickets.sweep(paths.attempts(), ())
    assert tickets.is_locked(ticket), "the ticket of a runner that lives is not swept"
    queue.canceller.cancel(job)
    eventually(lambda: not lives(state.runner))
    # a process that the runner has forked may hold the ticket a moment longer
    eventually(lambda: not tickets.is_locked(ticket))
    eventually(lambda: ended(queue, job))
