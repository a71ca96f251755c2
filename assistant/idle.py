"""When the assistant may work: it waits until the devices are idle, and leaves the GPU as soon as somebody else wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from scheduler.errors import DaemonGone, UserError
from scheduler.jobs import Queued
from scheduler.telemetry.snapshot import Busy, DeviceState, Snapshot

T = TypeVar("T")


class Cancelled(UserError):
    """Whoever asked wants no more."""

    def __init__(self) -> None:
        super().__init__("the request was cancelled")


def why_busy(snapshot: Snapshot) -> str | None:
    """Why the devices are not ours, for a person to read, or None where all of them are idle.

    A device that nobody but the assistant uses counts as idle, as long as no job waits for one: its own work is no reason to leave.
    """
    wanted = any(isinstance(job.state, Queued) and job.spec.gpus for job in snapshot.jobs) and not snapshot.paused
    for state in snapshot.devices:
        if isinstance(state.use, Busy) and (wanted or not _only_ours(state)):
            return f"{state.device.name}: {state.use.reason}"
    return None if snapshot.devices else "no device has been read yet"


def _only_ours(state: DeviceState) -> bool:
    processes = state.reading.processes if state.reading else ()
    return not state.holders and bool(processes) and all(process.assistant for process in processes)


def run_when_idle(
    task: Callable[[], T],
    idle: Iterable[Snapshot],
    cancelled: Callable[[], bool] = lambda: False,
    waiting: Callable[[str], None] = lambda reason: None,
) -> T:
    """Run `task` at the first of the snapshots in `idle` that shows idle devices, and return what it returns.

    `idle` is what `scheduler.client.Client.subscribe` yields; `waiting` is told why it waits whenever the reason changes.
    Raises Cancelled once `cancelled` says so, DaemonGone where the snapshots end.
    """
    told = None
    for snapshot in idle:
        if cancelled():
            raise Cancelled
        reason = why_busy(snapshot)
        if reason is None:
            return task()
        if reason != told:
            waiting(reason)
            told = reason
    raise DaemonGone("the daemon went away while the assistant waited for idle devices")
