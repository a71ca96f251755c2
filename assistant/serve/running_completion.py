"""One completion for asyncio: the assistant's client in a thread, its events in a queue.

Free of torch and Qt.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec

from gpudeck.assistant.client import Assistant
from gpudeck.assistant.completion import Call, Token
from gpudeck.assistant.host_protocol import (
    Chunk,
    Completion,
    CompletionRequest,
    DeviceChoice,
    Event,
    Waiting,
    WantedRefused,
)
from gpudeck.assistant.library.describe import name_of
from gpudeck.assistant.serve.calls import find_calls
from gpudeck.assistant.serve.model_requests import ModelChat, ModelText
from gpudeck.assistant.serve.requests import RequestRefused, parse
from gpudeck.scheduler.client import Client

MAX_REQUESTS = 8
"""Requests that are worked on or wait."""
_RETRY_S = 0.2
_WORKERS = ThreadPoolExecutor(MAX_REQUESTS, "completion")
"""Separate from asyncio's own threads, of which there may be fewer: a cancellation must not wait
for the work that it is to end."""


class AssistantModel:
    """Answer requests by the model that the assistant uses."""

    most_requests = MAX_REQUESTS

    async def names(self) -> list[str]:
        """Return the name of the model in use, if there is one."""
        name = await asyncio.to_thread(configured_model)
        return [name] if name else []

    def run(self, body: bytes, device: DeviceChoice, *, chat: bool) -> RunningCompletion:
        """Parse a request, and return its run. Raises RequestRefused."""
        asked = parse(body, ModelChat) if chat else parse(body, ModelText)
        return RunningCompletion(asked, device)


def configured_model() -> str:
    """Return the name of the model in the settings; empty if there is none."""
    with Client() as daemon:
        return name_of(daemon.snapshot().settings.model)


class RunningCompletion:
    """Run a completion, and stop it between two tokens at the end of the `async with`."""

    def __init__(self, asked: ModelChat | ModelText, device: DeviceChoice) -> None:
        self.model, self.stream = asked.model, bool(asked.stream)
        self.wants_usage, self.ignored = asked.wants_usage, asked.ignored
        self._wanted, self._assistant = asked.wanted(), Assistant()
        self._request = CompletionRequest(self._wanted, device=device)
        self.tokens: tuple[Token, ...] = ()
        """The tokens of the first text."""
        self._calls: tuple[Call, ...] = ()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self.device = ""
        """The device that the model runs on, once that is known."""
        self.waited = 0.0
        """Seconds until the first piece of text, or until the end."""

    async def __aenter__(self) -> RunningCompletion:
        self._work = self._loop.run_in_executor(_WORKERS, self._complete)
        return self

    async def __aexit__(self, *_: object) -> None:
        # a stream whose client left is cancelled at every await; stopping must go on all the same
        self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        while not self._work.done():
            await asyncio.to_thread(self._assistant.cancel)
            # try again: the assistant may not have known the request yet
            await asyncio.wait((self._work,), timeout=_RETRY_S)
        if not self._work.cancelled():
            self._work.exception()  # retrieved, because the client was told of it or is gone

    def _complete(self) -> Completion:
        try:
            return self._assistant.complete(self._request, self._put)
        finally:
            self._put(None)

    def _put(self, event: Event | None) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def first_text(self, patience_s: float) -> str:
        """Wait for the first piece of text and return it; empty if the text has ended.

        An answer that may call a function is returned whole.

        Raises:
            RequestRefused: The GPU was not free within `patience_s`, or the request cannot be
                served.
            UserError: The completion failed.
        """
        text, reason, whole = "", "", bool(self._wanted.tools)
        try:
            async with asyncio.timeout(None) as patience:
                while (whole or not text) and (event := await self.next_event()) is not None:
                    if isinstance(event, Chunk):
                        text += event.text
                        self.tokens += event.tokens
                        continue
                    reason = str(event.reason)
                    if not event.cpu:  # the model is working, or other requests go first
                        patience.reschedule(None)
                    elif patience.when() is None:
                        patience.reschedule(self._loop.time() + patience_s)
        except TimeoutError:
            raise RequestRefused(
                f"no GPU became free within {patience_s:.0f} s ({reason}). Try again later, or use "
                "the CPU with the header X-GPUDeck-Device: cpu",
                status=503,
                code="gpu_busy",
            ) from None
        self.waited = time.monotonic() - self._began
        if not text:
            await self.result()
        self._calls, text = find_calls(text, self._wanted) if whole else ((), text)
        return text

    async def next_event(self) -> Event | None:
        """Return the next event; None at the end, however often it is asked for."""
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(None)
        elif isinstance(event, Waiting):
            self.device = event.device or self.device
        return event

    async def result(self) -> Completion:
        """Return how the completion ended. Raises UserError if it failed."""
        try:
            completion = await self._work
        except WantedRefused as e:
            raise RequestRefused(str(e)) from e
        self.device = completion.device
        return msgspec.structs.replace(completion, calls=self._calls)
