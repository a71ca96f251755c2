"""The endpoint: `/v1/models`, `/v1/chat/completions`, `/v1/completions`. Free of torch and Qt.

It is for this user's programs. A web page that the user visits, too, can reach a port of the same machine: what does not name this machine
as its host, or has not the token, is turned away before its body is read.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from assistant.library.describe import name_of
from assistant.messages import Chunk, DeviceChoice, PromptTooLong
from assistant.serve import replies
from assistant.serve.requests import MAX_BODY, Chat, Prose, Refusal, parse
from assistant.serve.running_completion import MAX_REQUESTS, RunningCompletion
from scheduler.client import Client
from scheduler.protocol.errors import DaemonGone, UserError

HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
BODY_S = 10.0
"""A request must have come within this time."""
RETRY_S = "5"

RequestHandler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")


class OpenAIEndpoint:
    """What the endpoints share."""

    def __init__(self, token: str, device: DeviceChoice, patience_s: float) -> None:
        """`patience_s`: how long a request may wait for a GPU that others use."""
        self._token, self._device, self._patience_s = token.encode(), device, patience_s
        self._room = MAX_REQUESTS

    def app(self) -> Starlette:
        routes = [
            Route("/v1/models", self._guarded(self._models)),
            Route("/v1/models/{name:path}", self._guarded(self._model)),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
            Route("/v1/completions", self._guarded(self._text), methods=["POST"]),
        ]
        return Starlette(
            routes=routes, exception_handlers={HTTPException: _not_here, Exception: _bug}
        )

    def _guarded(self, endpoint: RequestHandler) -> RequestHandler:
        async def guarded(request: Request) -> Response:
            try:
                self._admit(request)
                return await endpoint(request)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody hears it
            except Refusal as e:
                return _failed(e.status, str(e), e.param, e.code)
            except PromptTooLong as e:
                return _failed(400, str(e), code="context_length_exceeded")
            except DaemonGone as e:
                return _failed(503, str(e), code="daemon_gone")
            except UserError as e:
                return _failed(503, str(e), code="model_unavailable")

        return guarded

    def _admit(self, request: Request) -> None:
        """Raises Refusal."""
        host = request.headers.get("host", "")
        if len(request.headers.getlist("host")) != 1 or not {host, host.rpartition(":")[0]} & HOSTS:
            raise Refusal(
                "this endpoint is for programs of this machine: ask it as 127.0.0.1 or localhost",
                status=403,
                code="wrong_host",
            )
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(
            given.strip().encode(), self._token
        ):
            raise Refusal(
                "a token is needed: Authorization: Bearer ...; see: gpudeck serve --help",
                status=401,
                code="invalid_api_key",
            )

    async def _models(self, request: Request) -> Response:
        name = await asyncio.to_thread(configured_model)
        return _json(replies.models([name] if name else []))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["name"]
        await _check_model(name)
        return _json(replies.model(name))

    async def _chat(self, request: Request) -> Response:
        return await self._answer(request, Chat)

    async def _text(self, request: Request) -> Response:
        return await self._answer(request, Prose)

    async def _answer(self, request: Request, kind: type[Chat | Prose]) -> Response:
        wanted = parse(await _body(request), kind)
        await _check_model(wanted.model)
        if self._room == 0:
            raise Refusal(
                f"{MAX_REQUESTS} requests wait already; ask later",
                status=429,
                code="too_many_requests",
            )
        async with AsyncExitStack() as stack:
            self._room -= 1
            stack.callback(self._leave)
            running = await stack.enter_async_context(
                RunningCompletion(wanted.complete(self._where(request)))
            )
            first = await _unless_gone(request, running.begun(self._patience_s))
            style = replies.ReplyFormat(wanted.model, chat=kind is Chat)
            if kind is Chat:
                first = first.lstrip()
            if wanted.stream:
                headers = {**_told(running), "cache-control": "no-store"}
                stream = _stream(stack.pop_all(), running, style, first, wanted)
                return StreamingResponse(stream, media_type="text/event-stream", headers=headers)
            text = await _unless_gone(request, _whole(running, first))
            return _json(style.whole(text, await running.done()), _told(running))

    def _leave(self) -> None:
        self._room += 1

    def _where(self, request: Request) -> DeviceChoice:
        asked = request.headers.get("x-gpudeck-device", self._device)
        if asked == "cpu":
            return "cpu"
        if asked == "auto":
            return "auto"
        raise Refusal(f"the header X-GPUDeck-DeviceChoice is auto or cpu; got {asked!r}")


async def _stream(
    stack: AsyncExitStack,
    running: RunningCompletion,
    style: replies.ReplyFormat,
    first: str,
    wanted: Chat | Prose,
) -> AsyncIterator[bytes]:
    """Pieces as they come. An error is the last of them, as the status was told long before; who leaves stops the model."""
    async with stack:
        yield style.piece(first, running.device, first=True)
        try:
            while (event := await running.event()) is not None:
                if isinstance(event, Chunk):
                    yield style.piece(event.text, running.device, first=False)
                else:
                    yield replies.comment(event.reason)
            yield style.end(await running.done(), with_usage=wanted.wants_usage)
        except DaemonGone as e:
            yield replies.error_event(503, str(e), "daemon_gone")
        except UserError as e:
            yield replies.error_event(503, str(e), "model_unavailable")


async def _whole(running: RunningCompletion, text: str) -> str:
    """All of the text."""
    while (event := await running.event()) is not None:
        if isinstance(event, Chunk):
            text += event.text
    return text


async def _unless_gone(request: Request, work: Coroutine[None, None, T]) -> T:
    """What the work comes to. Raises ClientDisconnect, and ends it, where nobody waits for it any more."""
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
    """Raises Refusal for one that is too long, or too slow to come."""
    body = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise Refusal(
                        f"a request has at most {MAX_BODY} bytes",
                        status=413,
                        code="request_too_large",
                    )
    except TimeoutError:
        raise Refusal(
            f"the request did not come within {BODY_S:.0f} s", status=408, code="timeout"
        ) from None
    return body


async def _check_model(name: str) -> None:
    """Raises Refusal for a model that there is not."""
    there = await asyncio.to_thread(configured_model)
    if name != there:
        known = f"there is: {there}" if there else "none is in use; choose one: gpudeck models"
        raise Refusal(
            f"the model {name!r} does not exist here; {known}",
            status=404,
            param="model",
            code="model_not_found",
        )


def configured_model() -> str:
    """Name of the model that the settings name; empty where they name none."""
    with Client() as daemon:
        return name_of(daemon.snapshot().settings.model)


def _told(running: RunningCompletion) -> dict[str, str]:
    """Where it is computed, and how many seconds it waited for that: at the head of every answer."""
    return {"x-gpudeck-device": running.device, "x-gpudeck-waited": f"{running.waited:.3f}"}


def _json(content: bytes, headers: dict[str, str] | None = None) -> Response:
    return Response(content, media_type="application/json", headers=headers)


def _failed(
    status: int, message: str, param: str | None = None, code: str | None = None
) -> Response:
    headers = {
        401: {"www-authenticate": "Bearer"},
        429: {"retry-after": RETRY_S},
        503: {"retry-after": RETRY_S},
    }.get(status, {})
    if status in (401, 403, 408, 413):
        headers = {**headers, "connection": "close"}  # what more it sends is not read
    return Response(
        replies.error(status, message, param, code),
        status,
        media_type="application/json",
        headers=headers,
    )


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _failed(
        error.status_code,
        f"{request.method} {request.url.path}: {error.detail.lower()}",
        code="unknown_url",
    )


async def _bug(request: Request, error: Exception) -> Response:
    return _failed(500, "the endpoint failed on this request; what it printed says more")
