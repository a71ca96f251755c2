"""Who the processes are that a device lists by pid."""

from __future__ import annotations

import psutil

from scheduler.devices.model import ASSISTANT_MARK, Process


def describe(pid: int, memory: float | None) -> Process:
    """Name, user and what it is to us, as far as they can be read; those of other containers and users cannot."""
    try:
        process = psutil.Process(pid)
        environment = _environment(process)
        return Process(pid, process.name(), process.username(), memory, _job(environment), ASSISTANT_MARK in environment)
    except psutil.Error:
        return Process(pid, "?", "", memory)


def _environment(process: psutil.Process) -> dict[str, str]:
    """As it was when the process started; empty where it may not be read."""
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _job(environment: dict[str, str]) -> int | None:
    try:
        return int(environment["GPUDECK_JOB"])
    except (KeyError, ValueError):
        return None
