"""Run the queues of two users on the same GPUs: real daemons and jobs, NVML from recordings."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gpudeck.language.numbers import GIB, amount
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.busy_causes import HeldByOthers
from gpudeck.scheduler.protocol.jobs import Done, Job, Lost, Queued
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from gpudeck.scheduler.protocol.snapshot import Busy
from gpudeck.scheduler.protocol.users import user_name
from tests.integration.deck import daemon_pid, python, ready, running
from tests.support import eventually, lives, send, state_folder

ROOT = Path(__file__).parents[2]
HOLDS = """
import os, sys, time
marks = [os.path.join(sys.argv[1], gpu) for gpu in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
for mark in marks:
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))  # fails where another job has the GPU
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
for mark in marks:
    os.unlink(mark)
"""
"""A job that fails where it shares a GPU: python HOLDS FOLDER FILE_THAT_ENDS_IT."""
WAIT_S = 30.0


class Machine(NamedTuple):
    """Two users with a daemon each, who share GPUs."""

    a: Client
    b: Client
    held: Path
    """The folder in which jobs mark the GPUs that they hold."""
    go: Path
    """The jobs end once this exists."""

    def submit(self, deck: Client, gpus: int = 1, **more: object) -> Job:
        return deck.submit(python(HOLDS, self.held, self.go), gpus=gpus, **more)  # type: ignore[arg-type]


@pytest.fixture
def machine(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """Provide two daemons on a machine with as many GPUs as the test's parameter names."""
    nvml, locks, held = tmp_path / "nvml.json", tmp_path / "locks", tmp_path / "held"
    nvml.write_text(f'{{"gpus": {request.param}}}')
    locks.touch()
    held.mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests' / 'integration' / 'edge'}:{ROOT}")
    monkeypatch.setenv("RECORDED_NVML", str(nvml))
    with state_folder(tmp_path / "a"):
        a = client(locks, monkeypatch)
        with state_folder(tmp_path / "b"):
            b = client(locks, monkeypatch)
            with a, b:
                yield Machine(a, b, held, tmp_path / "go")


def client(locks: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("GPUDECK_GPU_LOCKS", str(locks))
    settings.save(Settings(source="nvml", idle_dwell_s=0.0, model_folder=TEMPLATE))
    deck = ready(Client())
    eventually(lambda: all(d.reading for d in deck.snapshot().devices))
    return deck


def reason(deck: Client, job: Job) -> str:
    state = deck.job(job.id).state
    assert isinstance(state, Queued), state
    return state.reason


@pytest.mark.parametrize("machine", [8], indirect=True)
def test_two_queues_never_hold_a_gpu_at_once_and_use_all(machine: Machine) -> None:
    jobs = [(deck, machine.submit(deck)) for _ in range(6) for deck in (machine.a, machine.b)]
    eventually(lambda: len(list(machine.held.iterdir())) == 8)
    waiting = [(deck, job) for deck, job in jobs if deck.job(job.id).status == "queued"]
    assert len(waiting) == 4
    first = {id(deck): (deck, job) for deck, job in reversed(waiting)}
    for deck, job in first.values():  # at first a GPU may have been just taken
        eventually(lambda d=deck, j=job: "is held by another user's queue" in reason(d, j))  # type: ignore[misc]
    machine.go.touch()
    ends = [deck.wait(job.id, WAIT_S).state for deck, job in jobs]
    assert all(isinstance(end, Done) for end in ends), ends


@pytest.mark.parametrize("machine", [1], indirect=True)
def test_a_gpu_of_another_queue_is_waited_for_and_not_lent_until_its_runner_has_ended(
    machine: Machine,
) -> None:
    mine = machine.submit(machine.a)
    runner = running(machine.a, mine).runner
    state = eventually(
        lambda: (
            isinstance((s := machine.b.snapshot().devices[0]).use, Busy)
            and s.use.cause == HeldByOthers()
            and s
        )
    )
    assert str(state.use.reason) == "in use by another user's queue"
    theirs = machine.submit(machine.b)
    said = (
        "needs 1 GPU; 0 free: GPU 0 is held by another user's queue "
        f"(pid {runner} of {user_name(os.getuid())})"
    )
    eventually(lambda: reason(machine.b, theirs) == said)
    assert machine.b.foresee_job(theirs.id).at is None
    next(machine.held.iterdir()).unlink()
    send(runner, signal.SIGKILL)
    assert isinstance(machine.a.wait(mine.id, WAIT_S).state, Lost)
    holder = running(machine.b, theirs).runner
    again = machine.submit(machine.a)
    assert "another user's queue" in reason(machine.a, again)
    send(daemon_pid(), signal.SIGKILL)  # of b, whose runner goes on holding the GPU
    assert lives(holder)
    assert "another user's queue" in reason(machine.a, again)
    machine.go.touch()
    with Client() as b:
        assert isinstance(b.wait(theirs.id, WAIT_S).state, Done)
    assert isinstance(machine.a.wait(again.id, WAIT_S).state, Done)


@pytest.mark.parametrize("jobs", ["deleted", "in the way"])
@pytest.mark.parametrize("machine", [1], indirect=True)
def test_a_job_whose_end_cannot_be_written_leaves_its_gpu_to_other_queues(
    machine: Machine, tmp_path: Path, jobs: str
) -> None:
    mine = machine.submit(machine.a)
    runner = running(machine.a, mine).runner
    eventually(lambda: list(machine.held.iterdir()))
    theirs = machine.submit(machine.b)
    gone = tmp_path / "a" if jobs == "deleted" else tmp_path / "a" / "jobs"
    eventually(lambda: shutil.rmtree(gone, ignore_errors=True) or not gone.exists())
    if jobs != "deleted":
        gone.touch()
    machine.go.touch()
    assert isinstance(machine.b.wait(theirs.id, WAIT_S).state, Done)
    if jobs == "deleted":
        # the daemon, which runs on, may make its folder again
        written = gone / "jobs" / str(mine.id) / "exit.json"
        assert lives(runner) or written.exists(), "it keeps what it knows until that is written"
    else:
        gone.unlink()
        assert isinstance(machine.a.wait(mine.id, 2 * WAIT_S).state, Done)
    send(runner, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [1], indirect=True)
def test_reservations_of_two_queues_share_a_gpu(machine: Machine, tmp_path: Path) -> None:
    go = tmp_path / "shared"
    wait = python(
        "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(.01)", go
    )
    reading = machine.b.snapshot().devices[0].reading
    assert reading is not None
    free = reading.values["mem_free"] / GIB
    theirs, left = int(free) - 25, free - int(free) + 5
    first = machine.a.submit(wait, memory=f"{theirs}GiB")
    running(machine.a, first)
    second = machine.b.submit(wait, memory="20GiB")
    running(machine.b, second)
    third = machine.b.submit(wait, memory="10GiB")
    assert reason(machine.b, third) == (
        f"needs 10 GiB on one GPU; GPU 0 has {amount(left * GIB)} free until job {second.id} ends"
    )
    fourth = machine.b.submit(wait, memory="40GiB", priority=1)
    assert reason(machine.b, fourth).startswith(
        f"needs 40 GiB on one GPU; GPU 0 has {amount(left * GIB)} free; "
        f"another user's queue holds {theirs} GiB (pid "
    )
    alone = machine.a.submit(wait, gpus=1)
    go.touch()
    for deck, job in (
        (machine.a, first),
        (machine.b, second),
        (machine.b, third),
        (machine.b, fourth),
        (machine.a, alone),
    ):
        assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
