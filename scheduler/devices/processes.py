"""Who the processes are that a device lists by pid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from scheduler.protocol import paths
from scheduler.protocol.devices import ASSISTANT_MARK, Process

MOST_COMMAND = 400
"""Characters of a command line that are told."""
_CONTAINER = re.compile(r"[-/:]([0-9a-f]{64})(?:\.scope)?(?:/|$)")
_LXC = re.compile(r"/lxc(?:\.payload)?[./]([^/]+)")


class Known:
    """Processes by pid and start time: each is looked at once, as its name, user and environment do not change."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], Process] = {}

    def describe(
        self, memory: Mapping[int, float | None], full: bool = False
    ) -> tuple[Process, ...]:
        """The processes of these pids, with the bytes each has of the device. `full`: with command line and container, too."""
        known: dict[tuple[int, int], Process] = {}
        found = []
        for pid in memory:
            ticks = _ticks(pid)
            process = self._known.get((pid, ticks))
            if process is None:
                process, sure = _look(pid, ticks)
            else:
                sure = True
            if sure:
                known[pid, ticks] = process
            told = {"command": _command(pid), "container": _container(pid)} if full else {}
            found.append(msgspec.structs.replace(process, memory=memory[pid], **told))
        self._known = {**self._known, **known} if full else known
        return tuple(found)


def _ticks(pid: int) -> int:
    """When it started, in ticks since boot (proc_pid_stat(5), field 22); 0 where there is no such process here, as in another container."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _look(pid: int, ticks: int) -> tuple[Process, bool]:
    """Name, user and what it is to us, as far as they can be read; those of other containers and users cannot.

    And whether that is sure: an environment that was empty may have been looked at too early.
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
    # the assistant of another state folder makes no room for us
    assistant = ASSISTANT_MARK in environment and environment.get("GPUDECK_HOME") == str(
        paths.home()
    )
    return msgspec.structs.replace(found, job=_job(environment), assistant=assistant), bool(
        environment
    )


def _job(environment: dict[str, str]) -> int | None:
    try:
        return int(environment["GPUDECK_JOB"])
    except (KeyError, ValueError):
        return None


def _command(pid: int) -> str:
    """Its command line, as one text that steers no terminal; empty where it may not be read."""
    try:
        words = psutil.Process(pid).cmdline()
    except (psutil.Error, OSError):
        return ""
    line = " ".join(words)[: MOST_COMMAND + 1]
    line = "".join(c if c.isprintable() else " " for c in line)
    return line if len(line) <= MOST_COMMAND else f"{line[:MOST_COMMAND]}…"


def _container(pid: int) -> str:
    """The short id of the container it runs in, from its control group; empty where it is in none."""
    try:
        return container_of(Path(f"/proc/{pid}/cgroup").read_text())
    except (OSError, UnicodeDecodeError):
        return ""


def container_of(cgroup: str) -> str:
    """The container that a /proc/PID/cgroup names: Docker, Podman, containerd, CRI-O, Kubernetes (12 digits), or LXC (its name)."""
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        if found := _CONTAINER.search(path):
            return found[1][:12]
        if found := _LXC.search(path):
            return found[1]
    return ""
