"""Write how an attempt ended, however long the disk refuses it.

Standard library only, as the runner imports it.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from gpudeck.scheduler.protocol.durable import sync

EXIT_FILE = "exit.json"
LOCK_FILE = "runner.lock"
"""Names the attempt that ran last on this machine, and when its job was submitted: that tells apart
jobs of one number, as of a store that was deleted."""
PAUSES_S = (0.5, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before each further try; the last one is repeated."""
CANCELLED_TRIES = 4
"""How often the record of a cancelled job is tried to be written again."""
GIVE_UP_S = 86400.0
"""Seconds after which a state folder that is gone counts as deleted, not as unmounted."""
PRIVATE_FOLDER = 0o700
UNWRITTEN = "unwritten"
"""The name of a runner whose record cannot be written, before the number of the error."""
LINGERS = "lingers"
"""The name of a runner that waits for processes of other users."""


def write_record(
    name: str,
    folder: str,
    content: dict[str, Any],
    held: int,
    asked: bool,
    meanwhile: Callable[[], None],
) -> None:
    """Write the record into the working folder, synced and renamed into place.

    The result must not be lost: each error is met with another try after a pause. Where the working
    folder fails, it is left, so that its file system can be unmounted and repaired, and `folder` is
    opened anew for each try. Whoever cancelled the job needs no record: then it is given up, and so
    it is where SIGTERM comes between two tries.

    Args:
        held: a descriptor on that file system, which is closed then.
        asked: the job was cancelled.
        meanwhile: is called after each try that failed.

    Raises:
        OSError: The state folder has been gone for GIVE_UP_S, or the job was cancelled.
    """
    data = json.dumps(content).encode()
    away, last_there = False, time.monotonic()
    for number, pause in enumerate(chain(PAUSES_S, repeat(PAUSES_S[-1]))):
        try:
            if away:
                _enter(folder)
            return _write(Path(name), data)
        except OSError as e:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            announce(f"{UNWRITTEN} {e.errno}")
            if asked and number == CANCELLED_TRIES:
                raise
            if not _is_gone(Path(folder).parents[1]):
                last_there = time.monotonic()
            elif time.monotonic() - last_there > GIVE_UP_S:
                raise
        if held >= 0:
            os.close(held)
            held = -1
        if away := not _was_moved(folder):
            os.chdir("/")
        meanwhile()
        time.sleep(pause)


def _enter(folder: str) -> None:
    """Go into the job's folder, which may have been deleted or closed. Raises OSError."""
    try:
        os.chdir(folder)
    except FileNotFoundError:
        Path(folder).parent.mkdir(PRIVATE_FOLDER, exist_ok=True)  # a job may delete all folders
        Path(folder).mkdir(PRIVATE_FOLDER)
        os.chdir(folder)
    except PermissionError:
        Path(folder).chmod(PRIVATE_FOLDER)
        os.chdir(folder)


def _is_gone(folder: Path) -> bool:
    try:
        folder.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _was_moved(folder: str) -> bool:
    """Return whether the working folder is the job's, and has another path now."""
    try:
        here = os.getcwd()
    except OSError:
        return False  # it was deleted or unmounted
    try:
        return here != "/" and not Path(here).samefile(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _write(file: Path, data: bytes) -> None:
    """Write the file into the working folder. What the job put in its place is moved away."""
    new = file.with_suffix(".new")
    _move_away(new)
    new.unlink(missing_ok=True)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(fd)
    _move_away(file)
    new.rename(file)
    sync(Path())


def _move_away(file: Path) -> None:
    """Rename a folder of this name, which a job may have made."""
    if file.is_dir() and not file.is_symlink():
        file.rename(f"{file}.{time.time_ns()}")


def announce(name: str) -> None:
    """Show the daemon in this process's name what it waits for."""
    try:
        Path("/proc/self/comm").write_text(name)
    except OSError:
        pass  # it is only for people
