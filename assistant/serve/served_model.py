"""Answer requests by a language model in a process of its own. Free of torch and Qt."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from gpudeck.assistant.completion import Call, Token
from gpudeck.assistant.host_protocol import Chunk, Completion, DeviceChoice, Event, PromptTooLong
from gpudeck.assistant.inference import engine_protocol as m
from gpudeck.assistant.serve.calls import find_calls
from gpudeck.assistant.serve.engine_process import EngineProcess, Replies
from gpudeck.assistant.serve.model_requests import ModelChat, ModelText
from gpudeck.assistant.serve.requests import RequestRefused, parse
from gpudeck.language.text import message_of, phrase
from gpudeck.scheduler.protocol.errors import UserError


class ServedModel:
    """Serve the model in a folder: on a GPU while one is leased, and by the CPU on request."""

    most_requests = 256
    """Requests that are worked on or wait."""

    def __init__(self, options: m.Options) -> None:
        """Prepare to serve; a process starts with `start` or the first request."""
        self.name = Path(options.folder).resolve().name
        self._processes = {"auto": EngineProcess(options)}
        self._cpu = msgspec.structs.replace(options, device="cpu")

    async def names(self) -> list[str]:
        """Return the names of the models."""
        return [self.name]

    def process(self, device: DeviceChoice) -> EngineProcess:
        """Return the process for a device; one more, if a request prefers the CPU."""
        main = self._processes["auto"]
        on_cpu = main.options.device == "cpu" or (main.started and main.started.device == "cpu")
        if device == "auto" or on_cpu:
            return main
        return self._processes.setdefault("cpu", EngineProcess(self._cpu))

    async def load(self) -> None:
        """Start the process before the first request, which reports what is wrong."""
        await self.process("auto").ensure()

    def run(self, body: bytes, device: DeviceChoice, *, chat: bool) -> ModelRun:
        """Parse a request, and return its run. Raises RequestRefused."""
        wanted = parse(body, ModelChat) if chat else parse(body, ModelText)
        return ModelRun(wanted, self.process(device))

    async def stop(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            await process.stop()


class ModelRun:
    """Run one request; it is cancelled at the end of the `async with`."""

    def __init__(self, asked: ModelChat | ModelText, process: EngineProcess) -> None:
        self._process = process
        self.model, self.stream = asked.model, bool(asked.stream)
        self.wants_usage, self.ignored = asked.wants_usage, asked.ignored
        self.wanted = asked.wanted()
        self.device, self.waited = "", 0.0
        self.tokens: tuple[Token, ...] = ()
        """The tokens of the first text."""
        self._number, self._replies = 0, Replies()
        self._done: m.Done | None = None
        self._calls: tuple[Call, ...] = ()
        self._began = time.monotonic()

    async def __aenter__(self) -> ModelRun:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._done is None and self._number:
            self._process.send(m.Cancel(self._number))
        self._process.forget(self._number)

    async def first_text(self, patience_s: float) -> str:
        """Wait for the first piece of text and return it; empty if the text has ended.

        An answer that may call a function is returned whole.

        Raises:
            RequestRefused: The GPU was not free within `patience_s`, or the request cannot be
                served.
            UserError: The model cannot be loaded, or failed.
        """
        while True:
            await self._submit(patience_s)
            with suppress(_EvictedError):
                event = await self._next()
                break
        self.waited = time.monotonic() - self._began
        text = ""
        while event is not None:
            text += event.text
            self.tokens += event.tokens
            if not self.wanted.tools:
                return text
            event = await self._next()
        self._calls, text = find_calls(text, self.wanted)
        return text

    async def next_event(self) -> Event | None:
        """Return the next event; None at the end, however often it is asked for."""
        try:
            return None if self._done is not None else await self._next()
        except _EvictedError as e:
            raise UserError(
                phrase("{problem}; the answer is incomplete. Ask again", problem=message_of(e))
            ) from e

    async def result(self) -> Completion:
        """Return how the answer ended. Raises UserError if it failed."""
        done = self._done
        assert done is not None
        reason: Literal["stop", "length"] = "length" if done.reason == "length" else "stop"
        return Completion(
            self.model, self.device, reason, done.prompt_tokens, done.tokens,
            time.monotonic() - self._began, done.cached_tokens, done.accepted, self._calls,
        )  # fmt: skip

    async def _submit(self, patience_s: float) -> None:
        """Wait for the model to be loaded, and send the request."""
        process, waits_since = self._process, 0.0
        await process.ensure()
        while process.started is None:
            process.changed.clear()
            waits_since = (waits_since or time.monotonic()) if process.waiting.gpu else 0.0
            if waits_since and time.monotonic() - waits_since > patience_s:
                raise RequestRefused(
                    f"no GPU became free within {patience_s:.0f} s ({process.waiting.reason}). Try "
                    "again later, or use the CPU with the header X-GPUDeck-Device: cpu",
                    status=503,
                    code="gpu_busy",
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await process.changed.wait()
            await process.ensure()
        self.device = process.started.device
        process.forget(self._number)
        self._number, self._replies = process.number()
        process.send(m.Submit(self._number, self.wanted))

    async def _next(self) -> Chunk | None:
        """Return the next text; None at the end."""
        event = await self._replies.get()
        match event:
            case m.Text(text=text, tokens=tokens):
                return Chunk(text, tokens)
            case m.Failed(message=message, evicted=True):
                raise _EvictedError(message)
            case m.Failed(message=message):
                raise UserError(message)
        assert isinstance(event, m.Done), event
        self._done = event
        match event.reason:
            case "too long":
                raise PromptTooLong(event.message)
            case "refused":
                raise RequestRefused(event.message)
            case "error" | "cancelled":
                raise UserError(event.message or "the answer was cancelled")
        return None


class _EvictedError(Exception):
    """Signal that the process ended, and can be started again."""
