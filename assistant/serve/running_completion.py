"""One completion as an asyncio program sees it: the assistant's client in a thread, its events in a queue. Free of torch and Qt."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from assistant.client import Assistant
from assistant.messages import Chunk, Completion, CompletionRequest, Event, Waiting
from assistant.serve.requests import Refusal

MAX_REQUESTS = 8
"""Requests that are worked on or wait their turn."""
_AGAIN_S = 0.2
_WORKERS = ThreadPoolExecutor(MAX_REQUESTS, "completion")
"""asyncio's own threads may be fewer, and are for what is quick: an end that is asked for must not wait behind what it is to end."""


class RunningCompletion:
    """A completion that is being worked on; stopped, between two tokens, at the end of the `async with`."""

    def __init__(self, request: CompletionRequest) -> None:
        self._request, self._assistant = request, Assistant()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self.device = ""
        """Where the model runs, once that is known."""
        self.waited = 0.0
        """Seconds until the first piece of text, or the end."""

    async def __aenter__(self) -> RunningCompletion:
        self._work = self._loop.run_in_executor(_WORKERS, self._complete)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end = asyncio.create_task(self._stop())
        await asyncio.shield(
            self._end
        )  # a stream whose client left is cancelled at every await: the end goes on without it

    async def _stop(self) -> None:
        while not self._work.done():
            await asyncio.to_thread(self._assistant.cancel)
            await asyncio.wait(
                (self._work,), timeout=_AGAIN_S
            )  # and again: of a request that had not begun nobody knew
        if not self._work.cancelled():
            self._work.exception()  # whoever asked was told, or is gone

    def _complete(self) -> Completion:
        try:
            return self._assistant.complete(self._request, self._hear)
        finally:
            self._loop.call_soon_threadsafe(self._events.put_nowait, None)

    def _hear(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def begun(self, patience_s: float) -> str:
        """Wait for the first piece of text, which is returned, or the end (empty).

        Raises Refusal, as there is nobody to wait any longer, where the GPU is not free within `patience_s`; what the work raises.
        """
        text, reason = "", ""
        try:
            async with asyncio.timeout(None) as patience:
                while not text and (event := await self._next()) is not None:
                    if isinstance(event, Chunk):
                        text = event.text
                    else:
                        self._note(event)
                        reason = event.reason
                        if (
                            not event.cpu
                        ):  # it is at work, or waits its turn: that takes what it takes
                            patience.reschedule(None)
                        elif patience.when() is None:
                            patience.reschedule(self._loop.time() + patience_s)
        except TimeoutError:
            raise Refusal(
                f"the model {reason}, and did not get it within {patience_s:.0f} s. Ask later, or have it computed on the CPU, by the "
                "header X-GPUDeck-DeviceChoice: cpu",
                status=503,
                code="gpu_busy",
            ) from None
        self.waited = time.monotonic() - self._began
        if not text:
            await self._work
        return text

    async def event(self) -> Event | None:
        """What is told next; None at the end."""
        event = await self._next()
        if isinstance(event, Waiting):
            self._note(event)
        return event

    async def done(self) -> Completion:
        """How it ended, or what went wrong."""
        completed = await self._work
        self.device = completed.device
        return completed

    async def _next(self) -> Event | None:
        event = await self._events.get()
        if event is None:
            self._events.put_nowait(
                None
            )  # an answer without a text ends while its beginning is waited for, and is asked for its end again
        return event

    def _note(self, waiting: Waiting) -> None:
        self.device = waiting.device or self.device
