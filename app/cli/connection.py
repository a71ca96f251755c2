"""Ask a daemon that may still be starting, or may restart meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from gpudeck.scheduler.client import GONE_S, Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.snapshot import SLEEP_NOTICE, Snapshot
from gpudeck.scheduler.protocol.wire import Connection

ANSWER_S = 3.0
"""Seconds without an answer after which the daemon counts as hung."""
POLL_S = 0.25
"""Seconds between two questions about a job."""

T = TypeVar("T")


class DaemonStatus(msgspec.Struct):
    """Describe the daemon as `gpudeck daemon status --json` prints it."""

    running: bool
    pid: int | None
    home: str
    log: str
    answers: bool
    """False for a daemon that hangs, too."""


def daemon_status() -> DaemonStatus:
    """Return the daemon's status without starting one."""
    folder = paths.shared_home() if paths.uses_shared() else paths.home()
    home, log = str(folder), str(folder / paths.daemon_log().name)
    try:
        connection = Connection(paths.client_socket(), ANSWER_S, paths.daemon_owner())
    except (DaemonGone, FileNotFoundError):
        return DaemonStatus(False, None, home, log, False)
    pid = connection.server_pid
    connection.close()
    try:
        with Client(start=False, timeout=ANSWER_S) as client:
            client.snapshot(live=False)
        answers = True
    except DaemonGone:
        answers = False
    return DaemonStatus(True, pid, home, log, answers)


def with_retries(request: Callable[[Client], T]) -> T:
    """Send a request, and send it again if the daemon is restarted meanwhile.

    Raises:
        DaemonGone: No daemon answered for GONE_S, or none could be started.
        UserError: The daemon refused the request.
    """
    end = time.monotonic() + GONE_S
    while True:
        try:
            try:
                client = Client()
            except DaemonGone:
                raise
            except UserError as e:
                raise DaemonGone(e.message) from e
            with client:
                return request(client)
        except DaemonGone:
            if time.monotonic() > end:
                raise
            time.sleep(POLL_S)


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
