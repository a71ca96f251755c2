"""Who the processes are that a device lists by pid."""

from __future__ import annotations

from pathlib import Path

import psutil

from scheduler.devices.model import Process

_MARK = b"GPUDECK_JOB="


def describe(pid: int, memory: float | None) -> Process:
    """Name, user and job of a process, as far as they can be read; those of other containers and users cannot."""
    try:
        process = psutil.Process(pid)
        return Process(pid, process.name(), process.username(), memory, _job(pid))
    except psutil.Error:
        return Process(pid, "?", "", memory)


def _job(pid: int) -> int | None:
    try:
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(_MARK):
                return int(entry.removeprefix(_MARK))
    except (OSError, ValueError):
        pass  # somebody else's process, or it just ended
    return None
