"""Ask a daemon that may still be starting, or may restart meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from scheduler.client import Client
from scheduler.protocol import paths
from scheduler.protocol.errors import DaemonGone
from scheduler.protocol.snapshot import SLEEP_NOTICE, Snapshot

POLL_S = 0.25
"""Seconds between two questions about a job."""
_ATTEMPTS = 3

T = TypeVar("T")


class DaemonStatus(msgspec.Struct):
    """Describe the daemon as `gpudeck daemon status --json` prints it."""

    running: bool
    pid: int | None
    home: str
    log: str


def daemon_status() -> DaemonStatus:
    """Return the daemon's status without starting one."""
    try:
        Client(start=False, timeout=3.0).close()
        running = True
    except DaemonGone:
        running = False
    try:
        pid = int(paths.daemon_lock().read_text()) if running else None
    except (OSError, ValueError):
        pid = None
    return DaemonStatus(running, pid, str(paths.home()), str(paths.daemon_log()))


def with_retries(request: Callable[[Client], T]) -> T:
    """Send a request, and send it again if the daemon is restarted meanwhile.

    Raises:
        DaemonGone: The daemon went away three times in a row.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            with Client() as client:
                return request(client)
        except DaemonGone:
            pass
    with Client() as client:
        return request(client)


def wait_for_reading(client: Client, timeout: float = 10.0, live: bool = True) -> Snapshot:
    """Return the first snapshot in which every device has a reading.

    Args:
        client: The connection to the daemon.
        timeout: Seconds after which a snapshot without readings is returned.
        live: Read the devices at the pace of a person who watches, and wake sleeping ones.
            Without it, the snapshot of sleeping devices is returned at once.
    """
    end = time.monotonic() + timeout
    while True:
        snapshot = client.snapshot(live)
        complete = snapshot.devices and all(state.reading for state in snapshot.devices)
        asleep = not live and SLEEP_NOTICE in snapshot.notices
        if complete or asleep or time.monotonic() > end:
            return snapshot
        time.sleep(0.05)
