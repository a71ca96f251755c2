"""The routes of the page: static files, and read-only requests that need the token."""

from __future__ import annotations

import asyncio
import math
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from gpudeck.app.language.texts import tr_text
from gpudeck.app.web.captions import captions
from gpudeck.app.web.feed import Event, Feed
from gpudeck.app.web.guard import Guard
from gpudeck.app.web.job_stream import job_events
from gpudeck.app.web.page_state import SHOWN
from gpudeck.app.widgets.colors import DARK, LIGHT, Tokens
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Columns

MOST_POINTS = 1000
"""The most points of a curve that one request returns."""
_BEAT_S = 15.0
"""The time after which an event without a message shows that the connection stands."""
_TYPES = {
    "css": "text/css", "html": "text/html", "js": "text/javascript", "svg": "image/svg+xml",
    "ttf": "font/ttf", "txt": "text/plain",
}  # fmt: skip
_FONTS = ("Inter-Regular.ttf", "Inter-SemiBold.ttf", "Mono-Regular.ttf")
_ICON = "io.github.gpudeck.GPUDeck.svg"


class WebPage:
    """Serve the page; `running` goes beside the server and ends the streams with it."""

    def __init__(self, token: str) -> None:
        """Prepare the page.

        Args:
            token: What requests for data must name.
        """
        self._token, self._feed, self._ending = token, Feed(), asyncio.Event()

    def app(self) -> ASGIApp:
        """Return the page as an ASGI application."""
        routes = [
            Route("/", _index),
            Route("/static/{name}", _static),
            Route("/api/captions", _captions),
            Route("/api/live", self._live),
            Route("/api/jobs/{number:int}", self._job),
            Route("/api/history", _history),
        ]
        handlers = {HTTPException: _refuse}
        return Guard(Starlette(routes=routes, exception_handlers=handlers), self._token)

    @asynccontextmanager
    async def running(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """At SIGINT and SIGTERM, end the streams, which have no end of their own, and `stop`."""

        def end() -> None:
            self._ending.set()
            stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, end)
        yield

    async def _live(self, request: Request) -> Response:
        return self._stream(self._feed.events())

    async def _job(self, request: Request) -> Response:
        return self._stream(job_events(request.path_params["number"]))

    def _stream(self, events: AsyncGenerator[Event, None]) -> Response:
        return StreamingResponse(self._lines(events), media_type="text/event-stream")

    async def _lines(self, events: AsyncGenerator[Event, None]) -> AsyncIterator[bytes]:
        """Yield server-sent events until they, or the server, end; JSON has no line breaks."""
        ending = asyncio.ensure_future(self._ending.wait())
        waiting = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                done, _ = await asyncio.wait(
                    (waiting, ending), timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    yield b":\n\n"
                    continue
                if ending in done or (event := waiting.result()) is None:
                    return
                yield b"event: %b\ndata: %b\n\n" % (event[0].encode(), event[1])
                waiting = asyncio.ensure_future(anext(events, None))
        finally:
            ending.cancel()
            waiting.cancel()
            await asyncio.wait((waiting,))
            await events.aclose()


async def _index(request: Request) -> Response:
    return Response(_files()["index.html"], media_type=_TYPES["html"])


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _files():
        raise HTTPException(403)
    return Response(_files()[name], media_type=_TYPES[name.rpartition(".")[2]])


async def _captions(request: Request) -> Response:
    return Response(msgspec.json.encode(captions()), media_type="application/json")


async def _history(request: Request) -> Response:
    """Return the history of a device between two times, in at most MOST_POINTS points."""
    asked = request.query_params
    try:
        since, until = float(asked["since"]), float(asked["until"])
        points = int(asked["points"])
    except (KeyError, ValueError):
        return PlainTextResponse("name device, since, until and points\n", 400)
    if not (math.isfinite(since) and math.isfinite(until) and 1 <= points <= MOST_POINTS):
        return PlainTextResponse(f"points is 1 to {MOST_POINTS}\n", 400)

    def read() -> Columns:
        with Client() as client:
            return client.history(asked.get("device", ""), SHOWN, since, until, points)

    try:
        found = await asyncio.to_thread(read)
    except UserError as e:
        return PlainTextResponse(tr_text(e.message) + "\n", 404)
    return Response(msgspec.json.encode(found), media_type="application/json")


async def _refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse("there is no such page\n", 403)


@cache
def _files() -> dict[str, bytes]:
    """Return the static files by name; no request can name another file."""
    here, assets = files("gpudeck.app.web") / "static", files("gpudeck.assets")
    found = {file.name: file.read_bytes() for file in here.iterdir() if file.is_file()}
    found |= {name: (assets / "fonts" / name).read_bytes() for name in _FONTS}
    found["icon.svg"] = (assets / "icons" / _ICON).read_bytes()
    found["colors.css"] = _colors().encode()
    return found


def _colors() -> str:
    """Return the colours of the window as variables of CSS, for both schemes."""
    light, dark = (f":root{{{_variables(tokens)}}}" for tokens in (LIGHT, DARK))
    return f"{light}@media (prefers-color-scheme: dark) {{{dark}}}"


def _variables(tokens: Tokens) -> str:
    plain = {name: value for name, value in vars(tokens).items() if isinstance(value, str)}
    series = {f"series-{i}": color for i, color in enumerate(tokens.series)}
    return "".join(f"--{n.replace('_', '-')}:{v};" for n, v in (plain | series).items())
