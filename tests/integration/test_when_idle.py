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
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.when_idle import Interrupted
from tests.integration.deck import kill_daemon, log_of, python, ready, running
from tests.integration.test_eviction import (  # noqa: F401
    LISTS,
    ROOT,
    alone,
    configure,
    deck,
    gpu,
    model,
    model_folder,
    state,
    tenant,
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
        deck.run_when_idle(fail)
    assert "in fail" in "".join(raised.value.__notes__), "where it was raised"


def test_a_job_ends_the_work_at_once_and_the_work_begins_anew(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    told: list[Message] = []
    work = functools.partial(hold, gpu, 5.0, tmp_path / "starts")
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(gpudeck.run_when_idle, work, on_wait=told.append)
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
        found = pool.submit(gpudeck.run_when_idle, work, again=False)
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


ON_GPU = """
import os, pathlib, sys, time
gpu, starts, end = map(pathlib.Path, sys.argv[1:])
with starts.open("a") as file:
    file.write(f"{os.getpid()}\\n")
(gpu / "new").write_text(str(2**30))
(gpu / "new").rename(gpu / str(os.getpid()))
while not end.exists():
    time.sleep(0.01)
"""
"""A job that is on the fake GPU until a file is there."""


def on_gpu(deck: Client, gpu: Path, tmp_path: Path) -> Job:  # noqa: F811
    """Submit a job that runs only while the GPU is idle, and return it once it is there."""
    command = python(ON_GPU, gpu, tmp_path / "starts", tmp_path / "end")
    job = deck.submit(command, when_idle=True)
    eventually(lambda: is_on(gpu, tmp_path / "starts"))
    return job


def is_on(gpu: Path, starts: Path) -> bool:  # noqa: F811
    return any((gpu / str(pid)).exists() for pid in pids(starts))


def why_it_waits(deck: Client, work: Job) -> str:  # noqa: F811
    found = deck.job(work.id).state
    return render(found.wait, time.time()) if isinstance(found, Queued) else ""


def finished(deck: Client, work: Job, tmp_path: Path, starts: int) -> list[str]:  # noqa: F811
    """Let the job end once it has started so often; return what its timeline says."""
    eventually(lambda: len(pids(tmp_path / "starts")) == starts)
    (tmp_path / "end").touch()
    assert deck.wait(work.id, 30.0).status == "done"
    assert not any(map(lives, pids(tmp_path / "starts")))
    return [event.what for event in deck.timeline(work.id)]


def test_a_queued_job_leaves_for_another_one_and_starts_again(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    work = on_gpu(deck, gpu, tmp_path)
    other = deck.submit(python(LISTS, gpu), gpus=1)
    assert deck.wait(other.id, 30.0).status == "done"
    assert alone(gpu, other), f"on the GPU when the job started: {log_of(other)}"
    assert finished(deck, work, tmp_path, 2).count("gives way") == 1


def test_a_queued_job_that_left_is_retried_as_often_as_its_user_asked(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    starts, end = tmp_path / "starts", tmp_path / "end"
    command = python(f"{ON_GPU}sys.exit(3)", gpu, starts, end)
    work = deck.submit(command, when_idle=True, retries=1, backoff=0.01)
    eventually(lambda: is_on(gpu, starts))
    deck.wait(deck.submit(["true"], gpus=1).id, 30.0)
    eventually(lambda: len(pids(starts)) == 2)
    end.touch()
    assert deck.wait(work.id, 30.0).status == "failed"
    assert len(pids(starts)) == 3, "one left, one failed, and one was its retry"
    assert deck.wait(deck.retry(work.id).id, 30.0).status == "failed"
    assert len(pids(starts)) == 5


def test_a_queued_job_waits_until_the_gpu_is_idle(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    other = deck.submit(python(ON_GPU, gpu, tmp_path / "other", tmp_path / "go"), gpus=1)
    running(deck, other)
    foreseen = deck.foresee(["true"], when_idle=True)
    assert foreseen.at is None and foreseen.reason.startswith("runs while GPUs are idle; GPU 0:")
    work = deck.submit(["true"], when_idle=True)
    eventually(lambda: why_it_waits(deck, work).startswith("runs while GPUs are idle; GPU 0: job"))
    (tmp_path / "go").touch()
    assert deck.wait(work.id, 30.0).status == "done"


def test_a_queued_job_leaves_for_a_program_and_for_the_assistant(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    work = on_gpu(deck, gpu, tmp_path)
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as other:
        (gpu / "new").write_text(str(2**30))
        (gpu / "new").rename(gpu / str(other.pid))
        eventually(lambda: deck.job(work.id).status == "queued")
        other.kill()
    eventually(lambda: len(pids(tmp_path / "starts")) == 2)
    with tenant(deck, gpu, "insists"):
        eventually(lambda: deck.job(work.id).status == "queued")
        assert state(deck).leased
    assert finished(deck, work, tmp_path, 3).count("gives way") == 2


def test_a_queued_job_stays_where_the_assistant_could_not_have_the_gpu(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    work = on_gpu(deck, gpu, tmp_path)
    with pytest.raises(UserError):
        GpuLease(print).take(2**40)
    assert "gives way" not in finished(deck, work, tmp_path, 1)


@pytest.mark.parametrize("why", ["its predecessor is held", "its group is paused"])
def test_a_job_that_could_start_on_no_gpu_keeps_none_from_idle_work(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
    why: str,
) -> None:
    deck.set_group("night", paused=True)
    held = deck.submit(["true"], hold=True)
    first = why == "its predecessor is held"
    lists = python(LISTS, gpu)
    other = deck.submit(
        lists, gpus=1, after=(held.id,) if first else (), group="" if first else "night"
    )
    with tenant(deck, gpu):
        assert state(deck).leased
    work = on_gpu(deck, gpu, tmp_path)
    deck.hold(held.id, False)
    deck.set_group("night", paused=False)
    assert deck.wait(other.id, 30.0).status == "done"
    assert alone(gpu, other), f"on the GPU when the job started: {log_of(other)}"
    assert finished(deck, work, tmp_path, 2).count("gives way") == 1


def test_a_queued_job_is_not_lost_by_a_daemon_that_is_killed(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    work = on_gpu(deck, gpu, tmp_path)
    other = deck.submit(python(LISTS, gpu), gpus=1)
    kill_daemon()
    with Client() as again:
        ready(again)
        assert again.wait(other.id, 30.0).status == "done"
        assert alone(gpu, again.job(other.id)), log_of(other)
        assert finished(again, work, tmp_path, 2).count("gives way") == 1


def test_a_queued_job_that_fails_by_itself_has_failed(deck: Client, gpu: Path) -> None:  # noqa: F811
    work = deck.submit([sys.executable, "-c", "raise SystemExit(3)"], when_idle=True)
    assert deck.wait(work.id, 30.0).status == "failed"


def test_a_queued_job_that_is_resumable_saves_its_state_first(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    saves = f"""
import os, pathlib, signal, sys
kept = pathlib.Path(sys.argv[2])
def save(*_):
    kept.write_text("saved")
    os._exit(0)
signal.signal(signal.SIGTERM, save)
if kept.exists():
    sys.exit(0)
sys.argv[2:] = [f"{{kept}}.starts", f"{{kept}}.never"]
{ON_GPU}"""
    work = deck.submit(python(saves, gpu, tmp_path / "kept"), when_idle=True, resumable="TERM")
    eventually(lambda: is_on(gpu, tmp_path / "kept.starts"))
    deck.wait(deck.submit(["true"], gpus=1).id, 30.0)
    assert deck.wait(work.id, 30.0).status == "done"
    assert (tmp_path / "kept").read_text() == "saved"


def test_a_prompt_is_written_by_the_model_once_the_gpu_is_idle(
    deck: Client,  # noqa: F811
    gpu: Path,  # noqa: F811
    model: None,  # noqa: F811
    tmp_path: Path,
) -> None:
    told: list[str] = []
    other = deck.submit(python(ON_GPU, gpu, tmp_path / "other", tmp_path / "go"), gpus=1)
    running(deck, other)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(
            gpudeck.run_when_idle, "Once upon a time", on_wait=lambda why: told.append(str(why))
        )
        eventually(lambda: any(f"job {other.id} runs" in why for why in told))
        (tmp_path / "go").touch()
        assert found.result(120.0)
    assert state(deck).leased, "the model is on the GPU"


def test_a_machine_without_a_gpu_is_refused_in_a_line(deck: Client, gpu: Path) -> None:  # noqa: F811
    deck.configure(source="cpu")
    eventually(lambda: str(deck.snapshot().source).startswith("cpu"))
    with pytest.raises(UserError, match="no NVIDIA GPU is watched here") as raised:
        deck.run_when_idle(fail)
    assert str(raised.value).endswith("until the CPU is idle instead: gpudeck submit --when-idle")
    waits = deck.submit(["true"], when_idle=True)
    said = "runs while the CPU is idle; "
    eventually(lambda: deck.job(waits.id).status == "done" or said in why_it_waits(deck, waits))
