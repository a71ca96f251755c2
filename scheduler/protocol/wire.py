"""Messages over a Unix socket: one JSON document a line, both ways, between processes of one user.

A server listens on a 0600 socket and refuses peers of another user (SO_PEERCRED). Used by the daemon and by the
assistant host.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scheduler.protocol import paths
from scheduler.protocol.errors import DaemonGone, UserError

if TYPE_CHECKING:
    import asyncio  # a client, which wants to be started fast, does without

MAX_MESSAGE = 64 * 2**20
"""Bytes; a longer line is refused. A history of ten minutes is under one MiB."""

BACKLOG = 4096
"""Clients that may wait to be heard while the server is busy: of a Unix socket, one more is turned away at once, as if nobody answered."""

Handler = Callable[[bytes, "Peer"], Awaitable[None]]


class _Listening(socket.socket):
    """A socket whose line of waiting clients stays BACKLOG long.

    asyncio sets it to how often it accepts in a row: many of these, each of which fails for want of a descriptor, flood the loop, and few
    turn clients away.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


class Peer:
    """One connected client of a server."""

    def __init__(self, writer: asyncio.StreamWriter, pid: int) -> None:
        self._writer = writer
        self.pid = pid
        """Of the process that connected."""

    async def send(self, message: bytes) -> None:
        """Send one message; waits while the client reads slowly. Raises ConnectionError when it is gone."""
        self.write(message)
        await self._writer.drain()

    def write(self, message: bytes) -> None:
        """Send one message at once, as far as the client reads; what it does not read yet is kept for it."""
        self._writer.write(message + b"\n")


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, mode 0600 from the first moment. The caller holds the lock that makes it the only one.

    Raises UserError where the folder cannot hold a socket.
    """
    paths.ensure(path.parent)
    sock = _Listening(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        path.unlink(missing_ok=True)
        with paths.short(path) as name:
            sock.bind(name)
    except OSError as e:
        sock.close()
        raise UserError(
            f"no socket can be opened at {path}: {e.strerror}. Set GPUDECK_HOME to a folder on a local disk."
        ) from e
    finally:
        os.umask(mask)
    sock.listen()
    return sock


async def serve(sock: socket.socket, handle: Handler) -> asyncio.Server:
    """Serve every connection of this user: `handle(line, peer)` once a message, in order."""
    import asyncio

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pid, uid = _credentials(writer.get_extra_info("socket"))
            if uid == os.getuid():
                peer = Peer(writer, pid)
                while line := await _line(reader):
                    await handle(line, peer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client left, or we are ending
        finally:
            writer.close()

    return await asyncio.start_unix_server(connection, sock=sock, limit=MAX_MESSAGE, backlog=1)


async def _line(reader: asyncio.StreamReader) -> bytes:
    """The next; empty at the end, which a line over the limit is, too."""
    try:
        return await reader.readline()
    except ValueError:
        return b""


def _credentials(sock: socket.socket) -> tuple[int, int]:
    """Pid and user of the process at the other end."""
    pid, uid, _ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return int(pid), int(uid)


class Connection:
    """The client's end: blocking, one thread at a time."""

    def __init__(self, path: Path, timeout: float | None = 10.0) -> None:
        """Raises DaemonGone where nobody listens at `path`."""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout)
        try:
            with paths.short(path) as name:
                self._sock.connect(name)
        except OSError as e:
            self._sock.close()
            raise DaemonGone(f"nobody answers at {path}") from e
        self._file = self._sock.makefile("rb")
        self._over, self.closed = False, False
        self._end = select.poll()
        self._end.register(self._sock, select.POLLRDHUP)

    @property
    def lost(self) -> bool:
        """Whether the other side ended, or did not answer: nothing more is to be said over it. One that was closed here is not lost."""
        return not self.closed and (self._over or bool(self._end.poll(0)))

    def send(self, message: bytes) -> None:
        """Raises DaemonGone."""
        try:
            self._sock.sendall(message + b"\n")
        except OSError as e:
            self._over = True
            raise DaemonGone("the connection broke while a request was sent") from e

    def receive(self) -> bytes:
        """The next message. Raises DaemonGone when the other side is gone or silent for longer than the timeout."""
        try:
            line = self._file.readline()
        except TimeoutError as e:
            self._over = (
                True  # an answer that comes late would be taken for that to another request
            )
            raise DaemonGone(f"no answer within {self._sock.gettimeout():.0f} s") from e
        except (OSError, ValueError) as e:
            self._over = True
            raise DaemonGone("the connection broke") from e
        if not line.endswith(b"\n"):
            self._over = True
            raise DaemonGone("the other side closed the connection")
        return line

    def close(self) -> None:
        """May be called from another thread to end a blocked `receive`."""
        self.closed = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed by the other side
        self._sock.close()
        self._file.close()  # only now is the socket really closed; a `receive` that was blocked has seen its end
