"""The endpoint as a server on a port of this machine alone, by uvicorn. Free of torch and Qt."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from scheduler.protocol.errors import UserError

HEAD_S = 10.0
"""A request's head must have come within this time of the connection, or of the answer before."""
MOST_CONNECTIONS = 64
STALLED_S = 30.0
"""A client that takes nothing for so long while there is something to send is gone."""
MAX_HEAD = 16 * 1024
"""Bytes."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP, and the end of the patience that it lacks: with clients that send their head a byte at a time, or never read."""

    _late: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """More waits to be read than is kept for it."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._read_on()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._read_on()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._stop_waiting()
        self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _read_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def listen(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0: any that is free. Raises UserError where the port is taken."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("127.0.0.1", port))
        sock.listen(MOST_CONNECTIONS)  # from here on it may be told where it is
    except OSError as e:
        sock.close()
        raise UserError(
            f"nothing can be served at 127.0.0.1 port {port}: {e.strerror}. Choose another with --port"
        ) from e
    return sock


def serve(app: ASGIApp, sock: socket.socket) -> None:
    """Until SIGINT or SIGTERM; what is being answered then is cut off."""
    options: dict[str, Any] = {
        "http": ImpatientProtocol,
        "ws": "none",
        "lifespan": "off",
        "proxy_headers": False,
        "server_header": False,
        "access_log": False,
        "log_level": "error",
        "limit_concurrency": MOST_CONNECTIONS,
        "timeout_graceful_shutdown": 2,
        "h11_max_incomplete_event_size": MAX_HEAD,
    }
    uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[sock])
