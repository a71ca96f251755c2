"""Jobs of the queue leave their GPU and come back, whatever ends in between."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpudeck.app.cli import main as cli
from gpudeck.app.dashboard.timeline import current_job_spans
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Failed, Job, Lost, Queued, Running
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.protocol.wait_reasons import NoRoom, NotBefore, Preempts, UsedBy, WaitReason
from tests.integration.deck import ready, running
from tests.integration.suspended_jobs import Machine, goes_on, pid_of, restart, state_of, steps
from tests.integration.test_suspend import SIZE, gpu
from tests.integration.torture import suspension_faults
from tests.support import LACKS, eventually, send

__all__ = ["gpu"]  # the fixture
OTHER = "test -e $FAKE_GPU/stay || exit 0; while test -e $FAKE_GPU/stay; do sleep 0.02; done"


@pytest.fixture
def machine(gpu: Path) -> Iterator[Machine]:
    made = Machine(gpu, ready(Client(timeout=60.0)))
    yield made
    made.deck.close()


def test_another_job_runs_while_one_is_suspended(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    deck, job = machine.deck, machine.train()
    machine.write("stay", "")
    other = deck.submit(["sh", "-c", OTHER], gpus=1, env=dict(os.environ)).job
    assert deck.job(other.id).status == "queued"
    assert cli.main(["suspend", str(job.id)]) == 0
    assert f"gpudeck resume {job.id}" in capsys.readouterr().out
    assert machine.off(job) and state_of(machine) == "2"
    assert deck.job(job.id).state.suspension.memory == SIZE  # type: ignore[union-attr]
    running(deck, other)
    stopped_at = steps(job)
    assert cli.main(["status"]) == 0
    assert "suspended jobs hold 64 MiB of this machine's memory" in capsys.readouterr().out
    assert cli.main(["resume", str(job.id)]) == 0
    assert f"held by job {other.id}" in capsys.readouterr().out
    assert machine.off(job) and steps(job) == stopped_at
    (machine.folder / "stay").unlink()
    eventually(lambda: machine.on(job))
    assert state_of(machine) == "0" and goes_on(job)
    assert deck.job(other.id).status == "done"
    assert machine.events(job)[-4:] == ["suspending", "suspended", "resuming", "resumed"]
    deck.cancel(job.id)
    assert 0 < deck.wait(job.id).state.suspended < time.time() - job.submitted  # type: ignore[union-attr]


@pytest.mark.parametrize(("call", "code"), [("lock", 600), ("checkpoint", 801)])
def test_a_job_that_the_driver_refuses_runs_on(machine: Machine, call: str, code: int) -> None:
    job = machine.train()
    machine.write(f"{call}.code", code)
    with pytest.raises(UserError, match="runs on"):
        machine.deck.suspend_job(job.id)
    assert machine.on(job) and goes_on(job)
    event = machine.deck.timeline(job.id)[-1]
    assert event.what == "not suspended" and "runs on" in str(event.text)


def test_a_job_is_suspended_once_a_probe_that_hangs_is_replaced(machine: Machine) -> None:
    job = machine.train()
    machine.write("hang", "")
    eventually(lambda: not (machine.folder / "hang").exists())
    machine.deck.suspend_job(job.id)
    assert machine.off(job)
    machine.deck.cancel(job.id)


def test_what_does_not_run_is_not_suspended(machine: Machine) -> None:
    deck, job = machine.deck, machine.train()
    waiting = deck.submit(["true"], gpus=1).job
    with pytest.raises(UserError, match="does not run"):
        deck.suspend_job(waiting.id)
    with pytest.raises(UserError, match="not suspended"):
        deck.resume_job(job.id)
    deck.suspend_job(job.id)
    with pytest.raises(UserError, match="suspended already"):
        deck.suspend_job(job.id)


@pytest.mark.parametrize("at", [1e300, -1e300, 2.0**34])
def test_a_return_at_no_moment_of_a_calendar_is_refused(machine: Machine, at: float) -> None:
    job = machine.train()
    with pytest.raises(UserError, match="resume_at"):
        machine.deck.suspend_job(job.id, resume_at=at)
    assert machine.on(job) and machine.events(job)[-1] == "started"
    machine.deck.cancel(job.id)


def test_too_little_host_memory_is_refused(machine: Machine) -> None:
    job = machine.train()
    machine.deck.configure(suspend_spare=2.0**20)
    with pytest.raises(UserError, match="stay free for other programs"):
        machine.deck.suspend_job(job.id)
    assert machine.on(job) and goes_on(job)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the daemon be shared, with root as a user."""
    if os.getuid() != 0:
        pytest.skip(f"{LACKS} root, who runs the shared daemon")
    monkeypatch.setenv("GPUDECK_SYSTEM", "1")
    monkeypatch.setenv("GPUDECK_GROUP", "root")


def test_the_suspended_jobs_of_a_user_hold_so_much_host_memory(
    shared: None, machine: Machine
) -> None:
    gib = SIZE / 2**30
    deck, job = machine.deck, machine.train()
    deck.set_limits("root", UserLimits(suspended_memory=0.9 * gib))
    with pytest.raises(UserError, match="jobs of its user hold 0 MiB of host memory already"):
        deck.suspend_job(job.id)
    assert machine.on(job) and goes_on(job)
    deck.set_limits("root", UserLimits(suspended_memory=1.1 * gib))
    deck.suspend_job(job.id)
    assert machine.off(job)


def test_a_job_waits_for_its_memory_beside_a_foreign_program(machine: Machine) -> None:
    """A restore without room would lose it for ever."""
    job = machine.train()
    machine.deck.suspend_job(job.id)
    machine.write(f"{os.getpid()}.size", 2**30)  # all of the GPU, unknown to NVML
    machine.deck.resume_job(job.id)
    eventually(lambda: machine.events(job).count("resuming") >= 1 and machine.off(job))
    assert "restore" not in (machine.folder / "calls").read_text()
    (machine.folder / f"{os.getpid()}.size").unlink()
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def _is_read_with(machine: Machine, waiting: int) -> bool:
    """Return whether a job that must wait says that a process is on the GPU."""
    state = machine.deck.job(waiting).state
    assert isinstance(state, Queued), state
    return isinstance(state.wait, NoRoom) and isinstance(state.wait.devices[0], UsedBy)


def test_a_job_does_not_start_beside_a_program_that_has_just_come(machine: Machine) -> None:
    """The GPU was read up to a second before, when it was free."""
    machine.deck.configure(telemetry_hz=1.0)
    for _ in range(3):
        eventually(lambda: not any(d.processes for d in machine.deck.details()))
        machine.write(f"{os.getpid()}", SIZE)
        job = machine.deck.submit(["true"], gpus=1).job
        eventually(lambda number=job.id: _is_read_with(machine, number))
        (machine.folder / f"{os.getpid()}").unlink()
        machine.deck.wait(job.id, 60.0)


def test_a_suspended_job_survives_the_daemon(machine: Machine) -> None:
    job = machine.train()
    machine.deck.suspend_job(job.id)
    restart(machine)
    assert machine.off(job) and state_of(machine) == "2"
    machine.deck.resume_job(job.id)
    eventually(lambda: machine.on(job))
    assert goes_on(job)


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
def test_a_daemon_that_dies_at_a_step_is_followed_by_one_that_ends_it(
    machine: Machine, call: str
) -> None:
    job = machine.train()
    if call in ("restore", "unlock"):
        machine.deck.suspend_job(job.id)
    machine.write(f"{call}.slow", 500)
    with Client(timeout=0.2) as impatient, pytest.raises(UserError):
        if call in ("lock", "checkpoint"):
            impatient.suspend_job(job.id)
        else:
            impatient.resume_job(job.id)
            eventually(lambda: machine.deck.job(job.id).state.suspension.phase == "resuming")  # type: ignore[union-attr]
            raise UserError
    restart(machine)
    (machine.folder / f"{call}.slow").unlink()
    eventually(lambda: machine.on(job) or machine.off(job))
    if machine.off(job):
        machine.deck.resume_job(job.id)
    eventually(lambda: machine.on(job))
    assert goes_on(job) and state_of(machine) == "0"


@pytest.mark.parametrize("victim", ["runner", "job"])
def test_the_end_of_a_suspended_job_is_taken_over(machine: Machine, victim: str) -> None:
    job = machine.train()
    state = machine.deck.suspend_job(job.id).state
    assert isinstance(state, Running)
    pid = pid_of(machine)
    send(state.runner if victim == "runner" else pid, signal.SIGKILL)
    ended = machine.deck.wait(job.id).state
    assert isinstance(ended, Lost if victim == "runner" else Failed)
    assert machine.deck.suspended() == ()
    after = machine.deck.submit(["true"], gpus=1).wait()
    assert after.status == "done"


def test_a_job_that_the_driver_cannot_bring_back_is_lost(machine: Machine) -> None:
    job = machine.train()
    machine.deck.suspend_job(job.id)
    machine.write(f"{pid_of(machine)}.state", 3)
    machine.deck.resume_job(job.id)
    state = machine.deck.wait(job.id).state
    assert isinstance(state, Lost) and "could not bring job" in str(state.reason)


def test_a_suspended_job_can_be_cancelled(machine: Machine) -> None:
    job = machine.train()
    machine.deck.suspend_job(job.id)
    machine.deck.cancel(job.id)
    assert machine.deck.wait(job.id).status == "cancelled"


def test_the_charts_show_when_a_job_was_on_its_gpu(machine: Machine) -> None:
    def stays() -> list[Annotation]:
        return [note for note in machine.deck.annotations(0.0) if note.kind == "job"]

    job = machine.train()
    machine.deck.suspend_job(job.id)
    shown = machine.deck.snapshot()
    (now,) = current_job_spans(shown, [machine.uuid], 0.0, shown.time)
    (first,) = stays()
    assert now.end == shown.jobs[0].state.suspension.since and first.until is not None  # type: ignore[union-attr]
    machine.deck.resume_job(job.id)
    eventually(lambda: machine.on(job))
    again, second = stays()
    assert (again.time, again.until) == (first.time, first.until)
    assert second.time > again.until and second.until is None and second.job == job.id  # type: ignore[operator]
    shown = machine.deck.snapshot()
    spans = current_job_spans(shown, [machine.uuid], 0.0, shown.time, (again, second))
    assert [(span.start, span.end) for span in spans] == [
        (again.time, again.until),
        (second.time, shown.time),
    ]


def test_a_job_comes_back_by_itself(machine: Machine) -> None:
    job = machine.train()
    machine.deck.suspend_job(job.id, time.time() + 0.5)
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def test_a_freed_gpu_stays_free_and_its_job_comes_back(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    deck, job = machine.deck, machine.train()
    assert cli.main(["free", "0", "--for", "1h"]) == 0
    printed = capsys.readouterr().out
    assert f"back by themselves afterwards: {job.id}" in printed
    assert machine.off(job) and state_of(machine) == "2"
    waiting = deck.submit(["true"], gpus=1).job
    assert "reserved for work outside of the queue" in deck.job(waiting.id).state.reason  # type: ignore[union-attr]
    assert "reserved" in describe(deck.job(job.id))
    restart(machine)
    assert machine.off(job)
    assert cli.main(["reserve", "cancel", "1"]) == 0
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def test_a_reservation_that_frees_suspends_jobs_when_it_begins(machine: Machine) -> None:
    job = machine.train()
    begin = time.time() + 1.0
    machine.deck.reserve(Booking((machine.uuid,), begin, begin + 5.0, frees=True))
    eventually(lambda: machine.off(job))
    eventually(lambda: machine.on(job))
    assert time.time() >= begin + 5.0 and goes_on(job)


def wait_of(job: Job) -> WaitReason | None:
    return job.state.wait if isinstance(job.state, Queued) else None


def test_a_preemptible_job_makes_way_for_a_higher_priority_and_comes_back(
    machine: Machine,
) -> None:
    deck, job = machine.deck, machine.train(preemptible=True)
    machine.write("stay", "")
    foreseen = deck.foresee(["sh", "-c", OTHER], gpus=1, priority=1)
    assert isinstance(foreseen.wait, Preempts) and foreseen.wait.jobs == (job.id,)
    urgent = deck.submit(["sh", "-c", OTHER], gpus=1, priority=1, env=dict(os.environ)).job
    running(deck, urgent)
    assert machine.off(job) and state_of(machine) == "2"
    (machine.folder / "stay").unlink()
    eventually(lambda: machine.on(job))
    assert goes_on(job) and deck.wait(urgent.id).status == "done"
    machine.write("stay", "")
    again = deck.submit(["sh", "-c", OTHER], gpus=1, priority=1, env=dict(os.environ)).job
    eventually(lambda: isinstance(wait_of(deck.job(again.id)), NoRoom))
    assert machine.on(job), "it was moved less than ten minutes ago"


def test_a_preemptible_job_makes_way_for_a_booking(machine: Machine) -> None:
    job = machine.train(preemptible=True)
    begin = time.time() + 0.5
    machine.deck.reserve(Booking((machine.uuid,), begin, begin + 1000.0, group="guests"))
    eventually(lambda: machine.off(job))
    machine.deck.cancel_booking(1)
    eventually(lambda: machine.on(job))
    assert goes_on(job)


def test_a_job_that_stays_on_a_freed_gpu_is_named(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    job = machine.train()
    machine.write("checkpoint.code", 801)
    assert cli.main(["free", "0"]) == 0
    assert f"Job {job.id} runs on: job {job.id} (sh) cannot be suspended" in capsys.readouterr().out
    assert machine.on(job) and goes_on(job)


RESUMABLE = f"""
trap 'echo saved >> $GPUDECK_ARTEFACTS/state; exit 0' USR1
test -e $GPUDECK_ARTEFACTS/state && exit 7
echo {SIZE} > $FAKE_GPU/$$.size
echo {SIZE} > $FAKE_GPU/$$
while :; do sleep 0.02; done
"""


def start_resumable(machine: Machine) -> Job:
    machine.write("checkpoint.code", 801)
    job = machine.deck.submit(["sh", "-c", RESUMABLE], gpus=1, resumable="USR1").job
    running(machine.deck, job)
    eventually(lambda: machine.users(job))
    return job


def test_a_job_that_cannot_be_suspended_saves_its_state_and_is_queued_again(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    deck, job = machine.deck, start_resumable(machine)
    assert cli.main(["free", "0"]) == 0
    assert f"queued again with their artefacts: {job.id}" in capsys.readouterr().out
    eventually(lambda: deck.job(job.id).status == "queued")
    assert "reserved" in describe(deck.job(job.id))
    assert [path.read_text() for path in deck.artefacts(job.id)] == ["saved\n"]
    deck.cancel_booking(1)
    ended = deck.wait(job.id).state
    assert isinstance(ended, Failed) and ended.code == 7, "it found what it had saved"
    assert machine.events(job).count("started") == 2


def test_a_resumable_job_that_a_person_suspends_waits_for_them(machine: Machine) -> None:
    deck, job = machine.deck, start_resumable(machine)
    deck.suspend_job(job.id)
    restart(machine)
    deck = machine.deck
    eventually(lambda: deck.job(job.id).status == "queued")
    assert deck.job(job.id).spec.hold
    deck.hold(job.id, False)
    assert isinstance(deck.wait(job.id).state, Failed)


def test_a_resumable_job_does_not_start_before_its_return(machine: Machine) -> None:
    deck, job = machine.deck, start_resumable(machine)
    at = time.time() + 1000.0
    deck.suspend_job(job.id, at)
    eventually(lambda: deck.job(job.id).status == "queued")
    restart(machine)
    found = machine.deck.job(job.id)
    assert found.spec.begin == at and not found.spec.hold
    eventually(lambda: isinstance(wait_of(machine.deck.job(job.id)), NotBefore))
    assert machine.events(job).count("started") == 1


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_job_in_a_container_of_its_own_is_not_suspended(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Its processes do not descend from the runner, so they would run on."""
    program = tmp_path / engine
    program.write_text('#!/bin/sh\ntest "$1" = run && exec sleep 1000\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    words = {"container": f"{engine}:image", "env": dict(os.environ)}
    job = machine.deck.submit(["true"], gpus=1, **words).job  # type: ignore[arg-type]
    running(machine.deck, job)
    with pytest.raises(UserError, match=f"in a container of {engine.capitalize()}"):
        machine.deck.suspend_job(job.id)
    assert machine.on(job)
    machine.deck.cancel(job.id)


def test_a_retried_job_goes_on_with_its_artefacts(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    deck = machine.deck
    script = "cat $GPUDECK_ARTEFACTS/state; echo step >> $GPUDECK_ARTEFACTS/state"
    job = deck.submit(["sh", "-c", script]).wait().job
    assert cli.main(["retry", str(job.id), "--artefacts"]) == 0
    again = deck.wait(job.id + 1)
    assert again.status == "done" and deck.log(again.id) == b"step\n"
    assert deck.artefacts(again.id) == deck.artefacts(job.id)
    assert deck.artefacts(job.id)[0].read_text() == "step\nstep\n"
    fresh = deck.wait(deck.retry(again.id).id)
    assert fresh.spec.artefacts_of is None and deck.artefacts(fresh.id)[0].read_text() == "step\n"
    twice = [msgspec.structs.replace(fresh.spec, artefacts_of=job.id, env={})] * 2
    with pytest.raises(UserError, match="the artefacts of the same job"):
        deck.submit_many(twice)
    endless = deck.submit(["sleep", "1000"]).job
    with pytest.raises(UserError, match="has not ended yet"):
        deck.retry(endless.id, artefacts=True)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("schedules", [6, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_fault_loses_a_job_runs_it_twice_or_leaves_it_stopped(
    tmp_path: Path, schedules: int
) -> None:
    struck, wrong = suspension_faults.run(tmp_path, schedules, seed=schedules)
    assert wrong == [] and struck.total() == schedules
