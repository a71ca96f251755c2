"""The background process's side: be the only instance, and report when requests can be sent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.background.descriptors import raise_limit
from gpudeck.scheduler.background.launch import READY
from gpudeck.scheduler.background.process_stat import boot_id
from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.mounts import network_type

_TRIES, _PAUSE_S = 200, 0.05
CHECK_S = 1.0
"""How often a background process checks that it can still be found."""


class BackgroundProcess(NamedTuple):
    """Describe a background process, of which a user has one."""

    name: Text
    """Its name in messages: `the daemon`."""
    lock: Path
    """A file that it locks for as long as it lives, and that holds its pid."""
    socket: Path
    log: Path


def run_single_instance(
    process: BackgroundProcess, serve: Callable[[], Coroutine[Any, Any, object]]
) -> int:
    """Run `serve`, which calls `report_ready`, unless another instance answers already.

    Returns the exit status.
    """
    os.umask(0o077)
    raise_limit()
    try:
        if (lock := _lock(process)) is None:
            report_ready()
        else:
            asyncio.run(_serve_while_found(process, lock, serve()))
            _forget_host(process, lock)
    except UserError as e:
        report_ready(str(e))
        return 1
    return 0


def report_ready(message: str = READY) -> None:
    """Report to the process that started us, then release the standard output."""
    with contextlib.suppress(BrokenPipeError):  # that process has ended
        os.write(1, f"{message}\n".encode())
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


async def _serve_while_found(
    process: BackgroundProcess, lock: int, serving: Coroutine[Any, Any, object]
) -> None:
    """Serve until the end, or until nobody can find us: another instance will start then."""
    task = asyncio.ensure_future(serving)
    while not (await asyncio.wait((task,), timeout=CHECK_S))[0]:
        if not _can_be_found(process, lock):
            sys.stderr.write(
                f"{process.name} ends: {process.socket} or {process.lock} was deleted, "
                "so nobody can find it\n"
            )
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGTERM)
            break
    await task


def _can_be_found(process: BackgroundProcess, lock: int) -> bool:
    try:
        process.socket.stat()
        return os.path.samestat(os.fstat(lock), process.lock.stat())
    except OSError:
        return False


def _lock(process: BackgroundProcess) -> int | None:
    """Return the descriptor of our lock, or None where another instance answers.

    An instance that is just ending, or just starting, is waited for.
    """
    paths.ensure(process.lock.parent)
    fd = os.open(process.lock, os.O_RDWR | os.O_CREAT, paths.PRIVATE_FILE)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _answers(process.socket):
                os.close(fd)
                return None
            if other := _other_host(process):
                raise UserError(
                    phrase(
                        "{name} of the state folder {parent} runs on the machine "
                        "{other}. Set GPUDECK_HOME to a folder on a disk of this "
                        "machine.",
                        name=process.name,
                        parent=str(process.lock.parent),
                        other=other,
                    )
                ) from None
            time.sleep(_PAUSE_S)
        else:
            _note_host(process)
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
            return fd
    raise UserError(
        phrase(
            "{name} runs already (it holds {lock}) and does not answer. See its log: {log}",
            name=process.name,
            lock=str(process.lock),
            log=str(process.log),
        )
    )


def _host_file(process: BackgroundProcess) -> Path:
    """Return the file that names the machine of the process that has the lock."""
    return process.lock.with_suffix(".host")


def _note_host(process: BackgroundProcess) -> None:
    """Store on which machine this process runs.

    A network file system may grant a lock to several machines. Raises UserError where another one
    has not given the state folder up there.
    """
    file = _host_file(process)
    shared = network_type(file.parent) is not None
    if shared and (other := _other_host(process)):
        raise UserError(
            phrase(
                "{name} of the state folder {parent} ran on the machine {other} and "
                "did not end there properly. If it does not run there any more, "
                "delete {file}",
                name=process.name,
                parent=str(file.parent),
                other=other,
                file=str(file),
            )
        )
    try:
        paths.replace_file(file, f"{os.uname().nodename}\n{boot_id()}\n".encode())
    except OSError as e:
        if shared:
            raise UserError(
                phrase("{file} cannot be written: {error}", file=str(file), error=str(e.strerror))
            ) from e
        # on a full local disk, the lock alone decides


def _forget_host(process: BackgroundProcess, lock: int) -> None:
    """Give the state folder up, unless another process has taken it already."""
    with contextlib.suppress(OSError):  # the folder is gone
        if os.path.samestat(os.fstat(lock), process.lock.stat()):
            _host_file(process).unlink(missing_ok=True)


def _other_host(process: BackgroundProcess) -> str:
    """Return the machine that the lock names, if that is another one; else an empty text."""
    try:
        host, boot = _host_file(process).read_text().splitlines()
    except (OSError, ValueError):
        return ""
    # a container has a name of its own, and a machine gets a new id with each boot
    return "" if host == os.uname().nodename or boot == boot_id() else host


@contextmanager
def hold_lock(lock: Path, taken: Message, patience: float = 0.0) -> Iterator[None]:
    """Keep the process whose lock this is from starting.

    Raises UserError with the message `taken` where it runs, and has not ended within `patience`
    seconds.
    """
    end = time.monotonic() + patience
    paths.ensure(lock.parent)
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, paths.PRIVATE_FILE)
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as e:
                if time.monotonic() >= end:
                    raise UserError(taken) from e
                time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def run_alone(lock: Path, taken: str, work: Callable[[], int]) -> int:
    """Run the work of a background process with private files and a log on standard error.

    Args:
        lock: Held while it runs; where another process holds it, there is nothing to do.
        taken: What the log says then.
        work: Returns the exit status.
    """
    os.umask(0o077)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(lock, taken))
        except UserError as e:
            logging.getLogger(lock.stem).info("ends: %s", e)
            return 0
        return work()


def _answers(socket: Path) -> bool:
    try:
        wire.Connection(socket, timeout=1.0).close()
    except DaemonGone:
        return False
    return True
