"""Jobs in containers of a real Podman: folders, logs, ends, and kills of job, runner and daemon."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import kill_daemon, log_of, ready, running
from tests.integration.shell import Shell
from tests.podman import IMAGE, podman, prepare
from tests.support import eventually, lives, state_folder

pytestmark = pytest.mark.xdist_group("podman")
CONTAINER = f"podman:{IMAGE}"
WAITS = "echo begun; exec sleep 1000"


@pytest.fixture(scope="module")
def deck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the state folder of a daemon whose jobs find a Podman of the test's own."""
    folder = tmp_path_factory.mktemp("podman")
    with pytest.MonkeyPatch.context() as patch, state_folder(folder / "home") as home:
        prepare(folder, patch)
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
        yield home
        podman("rm", "--all", "--force", check=False)


def containers() -> list[str]:
    return podman("ps", "--all", "--format", "{{.Names}}").stdout.split()


def sleepers(job: int) -> list[int]:
    """The processes of the job's container."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                env = (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if f"GPUDECK_JOB={job}".encode() in env and command.startswith(b"sleep\0"):
                found.append(int(entry.name))
    return found


def test_a_job_sees_its_folder_its_variables_and_leaves_its_result(
    deck: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("from outside")
    more = tmp_path / "more"
    more.mkdir()
    (more / "x").write_text("read only")
    work = tmp_path / "work"
    work.mkdir()
    command = (
        'pwd; id -u; cat "$1/x"; echo; echo kept > out; test -z "$HOME_OF_TEST" && echo "$SEED"; '
        'test -e /etc/hostname-of-host || echo inside; echo "gpus:$CUDA_VISIBLE_DEVICES"; '
        'echo \'{"loss": 2.5}\' > "$GPUDECK_RESULT"; echo a > "$GPUDECK_ARTEFACTS/a"; '
        'echo no > "$1/x" || echo refused; exit 3'
    )
    with Client() as client:
        job = ready(client).submit(
            ["sh", "-c", command, "sh", str(more)], cwd=work, container=CONTAINER,
            mounts=[f"{more}:ro"], env={"SEED": "42"},
        ).wait()  # fmt: skip
        assert log_of(job).split("\n")[:6] == [
            str(work), str(os.getuid()), "read only", "42", "inside", "gpus:",
        ]  # fmt: skip
        assert "refused" in log_of(job)
        assert (job.status, job.state.code) == ("failed", 3)
        assert job.result == {"loss": 2.5}
        assert [file.name for file in client.artefacts(job.id)] == ["a"]
        assert (work / "out").read_text() == "kept\n"
        assert (work / "out").stat().st_uid == os.getuid()
    eventually(lambda: containers() == [])


def test_a_cancelled_job_ends_its_whole_container(deck: Path) -> None:
    with Client() as client:
        job = ready(client).submit(
            ["sh", "-c", "sleep 1000 & sleep 1000 & wait"], container=CONTAINER
        )
        eventually(lambda: len(sleepers(job.id)) == 2)
        client.cancel(job.id)
        assert client.wait(job.id).status == "cancelled"
        assert sleepers(job.id) == []
        eventually(lambda: containers() == [])


def test_a_job_is_adopted_and_runs_once(deck: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = 'echo begun; while ! test -e "$0"; do sleep 0.1; done; echo ended'
    with Client() as client:
        job = ready(client).submit(
            ["sh", "-c", command, str(go)], cwd=tmp_path, container=CONTAINER
        )
        eventually(lambda: "begun" in log_of(job))
    kill_daemon()
    with Client() as client:
        assert ready(client).job(job.id).status == "running"
        go.touch()
        assert client.wait(job.id).status == "done"
        assert log_of(job) == "begun\nended\n"


@pytest.mark.parametrize("crash", [False, True])
def test_a_killed_runner_leaves_no_container(deck: Path, crash: bool) -> None:
    with Client() as client:
        job = ready(client).submit(["sh", "-c", WAITS], container=CONTAINER)
        eventually(lambda: sleepers(job.id))
        state = running(client, client.job(job.id))
    if crash:
        kill_daemon()
    os.kill(state.runner, signal.SIGKILL)
    with Client() as client:
        assert client.wait(job.id).status == "lost"
        assert sleepers(job.id) == []
    eventually(lambda: containers() == [])


def test_an_image_that_is_not_there_fails_with_what_podman_says(deck: Path) -> None:
    with Client() as client:
        job = ready(client).submit(["true"], container="podman:localhost/none:1").wait()
        assert job.status == "failed"
        assert "localhost/none" in log_of(job)


@pytest.mark.parametrize("crash", [False, True])
def test_an_engine_that_hangs_delays_nobody_else(
    alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: bool
) -> None:
    """The engine reads files of the job's user, so that it may do anything."""
    engine, called = tmp_path / "podman", tmp_path / "called"
    engine.write_text(
        f"#!/bin/sh\necho $$ > {called}.new && mv {called}.new {called}.$1\nexec sleep 1000\n"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with Client(timeout=60.0) as client:
        job = ready(client).submit(["true"], container="podman:x")
        eventually(called.with_suffix(".run").exists)
        state = running(client, client.job(job.id))
    if crash:
        kill_daemon()
    os.kill(state.runner, signal.SIGKILL)
    with Client(timeout=60.0) as client:
        eventually(called.with_suffix(".rm").exists)
        hangs = int(called.with_suffix(".rm").read_text())
        assert client.job(job.id).status == "running", "answered while the engine hangs"
        assert lives(hangs)
        os.kill(hangs, signal.SIGKILL)
        assert client.wait(job.id).status == "lost"
