"""Serve the endpoint by uvicorn on a port of this machine. Free of torch and Qt."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.tcp_peers import ConnectionLimits, Party

HEAD_S = 10.0
"""The time for the head of a request, from the connection or from the last answer on."""
STRANGERS_HEAD_S = 2.0
"""The time for that of another user, whose token is not known yet."""
BACKLOG = 1024
"""Connections that may wait to be accepted."""
MAX_CONNECTIONS = 512
"""Connections of this user: twice the requests that may wait, so that one more is answered."""
STALLED_S = 30.0
"""A client that reads nothing for so long counts as gone."""
_MAX_HEAD = 16 * 1024
"""Bytes."""


class TimeoutProtocol(H11Protocol):
    """Add the timeouts that uvicorn lacks, against clients that send slowly or never read."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _party: Party | None = None

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head, or hang up on a user with too many connections."""
        self._party = self._limits.admit(transport.get_extra_info("socket"))
        super().connection_made(transport)
        if self._party is None:
            self.connections.discard(self)
            transport.abort()
        else:
            self._start_head_timer()

    def handle_events(self) -> None:
        """Stop the timer once a request has begun."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timers(head=True)

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        self._start_head_timer()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the client to read: the buffer is full."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the timer: the client reads."""
        self._stop_timers(read=True)
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop both timers."""
        self._stop_timers(head=True, read=True)
        if self._party is not None:
            self._limits.release(self._party)
        super().connection_lost(exc)

    def _start_head_timer(self) -> None:
        self._stop_timers(head=True)
        self._head_timer = self.loop.call_later(
            HEAD_S if self._party == os.getuid() else STRANGERS_HEAD_S, self.transport.abort
        )

    def _stop_timers(self, *, head: bool = False, read: bool = False) -> None:
        if head and self._head_timer is not None:
            self._head_timer.cancel()
        if read and self._read_timer is not None:
            self._read_timer.cancel()


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; port 0 is any free one.

    Raises UserError if the port is taken.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
        sock.listen(BACKLOG)  # connections succeed from here on
    except OSError as e:
        sock.close()
        raise UserError(
            phrase(
                "cannot listen at 127.0.0.1 port {port}: {problem}. Choose another with --port",
                port=port,
                problem=e.strerror or str(e),
            )
        ) from e
    return sock


Beside = Callable[[Callable[[], None]], AbstractAsyncContextManager[None]]
"""What runs beside the endpoint; it is given a function that ends the endpoint."""


def serve(
    app: ASGIApp, sock: socket.socket, log: Callable[[str], None], beside: Beside | None = None
) -> None:
    """Serve until SIGINT or SIGTERM, which cuts off the answers that are being written.

    Args:
        app: What is served.
        sock: The socket, which listens.
        log: Takes lines about clients that were refused.
        beside: Runs in the same loop.
    """
    limits = ConnectionLimits(MAX_CONNECTIONS, log)
    options: dict[str, Any] = {
        "http": partial(TimeoutProtocol, limits=limits),
        "ws": "none",
        "lifespan": "off",
        "proxy_headers": False,
        "server_header": False,
        "access_log": False,
        "log_level": "error",
        "timeout_graceful_shutdown": 2,
        "h11_max_incomplete_event_size": _MAX_HEAD,
    }
    server = _Server(uvicorn.Config(app, **options))
    with uvicorn.Server.capture_signals(server):
        asyncio.run(_serve(server, sock, beside))


class _Server(uvicorn.Server):
    """Leave signals to `serve`: uvicorn raises them again before what runs beside it has ended."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


async def _serve(server: uvicorn.Server, sock: socket.socket, beside: Beside | None) -> None:
    def stop() -> None:
        server.should_exit = True

    async with nullcontext() if beside is None else beside(stop):
        await server.serve(sockets=[sock])
