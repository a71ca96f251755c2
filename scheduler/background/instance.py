"""The background process's side: be the only instance, and report when requests can be sent."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from scheduler.background.descriptors import raise_limit
from scheduler.background.launch import READY
from scheduler.protocol import paths, wire
from scheduler.protocol.errors import DaemonGone, UserError

_TRIES, _PAUSE_S = 200, 0.05
CHECK_S = 1.0
"""How often a background process checks that it can still be found."""


class BackgroundProcess(NamedTuple):
    """Describe a background process, of which a user has one."""

    name: str
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
            time.sleep(_PAUSE_S)
        else:
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
            return fd
    raise UserError(
        f"{process.name} runs already (it holds {process.lock}) and does not answer. "
        f"See its log: {process.log}"
    )


@contextmanager
def hold_lock(lock: Path, taken: str) -> Iterator[None]:
    """Keep the process whose lock this is from starting.

    Raises UserError with the message `taken` where it runs.
    """
    paths.ensure(lock.parent)
    fd = os.open(lock, os.O_RDWR | os.O_CREAT, paths.PRIVATE_FILE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            raise UserError(taken) from e
        yield
    finally:
        os.close(fd)


def _answers(socket: Path) -> bool:
    try:
        wire.Connection(socket, timeout=1.0).close()
    except DaemonGone:
        return False
    return True
