"""Use one state folder from two PID namespaces, as from a machine and a container on it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpudeck.scheduler.background.process_stat import boot_id, pid_namespace
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.executors.inspection import ELSEWHERE
from gpudeck.scheduler.executors.local import kill_remains
from gpudeck.scheduler.protocol.jobs import Done, Running
from tests.integration.deck import answers, python, running
from tests.support import command_of, eventually, lives, send, users_of

WAIT_S = 30.0
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")
WAIT = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nsys.exit(0)"


@pytest.fixture(autouse=True)
def namespaces() -> None:
    try:
        refused = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        refused = 1
    if refused:
        pytest.skip("no PID namespace can be made here")


@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_pid_of_another_namespace_kills_no_process_of_this_one(elsewhere: bool) -> None:
    """Leave a process in the session of a leader that is gone, as runners leave theirs."""
    code = "sleep 600 >/dev/null 2>&1 & echo $!"
    leader = subprocess.Popen(
        ["sh", "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    bystander = int(leader.communicate()[0])
    namespace = pid_namespace() + elsewhere
    state = Running("nonce", (), 1.0, leader.pid, 1, boot_id(), namespace=namespace)
    kill_remains([state], recorded=True)
    try:
        eventually(lambda: lives(bystander) is elsewhere)
    finally:
        send(bystander, signal.SIGKILL)


@pytest.mark.slow
def test_a_job_of_another_namespace_runs_on_and_its_end_is_stored(
    cpu_home: Path, tmp_path: Path
) -> None:
    go, submit = (
        tmp_path / "go",
        [sys.executable, "-P", "-m", "gpudeck", "submit", "--gpus", "1", "--"],
    )
    inside = subprocess.Popen(
        [*UNSHARE, "sh", "-c", '"$@"; read end', "sh", *submit, *python(WAIT, go)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        with Client(start=False) if eventually(answers) else Client() as deck:
            (job,) = eventually(deck.jobs)
            runner = running(deck, job)
            assert runner.namespace != pid_namespace()
        daemons = [p for p in users_of(cpu_home) if b"gpudeck.scheduler.daemon" in command_of(p)]
        for pid in daemons:
            send(pid, signal.SIGKILL)
        eventually(lambda: not any(map(lives, daemons)) and not answers())
        with Client() as deck:
            eventually(lambda: running(deck, job).note == ELSEWHERE)
            waiting = deck.submit(["true"], gpus=1)
            assert deck.job(waiting.id).status == "queued", "its device is not given away"
            go.touch()
            assert isinstance(deck.wait(job.id, WAIT_S).state, Done)
            assert isinstance(deck.wait(waiting.id, WAIT_S).state, Done)
    finally:
        inside.communicate(b"\n")
