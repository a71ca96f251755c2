"""Opens the window, where that is possible."""

from __future__ import annotations

import contextlib
import threading

from app import qtcheck
from scheduler.client import Client
from scheduler.errors import DaemonGone, UserError


def run() -> int:
    """Open the window on the display and stay until it is closed. Returns the exit status.

    Raises UserError with one line where Qt's system libraries or the display are missing.
    """
    if (problem := qtcheck.problem()) is not None:
        raise UserError(problem)
    wake_daemon()
    from app.desktop import open_window  # not before it is known that Qt can be loaded

    return open_window()


def wake_daemon() -> None:
    """Have the daemon started, if none runs, while this process goes on loading the window's libraries."""
    threading.Thread(target=_connect, name="wake daemon", daemon=True).start()


def _connect() -> None:
    with contextlib.suppress(UserError, DaemonGone):  # the window's own connection meets the same error, and shows it
        Client().close()
