"""Commands whose daemon hangs or dies, whose output is closed, or that are ended by a signal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli import connection
from gpudeck.app.cli.main import main
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.devices.trace import read
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.verbs.submit import check_folders
from tests.integration.deck import daemon_pid, python, ready, running
from tests.integration.shell import Shell, gpudeck
from tests.support import eventually, lives, send


@pytest.fixture
def hung(cpu_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the pid of a daemon that was stopped by SIGSTOP."""
    monkeypatch.setattr(connection, "ANSWER_S", 0.3)
    with Client() as deck:
        ready(deck)
    pid = daemon_pid()
    send(pid, signal.SIGSTOP)
    yield pid
    send(pid, signal.SIGCONT)


def test_a_hung_daemon_is_not_called_stopped(hung: int, alone: Shell) -> None:
    line = alone.fails("daemon", "stop")
    assert f"the daemon (pid {hung}) does not answer, and was not stopped" in line
    assert line.endswith("gpudeck daemon stop --force\n")
    assert lives(hung)


def test_the_status_of_a_hung_daemon_says_so(hung: int, capsys: pytest.CaptureFixture[str]) -> None:
    status = connection.daemon_status()
    assert (status.running, status.answers, status.pid) == (True, False, hung)
    assert main(["daemon", "status"]) == 1
    assert capsys.readouterr().out.startswith(f"The daemon (pid {hung}) does not answer.")


def test_a_hung_daemon_is_killed_and_its_jobs_run_on(
    cpu_home: Path, alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_S", 0.3)
    go = tmp_path / "go"
    with Client() as deck:
        job = ready(deck).submit(
            python(
                "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(.01)", go
            )
        )
        running(deck, job)
    pid = daemon_pid()
    send(pid, signal.SIGSTOP)
    assert alone("daemon", "stop", "--force").startswith("The daemon was killed. Running jobs")
    eventually(lambda: not lives(pid))
    assert alone("daemon", "stop") == "The daemon is not running.\n"
    with Client() as deck:
        assert deck.job(job.id).status == "running"
        go.touch()
        assert deck.wait(job.id, 30).status == "done"


@pytest.mark.slow
def test_on_a_terminal_a_person_is_asked(hung: int) -> None:
    near, far = pty.openpty()
    command = [sys.executable, "-m", "gpudeck", "daemon", "stop"]
    with subprocess.Popen(command, stdin=far, stdout=far, stderr=far) as process:
        os.write(near, b"y\n")
        assert process.wait(40) == 0
    os.close(far)
    assert b"does not answer. Kill it? Running jobs continue." in os.read(near, 4096)
    os.close(near)
    eventually(lambda: not lives(hung))


def test_a_folder_that_cannot_be_used_is_refused_in_one_line(
    alone: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = alone.fails("submit", "--cwd", "x" * 300, "--", "true")
    assert "the job cannot run in the folder" in line and "File name too long" in line
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current folder no longer exists" in alone.fails("submit", "--", "true")


def test_a_forbidden_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "shut" / "inside").mkdir(parents=True)
    (tmp_path / "shut").chmod(0)
    user = os.geteuid()
    if user == 0:  # who may enter every folder
        os.seteuid(65534)
    try:
        for folder in (tmp_path / "shut" / "inside", tmp_path / "shut"):
            with pytest.raises(UserError, match=r"cannot run in the folder .*: Permission denied"):
                check_folders([make_spec(["true"], {"cwd": folder})])
    finally:
        os.seteuid(user)
        (tmp_path / "shut").chmod(0o700)


@pytest.mark.parametrize("command", ["jobs", "submit --hold -- true"])
def test_a_closed_output_is_reported_before_anything_is_done(cpu_home: Path, command: str) -> None:
    script = f'exec "{sys.executable}" -m gpudeck {command} >&-'
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr == (
        "gpudeck: standard output is closed. To discard the output, use: >/dev/null\n"
    )
    assert not (cpu_home / "jobs").exists()


@pytest.mark.slow
def test_closed_errors_do_not_reach_another_file(cpu_home: Path) -> None:
    script = f'exec "{sys.executable}" -m gpudeck jobs 7 2>&- <&-'
    ended = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_recording_that_is_terminated_keeps_what_it_has(cpu_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.gz"
    command = [sys.executable, "-m", "gpudeck", "record", str(file), "--seconds", "100"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        eventually(file.exists)
        with Client() as deck:
            at = deck.snapshot().time
            eventually(lambda: deck.snapshot().time > at + 1.5)
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert "interrupted: " in errors and "Traceback" not in errors
    _, moments = read(file)
    assert list(moments)


@pytest.mark.slow
def test_ask_reports_a_daemon_that_hangs_or_died(cpu_home: Path) -> None:
    assert gpudeck("ask", "how hot is the gpu?").returncode == 0
    pid = daemon_pid()
    send(pid, signal.SIGSTOP)
    with subprocess.Popen(
        [sys.executable, "-m", "gpudeck", "ask", "how hot is the gpu?"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
        send(pid, signal.SIGKILL)
        out, errors = process.communicate(timeout=60)
    assert (out, process.returncode) == ("", 1)
    (line,) = errors.splitlines()
    assert line.startswith("gpudeck: the daemon stopped answering before the request was finished.")
