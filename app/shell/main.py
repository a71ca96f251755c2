"""Open the window if Qt and a display are available."""

from __future__ import annotations

import contextlib
import gc
import threading
import time

from gpudeck.app.widgets import qt_check
from gpudeck.assistant.one_thread import import_numpy
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError


def run() -> int:
    """Open the window and wait until it is closed. Return the exit status.

    Raises:
        UserError: Qt's system libraries or the display are missing.
    """
    begin()
    from gpudeck.app.shell.desktop import open_window  # after the check that Qt can be loaded

    return open_window()


def begin() -> None:
    """Start the daemon, if none runs, while this process loads the window's libraries.

    Garbage collection is off until the window is shown (see `Desktop`): nothing that is loaded
    becomes garbage.

    Raises:
        UserError: Qt cannot be loaded.
    """
    starter = threading.Thread(target=_connect, name="wake daemon", daemon=True)
    starter.start()
    gc.disable()
    import_numpy()
    if (problem := qt_check.problem()) is not None:
        starter.join()  # let the daemon finish its start
        raise UserError(problem)


def _connect() -> None:
    """Start the daemon; the window's own connection meets the same errors and shows them."""
    with contextlib.suppress(UserError, DaemonGone), Client() as client:
        client.annotations(time.time())  # a new daemon loads its history with the first request
