"""When the assistant may work: it waits until the devices are idle.

Which GPU it may use, and for how long, is the daemon's decision (see `gpudeck.scheduler.lease`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.snapshot import Busy, Snapshot


class Cancelled(UserError):
    """Signal that the client cancelled the request."""

    def __init__(self) -> None:
        super().__init__("the request was cancelled")


def why_busy(snapshot: Snapshot) -> Text | None:
    """Return why the assistant may not use the devices yet, or None if all of them are idle.

    The device that the assistant leases counts as idle: the daemon takes it back if it is needed.
    """
    for state in snapshot.devices:
        if isinstance(state.use, Busy) and not (state.leased and not state.holders):
            return phrase("{device}: {why}", device=state.device.name, why=state.use.reason)
    return None if snapshot.devices else phrase("no device has been read yet")


def wait_until_idle(
    snapshots: Iterable[Snapshot],
    cancelled: Callable[[], bool] = lambda: False,
    on_wait: Callable[[Text], None] = lambda reason: None,
    skip: Callable[[], bool] = lambda: False,
) -> None:
    """Return at the first snapshot that shows idle devices.

    Args:
        snapshots: As `gpudeck.scheduler.client.Client.subscribe` yields them.
        cancelled: Asked at each snapshot.
        on_wait: Called with the reason for the wait whenever it changes.
        skip: Asked at each snapshot; if it returns True, the wait ends although devices are busy.

    Raises:
        Cancelled: `cancelled` returned True.
        DaemonGone: The snapshots ended.
    """
    last = None
    for snapshot in snapshots:
        if cancelled():
            raise Cancelled
        reason = why_busy(snapshot)
        if reason is None or skip():
            return
        if reason != last:
            on_wait(reason)
            last = reason
    raise DaemonGone(phrase("the daemon stopped while the assistant waited for idle devices"))
