"""The daemon in the foreground, kept alive by real supervisors, where there is no systemd."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpudeck.app.cli.connection import daemon_status
from gpudeck.app.cli.system import init_script, system_unit
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Running
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.deck import ready, running
from tests.integration.shell import Shell
from tests.support import LACKS, eventually

RUN = (sys.executable, "-m", "gpudeck", "daemon", "run")


def end(pid: int, how: signal.Signals = signal.SIGKILL) -> None:
    """End a process and wait until nobody finds it."""
    process = os.pidfd_open(pid)
    signal.pidfd_send_signal(process, how)
    os.close(process)
    eventually(lambda: daemon_status().pid != pid)


def test_a_daemon_in_the_foreground_ends_as_its_supervisor_asks(alone: Shell) -> None:
    alone("daemon", "stop")
    with subprocess.Popen(RUN, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None and daemon.stdout.readline() == "ready\n"
        assert daemon_status().pid == daemon.pid
        assert "runs already" in alone.fails("daemon", "run")
        with Client(start=False) as deck:
            job = ready(deck).submit(["sleep", "60"])
            running(deck, job)
        daemon.terminate()
        assert daemon.wait(20) == 0
    with Client() as deck:
        assert isinstance(deck.job(job.id).state, Running)
        deck.cancel(job.id)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the place of a shared daemon of root, whose only member is root."""
    if os.getuid() != 0:
        pytest.skip(f"{LACKS} root, who runs the shared daemon")
    try:
        for place in (Path(sys.executable).resolve(), Path(paths.__file__).parents[2]):
            system_unit.check_trusted(place)
    except UserError as e:
        pytest.skip(f"{LACKS} a Python that only root can change: {e}")
    folder = Path(tempfile.mkdtemp(prefix="gpudeck-shared-", dir="/tmp"))
    state = folder / "state"
    state.mkdir()
    with monkeypatch.context() as patch:
        patch.setenv("GPUDECK_HOME", str(state))
        settings.save(Settings(source="cpu", model_folder=TEMPLATE))
    monkeypatch.delenv("GPUDECK_HOME", raising=False)
    monkeypatch.setenv("GPUDECK_SHARED", str(state))
    monkeypatch.setenv("GPUDECK_GROUP", "root")
    try:
        yield state
    finally:
        shutil.rmtree(folder)


def runs_on_after_kills() -> None:
    """Kill the shared daemon twice: it is started again, and its job runs on."""
    eventually(lambda: daemon_status().answers)
    with Client(start=False) as deck:
        job = ready(deck).submit(["sleep", "60"])
        running(deck, job)
    for _ in range(2):
        pid = daemon_status().pid
        assert pid is not None
        end(pid)
        eventually(lambda: daemon_status().answers)
    with Client(start=False) as deck:
        assert isinstance(deck.job(job.id).state, Running)
        deck.cancel(job.id)
        deck.wait(job.id, 20)


@pytest.mark.xdist_group("shared daemon")
def test_runit_keeps_the_shared_daemon_alive(shared: Path) -> None:
    if shutil.which("runsv") is None:
        pytest.skip(f"{LACKS} runit")
    service = shared.parent / "service"
    service.mkdir()
    script = service / "run"
    script.write_text(f"#!/bin/sh\nexec {' '.join(RUN)} --system 2>&1\n")
    script.chmod(0o755)
    with subprocess.Popen(["runsv", str(service)], stdout=subprocess.DEVNULL) as supervisor:
        try:
            runs_on_after_kills()
            assert oct(shared.stat().st_mode & 0o777) == "0o711", "members could not reach it"
        finally:
            subprocess.run(["sv", "force-stop", str(service)], check=False, capture_output=True)
            supervisor.terminate()
    assert not daemon_status().running


@pytest.mark.xdist_group("shared daemon")
def test_the_init_script_keeps_the_shared_daemon_alive(shared: Path) -> None:
    if shutil.which("start-stop-daemon") is None:
        pytest.skip(f"{LACKS} start-stop-daemon")
    script = shared.parent / "gpudeck"
    text = init_script.script_text().replace("/run/gpudeck.pid", f"{shared.parent}/pid")
    script.write_text(text.replace("sleep 5", "sleep 0.2"))
    script.chmod(0o755)

    def service(action: str) -> str:
        done = subprocess.run([script, action], capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    try:
        service("start")
        runs_on_after_kills()
        assert "The daemon is running" in service("status")
        before = daemon_status().pid
        service("restart")
        eventually(lambda: daemon_status().answers)
        assert daemon_status().pid != before
    finally:
        service("stop")
    assert not daemon_status().running
    time.sleep(0.5)  # longer than the pause before the next start
    assert not daemon_status().running
    assert service("other").startswith("usage: ")
