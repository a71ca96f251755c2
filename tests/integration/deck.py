"""Helpers of the integration tests: jobs that tell what they do, and the daemon's processes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone
from gpudeck.scheduler.protocol.jobs import Job, Running
from tests.support import command_of, eventually, lives, send, users_of


def ready(deck: Client) -> Client:
    """Once the daemon knows its devices."""
    eventually(lambda: deck.snapshot().devices)
    return deck


def python(code: str, *arguments: object) -> list[str]:
    """The command of a job in Python."""
    return [sys.executable, "-S", "-u", "-c", code, *map(str, arguments)]


def running(deck: Client, job: Job) -> Running:
    """The job's state once it runs."""
    eventually(lambda: deck.job(job.id).status not in ("queued", "starting"))
    state = deck.job(job.id).state
    assert isinstance(state, Running), state
    return state


def daemon_pid() -> int:
    return int(paths.daemon_lock().read_text())


def kill_daemon() -> None:
    """As a crash would: without a chance to store anything."""
    pid = daemon_pid()
    send(pid, signal.SIGKILL)
    eventually(lambda: not lives(pid) and not answers())


def answers() -> bool:
    """Whether anybody listens; a thread of a killed daemon may hold the door for a moment
    longer."""
    try:
        Client(start=False).close()
    except DaemonGone:
        return False
    return True


def probe_pid(home: Path) -> int | None:
    """The probe of this home's daemon, None while there is none."""
    for pid in users_of(home):
        if b"gpudeck.scheduler.devices.probe" in command_of(pid) and lives(pid):
            return pid
    return None


def log_of(job: Job) -> str:
    file = paths.job_folder(job.id) / "log"
    return file.read_text() if file.exists() else ""
