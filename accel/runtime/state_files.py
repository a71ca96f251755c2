"""Find, read and change the files that keep what was measured or compiled on this machine.

Several processes may write one at once: a lock file beside it keeps them apart, and the new
contents replace the old ones completely or not at all. Readers need no lock, and a writer that is
killed leaves the old contents.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 2.0
"""How long a writer waits for the others."""
_PAUSE_S = 0.005


def state_folder() -> Path:
    """Return GPU Deck's state folder, by the rule of `gpudeck.scheduler.protocol.paths.home`.

    It is $GPUDECK_HOME, else $XDG_STATE_HOME/gpudeck, else ~/.local/state/gpudeck, also where that
    is on a network file system: all but shared files need no locks.
    """
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    chosen = os.environ.get("GPUDECK_HOME") or Path(base) / "gpudeck"
    return Path(chosen).expanduser().absolute()


def learned_file(operation: str) -> Path:
    """Return the path of what was measured of an operation."""
    return state_folder() / f"{operation}-learned.json"


def used_file(operation: str) -> Path:
    """Return the path of what programs used of an operation."""
    return state_folder() / f"{operation}-used.json"


def change(file: Path, contents: Callable[[bytes], bytes]) -> bytes:
    """Replace what a file holds by `contents(what it held)`, and return that.

    A file that does not exist holds nothing. It is made readable by its owner only.

    Raises:
        OSError: if the file cannot be written; TimeoutError if others hold the lock for too long.
    """
    with _lock(file):
        new = contents(read(file))
        replace(file, new)
        return new


def read(file: Path) -> bytes:
    """Return what a file holds, nothing if there is none.

    Raises:
        OSError: if it exists and cannot be read.
    """
    try:
        return file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return b""


def replace(file: Path, contents: bytes) -> None:
    """Write a file completely or not at all, readable by its owner only; one writer at a time.

    Raises:
        OSError: if it cannot be written.
    """
    new = file.with_name(file.name + ".new")
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(contents)
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)


def sync(path: Path) -> None:
    """Wait until a file's contents, or the names in a folder, are on disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def check_writable(file: Path) -> None:
    """Raise OSError if `change` could not write the file."""
    os.close(_open_lock(file))
    if not os.access(file.parent, os.W_OK) or (file.exists() and not os.access(file, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))


def _open_lock(file: Path) -> int:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    return os.open(file.with_name(file.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Hold the lock of a file. The kernel releases it when the process ends, however it ends."""
    fd = _open_lock(file)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as e:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"another process has held the lock of {file} for {PATIENCE_S:g} s"
                    ) from e
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)
