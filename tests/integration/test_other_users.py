"""Leave processes of other users on a GPU, as sudo does, where the deck may not kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.jobs import Cancelled, Done, Job, Running
from gpudeck.scheduler.protocol.settings import Settings
from tests.integration.deck import kill_daemon, ready
from tests.support import eventually, lives, send, state_folder

HERE = Path(__file__).parent / "fake_gpu"
ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
WITHOUT_KILL = ("setpriv", "--bounding-set=-kill,-sys_ptrace", "--inh-caps=-kill,-sys_ptrace")
"""Lets root be refused what every other user is: to kill, and to read, processes of others."""
AS_OTHER = "setpriv --reuid=1 --clear-groups sleep 600"
ON_GPU = (
    f'{AS_OTHER} & echo 1073741824 > "$FAKE_GPU/$!"; echo $!; '
    'until [ "$(stat -c %u "/proc/$!")" = 1 ]; do :; done'
)
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[Path]:
    """Return the folder that is the GPU: processes on it have a file there."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch, state_folder(tmp_path / "home"):
        patch.setenv("FAKE_GPU", str(folder))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
        settings.save(Settings(source="nvml", telemetry_hz=10.0))
        yield folder


@pytest.fixture
def deck(gpu: Path) -> Iterator[Client]:
    start()
    with Client(start=False) as client:
        yield ready(client)


def start() -> None:
    command = [*WITHOUT_KILL, sys.executable, "-P", "-m", "gpudeck", "daemon", "start"]
    subprocess.run(command, check=True, capture_output=True)


def note(deck: Client, job: Job) -> str:
    state = deck.job(job.id).state
    return str(state.note) if isinstance(state, Running) else ""


def other_process(deck: Client, job: Job) -> int:
    return int(eventually(lambda: deck.log(job.id)))


@pytest.mark.parametrize("daemon", ["goes on", pytest.param("is killed", marks=pytest.mark.slow)])
def test_a_gpu_is_held_until_the_processes_of_another_user_have_left_it(
    deck: Client, gpu: Path, daemon: str
) -> None:
    job = deck.submit(["sh", "-c", ON_GPU], gpus=1, memory="2GiB")
    waiting = deck.submit(["true"], gpus=1)
    pid = other_process(deck, job)
    if daemon == "is killed":
        eventually(lambda: "is still on GPU 0" in note(deck, job))
        kill_daemon()
        start()
    expected = f"has ended; process {pid} of daemon (sleep) is still on GPU 0"
    eventually(lambda: note(deck, job) == expected)
    assert deck.job(waiting.id).status == "queued"
    assert lives(pid)
    (gpu / str(pid)).unlink()
    assert isinstance(deck.wait(job.id, WAIT_S).state, Done), "it is not lost"
    assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)
    (event,) = [e for e in deck.timeline(job.id) if e.what == "left behind"]
    assert event.text == f"process {pid} of daemon (sleep)"
    assert lives(pid)
    send(pid, signal.SIGKILL)


def test_a_job_whose_command_is_another_users_keeps_its_gpu_until_that_ends(
    deck: Client, gpu: Path
) -> None:
    become = "setpriv --reuid=1 --clear-groups"
    code = f'echo 1073741824 > "$FAKE_GPU/$$"; echo $$; exec {become} sleep 600'
    job = deck.submit(["sh", "-c", code], gpus=1)
    waiting = deck.submit(["true"], gpus=1)
    pid = other_process(deck, job)
    eventually(lambda: Path(f"/proc/{pid}").stat().st_uid == 1)
    deck.cancel(job.id)
    expected = f"waits for process {pid} of daemon (sleep): end it with sudo kill {pid}"
    eventually(lambda: note(deck, job) == expected)
    assert deck.job(waiting.id).status == "queued"
    send(pid, signal.SIGKILL)
    assert isinstance(deck.wait(job.id, WAIT_S).state, Cancelled)
    assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)
