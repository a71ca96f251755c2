"""Messages over a Unix socket: JSON, one message a line, between processes of one user.

A server listens on a 0600 socket and refuses peers of other users (SO_PEERCRED), and a client sends
nothing to a server of another user. The daemon and the assistant use it.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpudeck.language.text import Span, phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.turns import Work, in_turns
from gpudeck.scheduler.protocol.users import user_name

if TYPE_CHECKING:
    import asyncio  # clients start faster without

    from gpudeck.scheduler.protocol.traffic import UserTraffic

MAX_MESSAGE = 64 * 2**20
"""Bytes of a message; a longer one is refused."""
SENT = 2**18
"""Bytes of a long message that are handed to the kernel at a time."""
MAX_REPLY = 4 * MAX_MESSAGE
"""Bytes of a reply; a server that sends a longer one is left. It may be on another machine."""
REPLY_S, REPLY_RATE = 10.0, 2.0**13
"""Seconds from the first byte of a reply to its last, and bytes a second beyond that: a slow line
is waited for, and a server that sends a byte now and then is left."""
_CHUNK = 2**16

MEMBERS, ADMINS = "gpudeck", "gpudeck-admin"
"""The group that may connect to a shared daemon, and the group that administers its queue."""
BACKLOG = 4096
"""Clients that may wait for a busy server; one more is refused, as if nobody listened."""
_UNCONNECTED = -1
"""What the kernel says of the user at the other end of a socket that is not connected."""

R = TypeVar("R")
Handler = Callable[[bytes, "Peer"], Awaitable[None]]


class _Listening(socket.socket):
    """A socket that always listens with BACKLOG.

    asyncio uses its `backlog` also for how many connections it accepts in a row: a large number
    floods the loop where descriptors run out, and a small one turns clients away.
    """

    def listen(self, backlog: int = BACKLOG, /) -> None:
        super().listen(BACKLOG)


class Peer:
    """A connected client, as its server sees it."""

    def __init__(
        self, writer: asyncio.StreamWriter, pid: int, uid: int, traffic: UserTraffic
    ) -> None:
        self._writer, self._traffic = writer, traffic
        self.uid = uid
        """Its user."""
        self.pid = pid
        """The process that connected."""
        self._sends = False
        self._later: list[bytes] = []
        """What is to follow the message that is being sent."""

    @property
    def gone(self) -> bool:
        """Return True where the client closed the connection, so that no reply reaches it."""
        end = select.poll()
        end.register(self._writer.get_extra_info("socket"), 0)  # POLLHUP is always reported
        return bool(end.poll(0))

    async def do(self, work: Work[R]) -> R:
        """Do work for the client in turns with that for others, as its user's traffic allows.

        Raises ConnectionError where it is gone before that begins: one that asked for much and left
        costs the others no more time.
        """
        async with self._traffic.working():
            if self.gone:
                raise ConnectionAbortedError("the client is gone")
            return await in_turns(work)

    async def send(self, message: bytes) -> None:
        """Send a message, waiting for a slow reader. Raises ConnectionError where it is gone."""
        with self._traffic.sending(len(message)):
            whole = memoryview(message)
            self._sends = True
            for start in range(0, len(whole) - SENT, SENT):
                self._writer.write(whole[start : start + SENT])
                await self._writer.drain()
            self._sends = False
            last = max(0, (len(whole) - 1) // SENT * SENT)
            self._writer.write(bytes(whole[last:]) + b"\n" + b"".join(self._later))
            self._later.clear()
            await self._writer.drain()

    def write(self, message: bytes) -> None:
        """Send a message without waiting; what the client does not read yet is buffered."""
        if self._sends:
            self._later.append(message + b"\n")
        else:
            self._writer.write(message + b"\n")


def listen(path: Path) -> socket.socket:
    """Return a listening socket at `path`, with mode 0600 from the first moment.

    The caller holds the lock that makes it the only instance. Raises UserError where the folder
    cannot hold a socket.
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
            phrase(
                "no socket can be opened at {path}: {error}. Set GPUDECK_HOME to a "
                "folder on a local disk.",
                path=str(path),
                error=str(e.strerror),
            )
        ) from e
    finally:
        os.umask(mask)
    sock.listen()
    return sock


async def serve(
    sock: socket.socket, handle: Handler, shared: bool = False, refusal: bytes = b""
) -> asyncio.Server:
    """Serve the connections of this user: await `handle(line, peer)` for each message in order.

    Args:
        sock: Listens.
        handle: Carries out one message.
        shared: Serve everybody whom the permissions of the socket let in, within the limits that
            `traffic` sets for each user.
        refusal: Is sent to a connection that is one too many.
    """
    import asyncio

    from gpudeck.scheduler.protocol.traffic import SMALL, Traffic

    traffic = Traffic(limited=shared)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            pid, uid = _credentials(writer.get_extra_info("socket"))
            if shared or uid == os.getuid():
                with traffic.connected(uid) as user:
                    if user is None:
                        writer.write(refusal + b"\n")
                        return
                    peer = Peer(writer, pid, uid, user)
                    more = True
                    while more:
                        async with AsyncExitStack() as held:
                            if more := bool(line := await _line(reader, user, held)):
                                await user.turn(len(line))
                                await handle(line, peer)
        except (ConnectionError, TimeoutError, asyncio.CancelledError) as e:
            # the client is gone or stuck, or the server ends. asyncio keeps the error, and with its
            # traceback what was received and sent
            e.__traceback__ = None
        finally:
            writer.close()

    limit = min(SMALL, MAX_MESSAGE)
    return await asyncio.start_unix_server(connection, sock=sock, limit=limit, backlog=1)


async def _line(reader: asyncio.StreamReader, user: UserTraffic, held: AsyncExitStack) -> bytes:
    """Return the next line; an empty one at the end, and where a line is too long.

    Args:
        reader: The connection.
        user: Who sends it.
        held: Is given what the user holds until a long line was handled.

    Raises:
        TimeoutError: A long line did not arrive in time.
    """
    import asyncio

    from gpudeck.scheduler.protocol.traffic import WHOLE_S

    try:
        return await reader.readuntil()
    except asyncio.IncompleteReadError:
        return b""
    except asyncio.LimitOverrunError as e:
        arrived = e.consumed
    whole = bytearray()
    await held.enter_async_context(user.large)
    async with asyncio.timeout(WHOLE_S):
        while len(whole) + arrived <= MAX_MESSAGE:
            whole += await reader.readexactly(arrived)
            try:
                whole += await reader.readuntil()
                return bytes(whole)
            except asyncio.LimitOverrunError as e:
                arrived = e.consumed
            except asyncio.IncompleteReadError:
                break
    return b""


def _credentials(sock: socket.socket) -> tuple[int, int]:
    """Return pid and user of the process at the other end."""
    pid, uid, _ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    return int(pid), int(uid)


def check_server(sock: socket.socket, path: Path, owner: int) -> None:
    """Check that a process of `owner` listens at `path`, to which `sock` is connected.

    Somebody else may have made the folder and the socket first, to be sent commands and
    environments. Raises UserError, and OSError where the path is gone.
    """
    _, listener = _credentials(sock)
    if listener == _UNCONNECTED:  # asyncio takes a refusal for a connection
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody accepts connections", str(path))
    folder = path.parent.stat()
    users = {listener, path.stat().st_uid, folder.st_uid}
    if users != {owner} or paths.is_open(folder):
        raise UserError(
            phrase(
                "nothing was sent to {path}, as the socket, its folder or the "
                "process behind it is not {user}'s alone. Name a folder of your own "
                "in GPUDECK_HOME.",
                path=str(path),
                user=user_name(owner),
            )
        )


class _Endless(Exception):
    """Signal a message that is too long, or comes too slowly."""


class Connection:
    """The client's end, which blocks; for one thread at a time."""

    def __init__(self, path: Path, timeout: float | None = 10.0, owner: int | None = None) -> None:
        """Connect to a server of `owner`, who is this user unless another one is named.

        Raises DaemonGone where nobody listens at `path`, UserError where somebody else does.
        """
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.settimeout(timeout)
        try:
            with paths.short(path) as name:
                self._sock.connect(name)
            check_server(self._sock, path, os.getuid() if owner is None else owner)
        except OSError as e:
            self._sock.close()
            raise DaemonGone(phrase("nobody answers at {path}", path=str(path))) from e
        except UserError:
            self._sock.close()
            raise
        self._received = bytearray()
        self._receiving = threading.RLock()
        self._over, self.closed = False, False
        self._end = select.poll()
        self._end.register(self._sock, select.POLLRDHUP)

    @property
    def server_pid(self) -> int:
        """Return the process that listens on the socket."""
        return _credentials(self._sock)[0]

    @property
    def lost(self) -> bool:
        """Return True where the other side ended or did not answer, unless `close` was called."""
        return not self.closed and (self._over or bool(self._end.poll(0)))

    def send(self, message: bytes) -> None:
        """Send a message. Raises DaemonGone."""
        try:
            self._sock.sendall(message + b"\n")
        except OSError as e:
            self._over = True
            raise DaemonGone(phrase("the connection broke while a request was sent")) from e

    def receive(self) -> bytes:
        """Return the next message.

        Raises DaemonGone where the other side is gone, silent for longer than the timeout, or
        sends without end.
        """
        try:
            with self._receiving:
                line = self._line()
        except TimeoutError as e:
            self._over = True  # a late reply would be taken for that to the next request
            raise DaemonGone(
                phrase("no answer within {span}", span=Span(round(self._sock.gettimeout() or 0)))
            ) from e
        except OSError as e:
            self._over = True
            raise DaemonGone(phrase("the connection broke")) from e
        except _Endless:
            self._over = True
            raise DaemonGone(phrase("the other side sends a message without end")) from None
        if not line.endswith(b"\n"):
            self._over = True
            raise DaemonGone(phrase("the other side closed the connection"))
        return line

    def _line(self) -> bytes:
        """Return the next line; an incomplete one where the other side ended within it."""
        received, searched, began = self._received, 0, 0.0
        while (end := received.find(b"\n", searched) + 1) == 0:
            searched = len(received)
            began = began or (time.monotonic() if searched else 0.0)
            late = began and time.monotonic() - began > REPLY_S + searched / REPLY_RATE
            if late or searched > MAX_REPLY:
                raise _Endless
            if not (data := self._sock.recv(_CHUNK)):
                end = searched
                break
            received += data
        line = bytes(received[:end])
        del received[:end]
        return line

    def close(self) -> None:
        """Close the connection; another thread may do so to end a blocked `receive`."""
        self.closed = True
        self.hang_up()

    def hang_up(self) -> None:
        """Give up on this connection, which is then `lost`."""
        self._over = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already closed by the other side
        with self._receiving:  # a blocked `receive` has returned
            self._sock.close()
