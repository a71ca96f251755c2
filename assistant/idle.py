"""When the assistant may work: it waits until the devices are idle. Which GPU it may use, and until when, the daemon says (see `lease`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from scheduler.protocol.errors import DaemonGone, UserError
from scheduler.protocol.snapshot import Busy, Snapshot

T = TypeVar("T")


class Cancelled(UserError):
    """Whoever asked wants no more."""

    def __init__(self) -> None:
        super().__init__("the request was cancelled")


def why_busy(snapshot: Snapshot) -> str | None:
    """Why the devices are not ours, for a person to read, or None where all of them are idle.

    The device that the assistant has counts as idle: the daemon takes it back where anybody else needs it.
    """
    for state in snapshot.devices:
        if isinstance(state.use, Busy) and not (state.leased and not state.holders):
            return f"{state.device.name}: {state.use.reason}"
    return None if snapshot.devices else "no device has been read yet"


def run_when_idle(
    task: Callable[[], T],
    idle: Iterable[Snapshot],
    cancelled: Callable[[], bool] = lambda: False,
    waiting: Callable[[str], None] = lambda reason: None,
    at_once: Callable[[], bool] = lambda: False,
) -> T:
    """Run `task` at the first of the snapshots in `idle` that shows idle devices, or once `at_once` says so, and return what it returns.

    `idle` is what `scheduler.client.Client.subscribe` yields; `waiting` is told why it waits whenever the reason changes.
    Raises Cancelled once `cancelled` says so, DaemonGone where the snapshots end.
    """
    told = None
    for snapshot in idle:
        if cancelled():
            raise Cancelled
        reason = why_busy(snapshot)
        if reason is None or at_once():
            return task()
        if reason != told:
            waiting(reason)
            told = reason
    raise DaemonGone("the daemon went away while the assistant waited for idle devices")
