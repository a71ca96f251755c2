"""Being a background process of ours: the only one of its kind, and telling who started it that it answers (see `launch`)."""

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
LOOK_S = 1.0
"""How often a background process looks whether it can still be found."""


class Identity(NamedTuple):
    """What makes a background process the only one of its user."""

    what: str
    """In words: `the daemon`."""
    lock: Path
    """Held for as long as the process lives; holds its pid."""
    door: Path
    log: Path


def serve_alone(identity: Identity, serve: Callable[[], Coroutine[Any, Any, object]]) -> int:
    """Run `serve` to its end unless another process answers already; `serve` calls `say_ready`. Returns the exit status."""
    os.umask(0o077)
    raise_limit()
    try:
        if (lock := _become_the_only(identity)) is None:
            say_ready()
        else:
            asyncio.run(_serve_while_found(identity, lock, serve()))
    except UserError as e:
        say_ready(str(e))
        return 1
    return 0


def say_ready(word: str = READY) -> None:
    """Tell who started us, if that one still listens, then let go of the standard output."""
    with contextlib.suppress(BrokenPipeError):  # it was interrupted, or has ended: others will come
        os.write(1, f"{word}\n".encode())
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


async def _serve_while_found(
    identity: Identity, lock: int, serving: Coroutine[Any, Any, object]
) -> None:
    """Serve to the end; it comes early where nobody can find us any more, as another process will start in our place."""
    task = asyncio.ensure_future(serving)
    while not (await asyncio.wait((task,), timeout=LOOK_S))[0]:
        if not _found(identity, lock):
            sys.stderr.write(
                f"{identity.what} ends: {identity.door} or {identity.lock} was deleted, so nobody can find it\n"
            )
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGTERM)
            break
    await task


def _found(identity: Identity, lock: int) -> bool:
    """Whether who looks for us finds our door, and our lock."""
    try:
        identity.door.stat()
        return os.path.samestat(os.fstat(lock), identity.lock.stat())
    except OSError:
        return False


def _become_the_only(identity: Identity) -> int | None:
    """The descriptor of our lock. None where another one answers already. One that is just ending, or just starting, is waited for."""
    paths.ensure(identity.lock.parent)
    fd = os.open(identity.lock, os.O_RDWR | os.O_CREAT, paths.PRIVATE_FILE)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _answers(identity.door):
                os.close(fd)
                return None
            time.sleep(_PAUSE_S)
        else:
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
            return fd
    raise UserError(
        f"{identity.what} runs already (it holds {identity.lock}) and does not answer. See its log: {identity.log}"
    )


@contextmanager
def alone(lock: Path, taken: str) -> Iterator[None]:
    """Keep the process whose lock this is from starting. Raises UserError, saying `taken`, where it runs."""
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


def _answers(door: Path) -> bool:
    try:
        wire.Connection(door, timeout=1.0).close()
    except DaemonGone:
        return False
    return True
