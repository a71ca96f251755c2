"""The files of GPU Deck. GPUDECK_HOME moves all of them, the sockets included."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.durable import sync
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.mounts import network_type

PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
LOCAL = Path("/var/tmp")  # noqa: S108 - the folder in it is checked to be ours, and stays after a boot
"""Where the state is kept for a user whose home is on a network file system."""
MEMBERS_LOCKS = Path("/var/lib/gpudeck-locks")
"""Where root makes the place in which only members lock GPUs."""
_STORE = "gpudeck.sqlite"
_OPEN = stat.S_IWGRP | stat.S_IWOTH


def home() -> Path:
    """Return the state folder.

    It is $GPUDECK_HOME, else $XDG_STATE_HOME/gpudeck, else ~/.local/state/gpudeck. Where that is on
    a network file system and holds no store yet, it is a folder in /var/tmp.
    """
    if chosen := os.environ.get("GPUDECK_HOME"):
        return Path(chosen).expanduser().absolute()
    return _found_home(usual_home())


def usual_home() -> Path:
    """Return the state folder for which $GPUDECK_HOME is not set, on a local disk."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser().absolute() / "gpudeck"


@cache
def _found_home(usual: Path) -> Path:
    """Return `usual`, or a local folder in its place; for this process's life."""
    if network_type(usual) is None or os.access(usual / _STORE, os.F_OK):
        return usual
    local = _local_home()
    usable = os.access(LOCAL, os.W_OK) and network_type(LOCAL) is None and _is_free_or_ours(local)
    return local if usable else usual


def _is_free_or_ours(folder: Path) -> bool:
    """Return whether nobody else made the folder, or a link in its place, before us."""
    try:
        found = folder.lstat()
    except OSError:
        return True
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _local_home() -> Path:
    return LOCAL / f"gpudeck-{os.getuid()}"


def network_note() -> Text | None:
    """Return a line about the state folder, where a network file system matters to it."""
    if kind := network_type(home()):
        return phrase(
            "the state folder {folder} is on a network file system ({kind}), where locks and "
            "commits are less safe. Set GPUDECK_HOME to a folder on a local disk.",
            folder=str(home()),
            kind=kind,
        )
    if home() == _local_home() and (kind := network_type(usual_home())):
        return phrase(
            "the state is in {folder}, as {usual} is on a network file system ({kind}). "
            "To choose another folder, set GPUDECK_HOME.",
            folder=str(home()),
            usual=str(usual_home()),
            kind=kind,
        )
    return None


def runtime() -> Path:
    """Return the folder of the sockets, which is the state folder.

    $XDG_RUNTIME_DIR is emptied at logout, while the daemon lives on, and cron and containers have
    none. Whoever finds the store must find the socket.
    """
    return home()


def ensure(folder: Path) -> Path:
    """Create `folder`, and those it is in, readable by their owner only, if they do not exist.

    Raises UserError where that is impossible, or other users may write to it.
    """
    try:
        # mkdir(parents=True) leaves the permissions of the outer ones to the umask
        for place in (*reversed(folder.parents), folder):
            if not place.is_dir():
                place.mkdir(exist_ok=True, mode=PRIVATE_DIR)
        found = folder.stat()
    except OSError as e:
        raise UserError(
            phrase(
                "cannot use the folder {folder}: {error}. Set GPUDECK_HOME to a "
                "folder you can write to.",
                folder=str(folder),
                error=str(e.strerror),
            )
        ) from e
    if found.st_uid != os.getuid() or is_open(found):
        raise UserError(
            phrase(
                "the folder {folder} is open to others; name a folder of your own in GPUDECK_HOME",
                folder=str(folder),
            )
        )
    return folder


def is_open(found: os.stat_result) -> bool:
    """Return whether other users than its owner may write to a folder."""
    return bool(found.st_mode & _OPEN)


def replace_file(file: Path, data: bytes) -> None:
    """Replace the file at once by one that is on disk, readable by its owner. Raises OSError."""
    new = file.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)
    sync(file.parent)


def store_file() -> Path:
    """Return the store of jobs and alerts."""
    return home() / _STORE


def history_file() -> Path:
    """Return the store of readings."""
    return home() / "history.sqlite"


def settings_file() -> Path:
    """Return the file of the settings."""
    return home() / "settings.json"


def faults_file() -> Path:
    """Return the file of the faults of GPUs that were reported."""
    return home() / "faults.json"


def self_calibration_file() -> Path:
    """Return the file that says for which GPUs the daemon has queued a calibration itself."""
    return home() / "self-calibration.json"


def destinations_file() -> Path:
    """Return the file that says where users are told about jobs and alerts."""
    return home() / "destinations.json"


def suspensions_file() -> Path:
    """Return the list of programs that were taken off the GPU."""
    return home() / "suspensions.json"


def daemon_socket() -> Path:
    """Return the socket on which the daemon listens."""
    return runtime() / "daemon.sock"


def shared() -> bool:
    """Return whether this process is a daemon that several users share."""
    return os.environ.get("GPUDECK_SYSTEM") == "1"


def shared_home() -> Path:
    """Return the state folder of this machine's shared daemon, if it has one."""
    return Path(os.environ.get("GPUDECK_SHARED") or "/var/lib/gpudeck")


def uses_shared() -> bool:
    """Return whether this user's requests go to the shared daemon: it is root's, and lets us in.

    A state folder that was chosen has a daemon of its own.
    """
    if os.environ.get("GPUDECK_HOME") or shared():
        return False
    socket = shared_home() / "daemon.sock"
    try:
        return socket.stat().st_uid == 0 and os.access(socket, os.R_OK | os.W_OK)
    except OSError:
        return False


def client_socket() -> Path:
    """Return the socket of the daemon that this user's requests go to."""
    return shared_home() / "daemon.sock" if uses_shared() else daemon_socket()


def daemon_owner() -> int:
    """Return the user of that daemon."""
    return 0 if uses_shared() else os.getuid()


def daemon_lock() -> Path:
    """Return the file that a running daemon locks."""
    return home() / "daemon.lock"


def daemon_version() -> Path:
    """Return the file in which a running daemon stores its version."""
    return home() / "daemon.version"


def daemon_log() -> Path:
    """Return the log of the daemon."""
    return home() / "daemon.log"


def callback_log() -> Path:
    """Return the log of the commands that run at the end of jobs."""
    return home() / "on_job_end.log"


def attention_tuner_log() -> Path:
    """Return the log of the process that measures shapes while a GPU is idle."""
    return home() / "attention_tuner.log"


def used_files() -> tuple[Path, ...]:
    """Return the files in which programs count the shapes of attention and of products."""
    return home() / "attention-used.json", home() / "gemm-used.json"


def attention_tuned_file() -> Path:
    """Return the file whose date says when these shapes were last gone through."""
    return home() / "attention-tuned"


def report_writer_log() -> Path:
    """Return the log of the process that writes scheduled reports."""
    return home() / "report_writer.log"


def gpu_locks() -> Path | None:
    """Return the file or place that was chosen for the locks of GPUs; see
    `executors.lock_places`.

    None where none was.
    """
    if chosen := os.environ.get("GPUDECK_GPU_LOCKS"):
        return Path(chosen)
    return MEMBERS_LOCKS if MEMBERS_LOCKS.exists() else None


def job_folder(job_id: int) -> Path:
    """Return the folder of a job's log, result and artefacts."""
    return home() / "jobs" / str(job_id)


def attempts() -> Path:
    """Return the folder of the evidence of which attempts began."""
    return home() / "attempts"


def assets() -> Path:
    """Return the folder of the assets, which lies beside the packages."""
    return Path(__file__).resolve().parents[2] / "assets"


def open_plain(file: Path, owner: int | None = None) -> BinaryIO:
    """Open a file that a job may have made.

    Raises OSError where it is a link, a pipe, which would block us, belongs to another user than
    `owner`, or does not exist.
    """
    fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a plain file", str(file))
    return os.fdopen(fd, "rb")


def request_reader() -> Path:
    """Return the folder of the encoder that reads requests to the assistant."""
    return assets() / "request-reader"


@contextmanager
def short(path: Path) -> Iterator[str]:
    """Yield a name of `path` that is short enough for a Unix socket: 107 bytes."""
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
