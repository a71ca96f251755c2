"""The process that serves a model, for asyncio: started on demand, and again after an eviction.

Free of torch and Qt.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from gpudeck.assistant.inference import engine_protocol as m
from gpudeck.assistant.serve.control_messages import Phase
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background.launch import open_log
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import ASSISTANT_MARK
from gpudeck.scheduler.protocol.errors import UserError

Event = m.Text | m.Done | m.Figures | m.Failed
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(m.Reply).decode
_MOST_LINE = 2**24
_FIGURES_S = 2.0
"""An engine reads requests between those of others; one that is silent for so long is stuck."""
_TOLD = m.MOST_SENT // 4
"""The engine is told so many texts at a time that they were read."""


class Replies:
    """Hold the replies to one request until they are read."""

    def __init__(self, send: Callable[[int], None] = lambda texts: None) -> None:
        """Begin; `send` tells the engine how many texts more were read."""
        self._queue, self._send, self._read = asyncio.Queue[Event](), send, 0

    def put(self, event: Event) -> None:
        """Add a reply."""
        self._queue.put_nowait(event)

    async def get(self) -> Event:
        """Wait for the next reply."""
        event = await self._queue.get()
        self._read += isinstance(event, m.Text)
        if self._read == _TOLD:
            self._send(self._read)
            self._read = 0
        return event


class EngineProcess:
    """Run a process of `gpudeck.assistant.inference`, and give its replies to who asked."""

    def __init__(self, options: m.Options) -> None:
        """Prepare a process; `ready` starts it."""
        self.options = options
        self.started: m.Ready | None = None
        """What the process said when it had loaded the model; None: it has not."""
        self.waiting = m.Waiting("")
        """What it waits for before that."""
        self.loading: m.Loading | None = None
        """How far it is with loading the model, from then until it is loaded."""
        self._loading_since = 0.0
        self.changed = asyncio.Event()
        """Set when what it does before the first request changes."""
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._replies: dict[int, Replies] = {}
        self._numbers = itertools.count(1)
        self._failed: m.Failed | None = None

    async def ensure(self) -> None:
        """Start the process unless it runs. Raises UserError if it just failed to load."""
        async with self._starting:
            await self._ensure()

    async def _ensure(self) -> None:
        if self._process is not None and self._process.returncode is None:
            return
        if self._failed is not None and self.started is None and not self._failed.evicted:
            failed, self._failed = self._failed, None
            raise UserError(failed.message)
        self.started, self._failed = None, None
        self.waiting = m.Waiting(phrase("starting the engine"))
        self.loading = None
        paths.ensure(log_file().parent)
        log = open_log(log_file())
        try:
            # -P: files in the working directory must not be imported in place of our modules
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "gpudeck.assistant.inference",
                _ENCODE(self.options).decode(),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env={**os.environ, ASSISTANT_MARK: "1"}, limit=_MOST_LINE,
            )  # fmt: skip
        finally:
            os.close(log)
        self._reading = asyncio.create_task(self._read(self._process))

    @property
    def phase(self) -> Phase:
        """Return what the process does."""
        if self.started is not None:
            return "ready"
        if self._process is None or self._process.returncode is not None:
            return "idle" if self._failed is None or self._failed.evicted else "failed"
        return "waiting" if self.loading is None else "loading"

    @property
    def note(self) -> Message:
        """Return what it waits for, or why it ended."""
        if self.phase in ("idle", "failed") and self._failed is not None:
            return self._failed.message
        if self.loading is not None:
            share = self.loading.done / max(self.loading.total, 1)
            return phrase("loading the model ({n}%)", n=round(100 * share))
        return self.waiting.reason

    @property
    def loading_s(self) -> float:
        """Return for how long it has been loading the model."""
        return time.monotonic() - self._loading_since if self.loading is not None else 0.0

    def number(self) -> tuple[int, Replies]:
        """Return the number of a new request, and its replies."""
        number = next(self._numbers)
        replies = Replies(lambda texts: self.send(m.Taken(number, texts)))
        self._replies[number] = replies
        return number, replies

    def forget(self, number: int) -> None:
        """Drop the replies to a request from now on."""
        self._replies.pop(number, None)

    def send(self, request: m.Request) -> None:
        """Send a request. The process reads at once, so nothing piles up here."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(_ENCODE(request) + b"\n")

    async def figures(self) -> dict[str, float]:
        """Return the statistics; empty while no model is loaded, or where it does not answer."""
        if self.started is None:
            return {}
        number, replies = self.number()
        self.send(m.Look(number))
        try:
            async with asyncio.timeout(_FIGURES_S):
                event = await replies.get()
        except TimeoutError:
            return {}
        finally:
            self.forget(number)
        return event.values if isinstance(event, m.Figures) else {}

    async def stop(self) -> None:
        """End the process."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            reply = _DECODE(line)
            match reply:
                case m.Ready():
                    self.started, self.waiting, self.loading = reply, m.Waiting(""), None
                    self.changed.set()
                case m.Loading():
                    self._loading_since = self._loading_since if self.loading else time.monotonic()
                    self.loading = reply
                    self.changed.set()
                case m.Waiting():
                    self.waiting = reply
                    self.changed.set()
                case m.Failed():
                    self._failed = reply
                case m.Text() | m.Done() | m.Figures():
                    if (replies := self._replies.get(reply.id)) is not None:
                        replies.put(reply)
        await process.wait()
        if self._failed is None:
            self._failed = m.Failed(
                phrase(
                    "the engine ended with the status {n}; see {file}",
                    n=process.returncode or 0,
                    file=str(log_file()),
                ),
                evicted=self.started is not None,  # it can be started again
            )
        for replies in self._replies.values():
            replies.put(self._failed)
        self.loading = None
        if self._failed.evicted:
            self.started = None
        self.changed.set()


def log_file() -> Path:
    """Return the log of the engine's process."""
    return paths.home() / "serving.log"
