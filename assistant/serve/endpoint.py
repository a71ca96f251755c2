"""The endpoint: `/v1/models`, `/v1/chat/completions`, `/v1/completions`. Free of torch and Qt.

It is for this user's programs. A web page that the user visits can reach a port of the same
machine, too, so a request that does not name this machine as its host, or lacks the token, is
refused before its body is read.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from gpudeck.assistant.completion import Token
from gpudeck.assistant.host_protocol import Chunk, Completion, DeviceChoice, Event, PromptTooLong
from gpudeck.assistant.serve import replies
from gpudeck.assistant.serve.requests import MAX_BODY, RequestRefused
from gpudeck.language.rendering import render
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
BODY_S = 10.0
"""The time for the body of a request."""
_RETRY_S = "5"

RequestHandler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class Run(AbstractAsyncContextManager["Run"], Protocol):
    """Answer one request; the end of the `async with` ends the work."""

    model: str
    stream: bool
    wants_usage: bool
    ignored: tuple[str, ...]
    device: str
    waited: float
    tokens: tuple[Token, ...]
    """Of the first piece."""

    async def first_text(self, patience_s: float) -> str:
        """Return the first piece of text."""

    async def next_event(self) -> Event | None:
        """Return the next event; None at the end."""

    async def result(self) -> Completion:
        """Return how the answer ended."""


class Answerer(Protocol):
    """Answer requests: the assistant's own model does, and a served one."""

    most_requests: int

    async def names(self) -> list[str]:
        """Return the names of the models."""

    def run(self, body: bytes, device: DeviceChoice, *, chat: bool) -> Run:
        """Parse a request and return its run. Raises RequestRefused."""


class OpenAIEndpoint:
    """Answer the requests of programs that speak OpenAI's API."""

    def __init__(
        self, answerer: Answerer, token: str, device: DeviceChoice, patience_s: float
    ) -> None:
        """Create an endpoint.

        Args:
            answerer: Answers the requests.
            token: The token that requests must have.
            device: Where the model runs, unless a request has the header X-GPUDeck-Device.
            patience_s: How long a request may wait for a GPU that others use.
        """
        self._token, self._device, self._patience_s = token.encode(), device, patience_s
        self._answerer, self._places = answerer, asyncio.Semaphore(answerer.most_requests)

    def app(self) -> Starlette:
        """Return the endpoint as an ASGI application."""
        routes = [
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/models/{name:path}", self._guarded(self._model)),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            Route("/v1/embeddings", self._guarded(self._embeddings), methods=["POST"]),
            Route("/v1/completions", self._guarded(self._text), methods=["POST"]),
        ]
        handlers = {HTTPException: _unknown_url, Exception: _bug}
        return Starlette(routes=routes, exception_handlers=handlers)

    def _guarded(self, handler: RequestHandler) -> RequestHandler:
        """Check the host and the token first, and turn errors into replies."""

        async def guarded(request: Request) -> Response:
            try:
                self._admit(request)
                return await handler(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody receives it
            except RequestRefused as e:
                return _failure(e.status, str(e), e.param, e.code)
            except PromptTooLong as e:
                return _failure(400, str(e), code="context_length_exceeded")
            except UserError as e:
                return _failure(503, str(e), code=_error_code(e))

        return guarded

    def _admit(self, request: Request) -> None:
        """Raise RequestRefused if the host or the token is wrong."""
        host = request.headers.get("host", "")
        if len(request.headers.getlist("host")) != 1 or not {host, host.rpartition(":")[0]} & HOSTS:
            raise RequestRefused(
                "this endpoint is for programs on this machine: address it as 127.0.0.1 or "
                "localhost",
                status=403,
                code="wrong_host",
            )
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        if not is_bearer or not hmac.compare_digest(token.strip().encode(), self._token):
            raise RequestRefused(
                "the token is missing or wrong: send Authorization: Bearer TOKEN. "
                "See: gpudeck serve --help",
                status=401,
                code="invalid_api_key",
            )

    async def _models(self, request: Request) -> Response:
        return _json(replies.models(await self._answerer.names()))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self._check_model(name)
        return _json(replies.model(name))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, chat=True)

    async def _text(self, request: Request) -> Response:
        return await self._answer(request, chat=False)

    async def _embeddings(self, request: Request) -> Response:
        """Refuse embeddings: a model that writes texts has none that are made for comparing."""
        raise RequestRefused(
            "embeddings are not offered: the model here writes texts. Use a model made for them",
            status=404,
            code="unsupported",
        )

    async def _answer(self, request: Request, *, chat: bool) -> Response:
        body, device = await _body(request), self._device_for(request)
        run = self._answerer.run(body, device, chat=chat)
        await self._check_model(run.model)
        if self._places.locked():
            most = self._answerer.most_requests
            waiting = f"{most} requests wait already. Try again later"
            raise RequestRefused(waiting, status=429, code="too_many_requests")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._places)
            running = await stack.enter_async_context(run)
            first = await _unless_gone(request, running.first_text(self._patience_s))
            reply = replies.ReplyFormat(run.model, chat=chat)
            if chat:
                first = first.lstrip()
            if run.stream:
                headers = {**_headers(running), "cache-control": "no-store"}
                stream = _stream(stack.pop_all(), running, reply, first, run.wants_usage)
                return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
            text, tokens = await _unless_gone(request, _whole(running, first))
            return _json(reply.whole(text, await running.result(), tokens), _headers(running))

    async def _check_model(self, name: str) -> None:
        """Raise RequestRefused for a model that is not in use."""
        used = await self._answerer.names()
        if name not in used:
            known = f"the model in use is {', '.join(used)}"
            if not used:
                known = "none is in use. Choose one: gpudeck models"
            raise RequestRefused(
                f"the model {name!r} does not exist here; {known}",
                status=404,
                param="model",
                code="model_not_found",
            )

    def _device_for(self, request: Request) -> DeviceChoice:
        device = request.headers.get("x-gpudeck-device", self._device)
        if device not in ("cpu", "auto"):
            raise RequestRefused(f"the header X-GPUDeck-Device is auto or cpu, not {device!r}")
        return "cpu" if device == "cpu" else "auto"


async def _stream(
    stack: AsyncExitStack,
    running: Run,
    reply: replies.ReplyFormat,
    first: str,
    with_usage: bool,
) -> AsyncIterator[bytes]:
    """Yield pieces as they come. A client that leaves stops the model.

    An error is the last piece, because the status was sent long before.
    """
    async with stack:
        yield reply.piece(first, running.device, running.tokens, first=True)
        try:
            while (event := await running.next_event()) is not None:
                if isinstance(event, Chunk):
                    yield reply.piece(event.text, running.device, event.tokens, first=False)
                else:
                    yield replies.comment(render(event.reason))
            yield reply.end(await running.result(), with_usage=with_usage)
        except UserError as e:
            yield replies.error_event(503, str(e), _error_code(e))


async def _whole(running: Run, text: str) -> tuple[str, tuple[Token, ...]]:
    """Return the whole text, which begins with `text`, and its tokens if they were asked for."""
    tokens = running.tokens
    while (event := await running.next_event()) is not None:
        if isinstance(event, Chunk):
            text += event.text
            tokens += event.tokens
    return text, tokens


async def _unless_gone(request: Request, work: Coroutine[None, None, T]) -> T:
    """Return the result of the work, or end it and raise ClientDisconnect if the client leaves."""
    working, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """Return the body. Raises RequestRefused if it is too long or too slow."""
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    too_long = f"a request may have at most {MAX_BODY} bytes"
                    raise RequestRefused(too_long, status=413, code="request_too_large")
    except TimeoutError:
        late = f"the request did not arrive within {BODY_S:.0f} s"
        raise RequestRefused(late, status=408, code="timeout") from None
    return body


def _headers(running: Run) -> dict[str, str]:
    """Return headers with the device, the seconds waited for it, and the options not used."""
    found = {"x-gpudeck-device": running.device, "x-gpudeck-waited": f"{running.waited:.3f}"}
    return found | ({"x-gpudeck-ignored": ", ".join(running.ignored)} if running.ignored else {})


def _json(content: bytes, headers: dict[str, str] | None = None, status: int = 200) -> Response:
    return Response(content, status, headers, media_type="application/json")


def _error_code(error: UserError) -> str:
    return "daemon_gone" if isinstance(error, DaemonGone) else "model_unavailable"


def _failure(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> Response:
    headers = {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (429, 503):
        headers["retry-after"] = _RETRY_S
    if status in (401, 403, 408, 413):
        headers["connection"] = "close"  # the rest of the request is not read
    return _json(replies.error(status, message, param, code), headers, status)


async def _unknown_url(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail.lower()}"
    return _failure(error.status_code, message, code="unknown_url")


async def _bug(request: Request, error: Exception) -> Response:
    return _failure(500, "the endpoint failed on this request; see its output")
