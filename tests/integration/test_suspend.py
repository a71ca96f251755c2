"""A program of the user is taken off the GPU from the command line, and survives the daemon."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpudeck.app.cli import main as cli
from gpudeck.scheduler.background.process_stat import start_time
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.suspension.program import Member, is_stopped
from tests.integration.deck import kill_daemon, ready
from tests.support import eventually, state_folder
from tests.unit.scheduler.stub_cuda import build_library

HERE = Path(__file__).parent / "fake_gpu"
ROOT = Path(__file__).parents[2]
SIZE = 64 * 2**20


@pytest.fixture
def gpu(tmp_path: Path) -> Iterator[Path]:
    """Return the folder that is the GPU, for NVML and for the driver."""
    with stand_in(tmp_path) as folder:
        yield folder


@contextmanager
def stand_in(tmp_path: Path) -> Iterator[Path]:
    """Have a daemon of this process use a GPU that is a folder."""
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / "total").write_text(f"{2**30}\n")
    with pytest.MonkeyPatch.context() as patch, state_folder(tmp_path / "home"):
        patch.setenv("FAKE_GPU", str(folder))
        patch.setenv("STUB_CUDA", str(folder))
        patch.setenv("LD_LIBRARY_PATH", str(build_library(folder)))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(ROOT)]))
        settings.save(Settings(source="nvml", telemetry_hz=10.0))
        yield folder


@pytest.fixture
def program(gpu: Path) -> Iterator[Member]:
    """Start a program that uses the GPU and is no job."""
    process = subprocess.Popen(("sleep", "1000"))
    for name in (f"{process.pid}", f"{process.pid}.size"):
        (gpu / name).write_text(f"{SIZE}\n")
    ticks = start_time(process.pid)
    assert ticks is not None
    yield Member(process.pid, ticks)
    process.kill()
    process.wait()


def listed(pid: int) -> bool:
    with Client() as deck:
        return any(process.pid == pid for d in deck.details() for process in d.processes)


def test_a_program_is_suspended_and_resumed_across_a_crash_of_the_daemon(
    gpu: Path, program: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as deck:
        device = ready(deck).snapshot().devices[0].device.id
    (gpu / "uuid").write_text(device.removeprefix("GPU-").replace("-", ""))
    eventually(lambda: listed(program.pid))
    assert cli.main(["suspend", "--pid", str(program.pid)]) == 0
    assert f"gpudeck resume --pid {program.pid}" in capsys.readouterr().out
    eventually(lambda: is_stopped(program))
    kill_daemon()
    assert cli.main(["suspend"]) == 0
    assert "64.0 MiB  suspended" in capsys.readouterr().out
    assert is_stopped(program)
    assert cli.main(["resume", "--pid", str(program.pid)]) == 0
    assert (gpu / f"{program.pid}.state").read_text() == "0\n"
    assert not is_stopped(program)
    capsys.readouterr()
    assert cli.main(["suspend"]) == 0
    assert capsys.readouterr().out == "Nothing is suspended.\n"


@pytest.mark.parametrize(
    ("answer", "verdict", "words"),
    [
        (0, "ok", "possible"),
        (3, "warning", "not possible: the NVIDIA driver does not start: CUDA_ERROR_INVALID_VALUE"),
    ],
)
def test_the_doctor_says_whether_programs_can_be_suspended(
    gpu: Path, capsys: pytest.CaptureFixture[str], answer: int, verdict: str, words: str
) -> None:
    (gpu / "init.code").write_text(str(answer))
    cli.main(["doctor", "--json"])
    findings = {found["what"]: found for found in json.loads(capsys.readouterr().out)}
    assert findings["suspending programs"] == {
        "what": "suspending programs",
        "verdict": verdict,
        "words": words,
    }


def test_a_process_that_uses_no_gpu_is_refused(
    gpu: Path, program: Member, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as deck:
        ready(deck)
    assert cli.main(["suspend", "--pid", str(os.getpid())]) == 1
    assert "does not use a GPU" in capsys.readouterr().err
    with Client() as deck, pytest.raises(UserError, match="no suspended program"):
        deck.resume_process(program.pid)
