"""Identify the processes that a device lists by pid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK, Process
from gpudeck.scheduler.protocol.progress import printable

MOST_COMMAND = 400
"""The most characters of a command line that are kept."""
MOST_NOTEBOOK = 100
"""The most characters of a notebook's name that are kept. Jupyter gives it to each kernel in the
variable JPY_SESSION_NAME."""
_CONTAINER = re.compile(r"[-/:]([0-9a-f]{64})(?:\.scope)?(?:/|$)")
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")


class ProcessTable:
    """Remember processes by pid and start time.

    Each is inspected once, as its name, user and environment do not change.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Process] = {}

    def describe(
        self, memory: Mapping[int, float | None], full: bool = False
    ) -> tuple[Process, ...]:
        """Return the processes with these pids.

        Args:
            memory: The bytes of the device that each process has, by pid.
            full: Include the command line and the container.
        """
        known: dict[tuple[int, int], Process] = {}
        found = []
        for pid in memory:
            ticks = _ticks(pid)
            process = self._known.get((pid, ticks))
            if process is None:
                process, sure = _inspect(pid, ticks)
            else:
                sure = True
            if sure:
                known[pid, ticks] = process
            details = {"command": _command(pid), "container": _container(pid)} if full else {}
            found.append(msgspec.structs.replace(process, memory=memory[pid], **details))
        self._known = known
        return tuple(found)


def _ticks(pid: int) -> int:
    """Return the start of a process in ticks since boot.

    It is 0 if the process is not visible, as in another container.

    Source: proc_pid_stat(5), field 22.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _inspect(pid: int, ticks: int) -> tuple[Process, bool]:
    """Return as much of the process as can be read, and True if that is final.

    Processes of other containers and users cannot be read. An empty environment is not final: the
    process may just have started.
    """
    try:
        process = psutil.Process(pid)
        found = Process(
            pid, process.name(), process.username(), start=process.create_time(), ticks=ticks
        )
    except psutil.Error:
        return Process(pid, "?"), False
    try:
        environment = process.environ()
    except psutil.AccessDenied:
        return found, True
    except (psutil.Error, OSError):
        environment = {}
    # The assistant of another state folder does not make room for our jobs.
    assistant = ASSISTANT_MARK in environment and environment.get("GPUDECK_HOME") == str(
        paths.home()
    )
    notebook = printable(Path(environment.get("JPY_SESSION_NAME", "")).name)[:MOST_NOTEBOOK]
    job = _job(environment)
    found = msgspec.structs.replace(found, job=job, assistant=assistant, notebook=notebook)
    return found, bool(environment)


def _job(environment: dict[str, str]) -> int | None:
    try:
        return int(environment["GPUDECK_JOB"])
    except (KeyError, ValueError):
        return None


def _command(pid: int) -> str:
    """Return a process's command line without control characters, or an empty text if it is
    unreadable."""
    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ""
    line = " ".join(words)[: MOST_COMMAND + 1]
    line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= MOST_COMMAND else f"{line[:MOST_COMMAND]}…"


def _container(pid: int) -> str:
    """Return the short id of a process's container, or an empty text if it is in none."""
    try:
        return container_of(Path(f"/proc/{pid}/cgroup").read_text())
    except (OSError, UnicodeDecodeError):
        return ""


def container_of(cgroup: str) -> str:
    """Return the container that a /proc/PID/cgroup names, or an empty text if it names none.

    It has 12 digits for Docker, Podman, containerd, CRI-O and Kubernetes, and is the name for LXC.
    """
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        if found := _CONTAINER.search(path):
            return found[1][:12]
        if found := _LXC.search(path):
            return found[1]
    return ""
