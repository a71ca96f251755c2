"""Opens the window, where that is possible."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time

from app.widgets import qt_check
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError


def run() -> int:
    """Open the window on the display and stay until it is closed. Returns the exit status.

    Raises UserError with one line where Qt's system libraries or the display are missing.
    """
    begin()
    from app.shell.desktop import open_window  # not before it is known that Qt can be loaded

    return open_window()


def begin() -> None:
    """Have the daemon started, if none runs, while this process goes on loading the window's libraries; and load those for less.

    Nothing that is loaded becomes garbage: collections are off until the window is up (see `Desktop`). Raises UserError where Qt cannot be
    loaded.
    """
    waking = threading.Thread(target=_connect, name="wake daemon", daemon=True)
    waking.start()
    gc.disable()
    _load_numpy()
    if (problem := qt_check.problem()) is not None:
        waking.join()  # a daemon that is being started gets there
        raise UserError(problem)


def _load_numpy() -> None:
    """Without a thread a core of its OpenBLAS, which take a tenth of a second of CPU time to start: the window multiplies no matrices."""
    if threads := "OPENBLAS_NUM_THREADS" not in os.environ:
        os.putenv(
            "OPENBLAS_NUM_THREADS", "1"
        )  # not in os.environ, of which the daemon and jobs that are submitted get a copy
    try:
        import numpy  # noqa: F401 - here, while that is set
    finally:
        if threads:
            os.unsetenv("OPENBLAS_NUM_THREADS")


def _connect() -> None:
    with (
        contextlib.suppress(UserError, DaemonGone),
        Client() as deck,
    ):  # the window's own connection meets the same error, and shows it
        deck.annotations(
            time.time()
        )  # one that has just started loads what it keeps the past with when it is first asked for it
