"""Who the processes are that a device lists by pid."""

from __future__ import annotations

import psutil

from scheduler.devices.model import Process


def describe(pid: int, memory: float | None) -> Process:
    """Name and user of a process, as far as they can be read; processes of other containers cannot."""
    try:
        process = psutil.Process(pid)
        return Process(pid, process.name(), process.username(), memory)
    except psutil.Error:
        return Process(pid, "?", "", memory)
