"""Serve the state of the devices and the queue to Prometheus."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, cast
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import wait_for_reading
from gpudeck.app.cli.devices.prometheus import families
from gpudeck.app.cli.output import print_error, print_line
from gpudeck.app.cli.token import read_token
from gpudeck.language.text import phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.tcp_peers import ConnectionLimits, Party

TIMEOUT_S = 10.0
"""How long the daemon is waited for."""
HEAD_S, CONNECTION_S = 5.0, 30.0
"""The longest pause of a client while it sends its request, and the longest life of a connection.
"""
MAX_CONNECTIONS = 32
"""Connections of this user, each with a thread."""

StartResponse = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the address, the port, and the protection of the endpoint."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address to listen on (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port",
        type=arguments.count,
        default=9835,
        metavar="N",
        help="port to listen on; 0 chooses a free one (default: 9835)",
    )
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="let everyone who can reach the port read the metrics",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="print the metrics once, e.g. for the textfile collector of node_exporter",
    )


def run(args: Namespace) -> None:
    """Serve metrics until interrupted, or print them once."""
    registry = CollectorRegistry()
    registry.register(cast("Collector", _DaemonCollector()))
    if args.once:
        sys.stdout.write(generate_latest(registry).decode())
        return
    token = "" if args.no_token else read_token(token_file())[0]
    hosts = allowed_hosts(args.host, bool(token))
    server_class = _Server6 if ":" in args.host else _Server
    try:
        server = make_server(
            args.host, args.port, make_app(registry, token, hosts), server_class, _Handler
        )
    except OSError as e:
        raise UserError(
            phrase(
                "metrics cannot be served at {host} port {port}: {error}. Choose "
                "another port with --port",
                host=args.host,
                port=args.port,
                error=str(e.strerror),
            )
        ) from e
    with server:
        host = f"[{args.host}]" if ":" in args.host else args.host
        print_line(f"metrics at http://{host}:{server.server_port}/metrics")
        if token:
            print_line(
                "Prometheus needs the token in its scrape_config:  "
                f"authorization: {{credentials_file: {token_file()}}}"
            )
        else:
            readers = "every user of this machine" if _is_loopback(args.host) else "ANYONE"
            print_line(f"No token is needed: {readers} can read the metrics.")
        server.serve_forever()


class _DaemonCollector:
    """Read the daemon's snapshot at each scrape.

    A scraper is not a person who watches: it does not wake sleeping GPUs or speed up the readings.
    """

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of a snapshot with readings."""
        with Client(timeout=TIMEOUT_S) as client:
            yield from families(wait_for_reading(client, timeout=2.0, live=False))


def token_file() -> Path:
    """Return the file that holds the token of the metrics."""
    return paths.home() / "metrics.token"


def allowed_hosts(address: str, has_token: bool) -> frozenset[str] | None:
    """Return the names by which clients may address the endpoint; None for any.

    A web page can have its own name lead to this machine, and then read what needs no token. It
    cannot do so with a number, or with the names that are returned here.

    Args:
        address: The address on which the endpoint listens.
        has_token: Requests need a token.
    """
    if _is_loopback(address):
        return frozenset({"localhost"})
    names = {"localhost", socket.gethostname().lower(), socket.getfqdn().lower()}
    return None if has_token else frozenset(names)


def _is_allowed(host: str, hosts: frozenset[str] | None) -> bool:
    """Return True where a request may name this host."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return hosts is None or name in hosts or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def make_app(
    registry: CollectorRegistry, token: str, hosts: frozenset[str] | None = None
) -> WsgiApp:
    """Return a WSGI application that serves /metrics.

    Args:
        registry: The metrics to serve.
        token: The token that requests must present; with an empty token, none is needed.
        hosts: The names that requests may address, beside numbers; None for any.
    """
    metrics = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: StartResponse) -> Iterable[bytes]:
        if not _is_allowed(environ.get("HTTP_HOST", ""), hosts):
            text = "address this endpoint by its number or as localhost"
            return _reply(start, "403 Forbidden", text)
        given = environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
        if token and not hmac.compare_digest(given.encode(), token.encode()):
            text = "a token is needed; see: gpudeck metrics --help"
            return _reply(start, "401 Unauthorized", text, ("WWW-Authenticate", "Bearer"))
        if environ.get("PATH_INFO") != "/metrics" or environ.get("REQUEST_METHOD") != "GET":
            return _reply(start, "404 Not Found", "only GET /metrics is served")
        try:
            return cast("Iterable[bytes]", metrics(environ, start))
        except UserError as e:
            return _reply(start, "503 Service Unavailable", str(e))

    return app


def _reply(
    start: StartResponse, status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [text.encode() + b"\n"]


class _Handler(WSGIRequestHandler):
    timeout = HEAD_S

    def log_message(self, *_: Any) -> None:
        """Log nothing, because there is a scrape every few seconds."""


class _Server(ThreadingMixIn, WSGIServer):
    """Serve each connection in a thread, as many of each user as the limits allow."""

    daemon_threads = True  # a scrape that hangs does not keep the program from exiting
    request_queue_size = 128

    def __init__(self, *args: Any, **options: Any) -> None:
        self._limits = ConnectionLimits(MAX_CONNECTIONS, print_error)
        self._open: dict[Any, tuple[Party, float]] = {}
        """Each connection with its party, and when it is cut off, in monotonic seconds."""
        super().__init__(*args, **options)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return False where a user has too many connections."""
        if (party := self._limits.admit(request)) is None:
            return False
        self._open[request] = party, time.monotonic() + CONNECTION_S
        return True

    def service_actions(self) -> None:
        """Cut off connections that last too long, as of a client that sends byte by byte."""
        now = time.monotonic()
        for request, (_, end) in list(self._open.items()):
            if now > end:
                with suppress(OSError):  # its thread has just closed it
                    request.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        if (entry := self._open.pop(request, None)) is not None:
            self._limits.release(entry[0])
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report bugs of ours; a client that stalls or leaves is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Server6(_Server):
    address_family = socket.AF_INET6


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
