"""metrics: what the devices and the queue do, for Prometheus."""

from __future__ import annotations

import hmac
import ipaddress
import socket
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.cli.output import say
from app.cli.prometheus import families
from app.cli.token import read_token
from app.cli.watch import first_reading
from scheduler.client import Client
from scheduler.protocol import paths
from scheduler.protocol.errors import UserError

_PATIENCE_S = 10.0

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Deck:
    """Asks the daemon anew with every scrape: as fresh as the last reading, and nothing to do between scrapes.

    A scraper is nobody who looks: it keeps no GPU awake, and has none read faster.
    """

    def collect(self) -> Iterator[Metric]:
        with Client(timeout=_PATIENCE_S) as deck:
            yield from families(first_reading(deck, timeout=2.0, live=False))


def metrics(args: Namespace) -> int:
    """Serve until interrupted, or print once."""
    registry = CollectorRegistry()
    registry.register(cast("Collector", _Deck()))
    if args.once:
        sys.stdout.write(generate_latest(registry).decode())
        return 0
    token = "" if args.no_token else read_token(token_file())[0]
    try:
        server = make_server(
            args.host,
            args.port,
            serve(registry, token),
            _Server6 if ":" in args.host else _Server,
            _Handler,
        )
    except OSError as e:
        raise UserError(
            f"no metrics can be served at {args.host} port {args.port}: {e.strerror}. Choose another with --port."
        ) from e
    with server:
        say(f"metrics at http://{_shown(args.host)}:{server.server_port}/metrics")
        if token:
            say(
                f"Prometheus needs the token in its scrape_config:  authorization: {{credentials_file: {token_file()}}}"
            )
        else:
            say(
                f"without a token: {'every user of this machine' if _loopback(args.host) else 'ANYBODY who reaches it'} can read them"
            )
        server.serve_forever()
    return 0


def token_file() -> Path:
    return paths.home() / "metrics.token"


def serve(registry: CollectorRegistry, token: str) -> App:
    """The endpoint: /metrics alone, with the token as `Authorization: Bearer` where one is set."""
    exposition = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get("HTTP_AUTHORIZATION", "").removeprefix("Bearer ")
        if token and not hmac.compare_digest(given.encode(), token.encode()):
            return _say(
                start,
                "401 Unauthorized",
                "a token is needed; see: gpudeck metrics --help",
                ("WWW-Authenticate", "Bearer"),
            )
        if environ.get("PATH_INFO") != "/metrics" or environ.get("REQUEST_METHOD") != "GET":
            return _say(start, "404 Not Found", "there is only GET /metrics")
        try:
            return cast("Iterable[bytes]", exposition(environ, start))
        except UserError as e:
            return _say(start, "503 Service Unavailable", str(e))

    return app


def _say(
    start: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    start(status, [("Content-Type", "text/plain; charset=utf-8"), *headers])
    return [text.encode() + b"\n"]


class _Handler(WSGIRequestHandler):
    timeout = _PATIENCE_S

    def log_message(self, *_: Any) -> None:
        """A scrape every few seconds is no news."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True  # a scrape that hangs does not keep us from ending


class _Server6(_Server):
    address_family = socket.AF_INET6


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
