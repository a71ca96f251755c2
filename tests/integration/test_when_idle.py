"""Work that runs while a GPU is idle: real processes and a real daemon, the GPU played at its
edge."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gpudeck
from gpudeck.language.text import Message
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.when_idle import Interrupted, run_when_idle
from tests.integration.deck import log_of, python
from tests.integration.test_eviction import (  # noqa: F401
    LISTS,
    ROOT,
    alone,
    configure,
    deck,
    gpu,
    state,
)
from tests.support import eventually, lives

pytestmark = pytest.mark.xdist_group("rwkv")


def hold(gpu: Path, seconds: float, starts: Path) -> str:  # noqa: F811
    """Put a GiB of this process on the fake GPU for a time; return which GPU it saw."""
    with starts.open("a") as file:
        file.write(f"{os.getpid()}\n")
    (gpu / "new").write_text(str(2**30))
    (gpu / "new").rename(gpu / str(os.getpid()))
    time.sleep(seconds)
    return os.environ["CUDA_VISIBLE_DEVICES"]


def fail() -> None:
    raise ValueError("no such checkpoint")


def pids(starts: Path) -> list[int]:
    return [int(line) for line in starts.read_text().split()] if starts.exists() else []


def test_a_function_runs_on_the_idle_gpu_and_returns(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    seen = gpudeck.run_when_idle(
        functools.partial(hold, gpu, 0.3, tmp_path / "starts"), memory="1GiB"
    )
    assert seen == state(deck).device.id
    (pid,) = pids(tmp_path / "starts")
    assert not lives(pid), "only the end of a process frees its memory"
    eventually(lambda: not state(deck).leased)


def test_what_a_function_raises_is_raised_here(deck: Client) -> None:  # noqa: F811
    with pytest.raises(ValueError, match="no such checkpoint") as raised:
        run_when_idle(fail)
    assert "in fail" in "".join(raised.value.__notes__), "where it was raised"


def test_a_job_ends_the_work_at_once_and_the_work_begins_anew(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    told: list[Message] = []
    work = functools.partial(hold, gpu, 5.0, tmp_path / "starts")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(run_when_idle, work, on_wait=told.append)
        eventually(lambda: state(deck).reading.processes)  # type: ignore[union-attr]
        job = deck.submit(python(LISTS, gpu), gpus=1)
        assert deck.wait(job.id, 30.0).status == "done"
        assert alone(gpu, job), f"on the GPU when the job started: {log_of(job)}"
        assert found.result(60.0) == state(deck).device.id
    first, second = pids(tmp_path / "starts")
    assert not lives(first) and not lives(second)
    assert any(str(one).startswith("the GPU was needed: ") for one in told)


def test_work_that_shall_not_begin_anew_is_interrupted(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    work = functools.partial(hold, gpu, 60.0, tmp_path / "starts")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(run_when_idle, work, again=False)
        eventually(lambda: state(deck).reading.processes)  # type: ignore[union-attr]
        deck.wait(deck.submit(["true"], gpus=1).id, 30.0)
        with pytest.raises(Interrupted, match="the GPU was needed"):
            found.result(30.0)


def test_a_command_has_the_gpu_and_its_exit_status_is_that_of_gpudeck(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    said = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); raise SystemExit(7)"
    command = [sys.executable, "-m", "gpudeck", "when-idle", "--", sys.executable, "-c", said]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (7, state(deck).device.id), done.stderr


def test_the_command_ends_with_the_gpudeck_that_runs_it(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    starts = tmp_path / "starts"
    code = f"import os, time; open({str(starts)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = [sys.executable, "-m", "gpudeck", "when-idle", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT) as process:
        (pid,) = eventually(lambda: pids(starts))
        process.kill()
    eventually(lambda: not lives(pid))


def test_a_machine_without_a_gpu_is_refused_in_a_line(deck: Client, gpu: Path) -> None:  # noqa: F811
    deck.configure(source="cpu")
    eventually(lambda: str(deck.snapshot().source).startswith("cpu"))
    with pytest.raises(UserError, match="no NVIDIA GPU is watched here"):
        run_when_idle(fail)
