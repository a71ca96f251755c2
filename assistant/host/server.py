"""The server of the assistant's process: `python -m gpudeck.assistant.host`.

There is one process per user. It starts on demand, serves the window and the command line, works on
requests side by side, and can stop each between two tokens. The model serves them by one scheduler,
in which those of people go before those of programs; only a benchmark works alone. It ends after
ten minutes without a request, when the daemon is gone, or when a model on the GPU has to make room,
because only the end of the process frees all of its GPU memory. Clients then send their requests to
the next process. An unused model leaves the GPU after the time in the setting `model_idle_minutes`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.assistant import host_protocol as m
from gpudeck.assistant.client import socket_path
from gpudeck.assistant.engine.checkpoint import FileCheckpoint, remove_stale
from gpudeck.assistant.host.answers import handle_ask, handle_decision, handle_report
from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.host.context import RequestContext, current_settings
from gpudeck.assistant.host.model_requests import handle_benchmark, handle_completion
from gpudeck.assistant.host.model_residency import ModelResidency
from gpudeck.assistant.host.turns import Turns
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.tools.proposal_store import ProposalStore
from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.background.instance import report_ready
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths, settings, wire
from gpudeck.scheduler.protocol.errors import DaemonGone, NotFound, OutcomeUnknown, UserError

MOST_REQUESTS = 64
"""Requests that are worked on at once."""
UNUSED_S = 600.0
"""The process ends after so long without a request."""
STOP_S = 0.3
"""A cancelled request may take this long to end before its client is released, for example while
its model is still loading."""
LEAVE_S = 0.02
"""On eviction, the time to tell the clients. The daemon kills the process after 0.1 s."""
BEAT_S = 1.0
"""The time between two signs of life, which also reveal that a client is gone."""

Handler = Callable[[Any, RequestContext], m.Result]

HANDLERS: dict[type[m.Work | m.Approve], Handler] = {
    m.Ask: handle_ask,
    m.Report: handle_report,
    m.CompletionRequest: handle_completion,
    m.Benchmark: handle_benchmark,
    m.Approve: handle_decision,
}
"""The handler of each kind of request; it runs in a worker thread."""

_DECODE = msgspec.json.Decoder(m.Request).decode
_ENCODE = msgspec.json.Encoder().encode
_LOG = logging.getLogger("assistant")
_DAEMON_GONE = (
    "the daemon stopped answering before the request was finished. Ask again. If that does not "
    "help, see: gpudeck daemon status"
)


class AssistantServer:
    """Receive requests, run their handlers, and send the replies."""

    def __init__(self, unused_s: float = UNUSED_S) -> None:
        self._residency, self._proposals = ModelResidency(self._on_evicted), ProposalStore()
        self._turns = Turns()
        self._workers = ThreadPoolExecutor(MOST_REQUESTS, "request")
        self._pending: dict[str, _PendingRequest] = {}
        self._unused_s, self._used = unused_s, time.monotonic()
        self._end = asyncio.Event()
        self._end_reason = ""
        self._daemon_is_gone = False
        self._warming: asyncio.Task[None] | None = None
        """Loads the model before the first request."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, listening: socket.socket) -> str:
        """Serve until there is a reason to end, and return the reason."""
        self._loop = loop = asyncio.get_running_loop()
        await asyncio.to_thread(remove_stale)
        server = await wire.serve(listening, self._handle)
        daemon = Client(start=False)
        watch = threading.Thread(
            target=self._end_with, args=(daemon, loop), name="watch", daemon=True
        )
        watch.start()
        self._warming = asyncio.create_task(self._warm())
        report_ready()
        while not self._end.is_set():
            poll_s = 1.0 if self._residency.on_gpu else 5.0
            try:
                async with asyncio.timeout(min(poll_s, self._unused_s)):
                    await self._end.wait()
            except TimeoutError:
                await self._end_if_unused()
        server.close()
        for pending in self._pending.values():
            pending.stop()
        if not self.evicted:
            self._residency.drop()
        if not self.evicted:
            daemon.close()
        give_up = time.monotonic() + (LEAVE_S if self.evicted else float("inf"))
        while self._pending and time.monotonic() < give_up:
            await asyncio.sleep(0.002)
        return self._end_reason

    @property
    def evicted(self) -> bool:
        """Return whether the process must leave the GPU at once."""
        return self._residency.evicted.is_set()

    async def _warm(self) -> None:
        async with self._turns.admit():
            await asyncio.to_thread(self._load_model)

    def _load_model(self) -> None:
        """Load the model if that needs no GPU. The first request reports what is wrong."""
        channel = RequestChannel()
        with suppress(UserError), channel.ending:
            settings = current_settings()
            if settings.model and settings.model_device == "cpu":
                self._residency.engine(settings, channel)

    async def _end_if_unused(self) -> None:
        unused_s = self._unused_s
        if self._residency.on_gpu:
            minutes = (await asyncio.to_thread(settings.load)).model_idle_minutes
            unused_s = min(unused_s, 60 * minutes)
        awaited = bool(self._proposals.of_programs) and not self._residency.on_gpu
        if not (self._pending or awaited) and time.monotonic() - self._used > unused_s:
            self._leave(f"unused for {unused_s:.0f} s")

    def _leave(self, reason: Message) -> None:
        self._end_reason = self._end_reason or str(reason)
        self._end.set()

    def _on_evicted(self, reason: Message) -> None:
        """End the process. Called from the thread that listens to the daemon."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._leave, reason)

    def _end_with(self, daemon: Client, loop: asyncio.AbstractEventLoop) -> None:
        """End with the daemon. Runs in a thread of its own."""
        with suppress(DaemonGone, ValueError):  # gone, or this process closed the connection
            for _ in daemon.subscribe(live=False):
                pass
        if not loop.is_closed():
            self._daemon_is_gone = True
            loop.call_soon_threadsafe(self._leave, "the daemon is gone")

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        try:
            request = _DECODE(line)
        except msgspec.MsgspecError as e:
            await peer.send(_ENCODE(m.Failed(f"the assistant does not know this request: {e}")))
            return
        match request:
            case m.Cancel(id) | m.UseCpu(id):
                pending = self._pending.get(id)
                if pending is not None and isinstance(request, m.Cancel):
                    pending.stop()
                elif pending is not None:
                    pending.channel.use_cpu.set()
                await peer.send(_ENCODE(m.Acknowledged(pending is not None)))
            case m.Status():
                await peer.send(_ENCODE(self._status()))
            case m.Approve():
                await self._decide(request, peer)
            case m.GetProposals():
                outcome = self._proposals.outcome(request.id)
                await peer.send(_ENCODE(m.Proposals(self._proposals.of_programs, outcome)))
            case m.Ask() | m.Report() | m.CompletionRequest() | m.Benchmark():
                await self._serve(request, peer)

    def _status(self) -> m.AssistantState:
        begun = [pending.begun for pending in self._pending.values()]
        residency = self._residency
        waiting = begun.count(False)
        return m.AssistantState(begun.count(True), waiting, residency.name, residency.error)

    async def _decide(self, request: m.Approve, peer: wire.Peer) -> None:
        """Carry out a decision without waiting for the request that is being worked on."""
        work = asyncio.create_task(self._run(request, RequestChannel()))
        await asyncio.wait((work,))
        await peer.send(_ENCODE(_last_replies(work)[-1]))
        self._used = time.monotonic()

    async def _run(self, request: m.Work | m.Approve, channel: RequestChannel) -> m.Result:
        context = RequestContext(self._residency, self._proposals, channel)

        def handle() -> m.Result:
            asked = isinstance(request, m.Ask) and request.when == "now"
            with channel.ending, self._residency.reserved() if asked else nullcontext():
                return HANDLERS[type(request)](request, context)

        return await asyncio.get_running_loop().run_in_executor(self._workers, handle)

    async def _serve(self, request: m.Work, peer: wire.Peer) -> None:
        """Work on a request in its turn, and send its events and its result."""
        assert self._loop is not None
        key = request.id or f"unnamed {id(request)}"
        await self._stop_older(key)
        checkpoint = FileCheckpoint(request.id) if request.id else None
        pending = self._pending[key] = _PendingRequest(self._loop, request.device, checkpoint)
        if self._turns.closed or isinstance(request, m.Benchmark):
            pending.add(m.Waiting(phrase("waiting for another request")))
        work = pending.work = asyncio.create_task(self._run_in_turn(request, pending))
        try:
            await self._send_events(pending, work, peer)
            for reply in (*pending.take_events(), *self._result(work)):
                await peer.send(_ENCODE(reply))
        except ConnectionError:
            _LOG.info("a client left before its answer")
        finally:
            pending.stop()
            await asyncio.wait((work,))
            interrupted = self.evicted and isinstance(work.exception(), Cancelled)
            if checkpoint is not None:
                checkpoint.close(done=not interrupted)
            del self._pending[key]
            self._used = time.monotonic()
            if self._residency.left_gpu and not self._pending:
                self._leave("the model was changed, and its GPU memory is freed with the process")

    async def _send_events(
        self, pending: _PendingRequest, work: asyncio.Task[m.Result], peer: wire.Peer
    ) -> None:
        """Send events until the work has ended, was cancelled, or the process is evicted."""
        while not work.done():
            for event in pending.take_events() or [pending.waiting]:  # or a sign of life
                await peer.send(_ENCODE(event))
            if pending.channel.stop.is_set():
                await asyncio.wait((work,), timeout=STOP_S)
            if self.evicted or pending.channel.stop.is_set():
                return
            changed = asyncio.create_task(pending.changed.wait())
            await asyncio.wait((work, changed), timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()

    def _result(self, work: asyncio.Task[m.Result]) -> list[m.Reply]:
        if self.evicted and (not work.done() or isinstance(work.exception(), Cancelled)):
            return [m.Evicted(self._residency.eviction_reason)]
        if self._daemon_is_gone and (not work.done() or isinstance(work.exception(), Cancelled)):
            return [m.Failed(_DAEMON_GONE)]
        return _last_replies(work)

    async def _stop_older(self, key: str) -> None:
        """Stop the same request of a client that lost its connection, and wait for its end."""
        while older := self._pending.get(key):
            older.stop()
            await asyncio.sleep(0.01)

    async def _run_in_turn(self, request: m.Work, pending: _PendingRequest) -> m.Result:
        async with AsyncExitStack() as turn:
            try:
                alone = isinstance(request, m.Benchmark)
                await turn.enter_async_context(self._turns.admit(alone=alone))
            except asyncio.CancelledError:
                raise Cancelled from None  # cancelled before its turn
            pending.begun = True
            pending.channel.raise_if_cancelled()
            if isinstance(request, m.Ask | m.Report):
                pending.add(m.Waiting(phrase("gathering the facts")))
            return await self._run(request, pending.channel)


def _last_replies(work: asyncio.Task[m.Result]) -> list[m.Reply]:
    """Return the result, or the error; an answer's text goes before it in pieces.

    A bug of ours is logged with its trace.
    """
    if not work.done():
        return [m.Failed(str(Cancelled()), "cancelled")]  # the thread ends a little later
    match work.exception():
        case None:
            result = work.result()
            if not isinstance(result, m.Answer):
                return [result]
            return [*map(m.Chunk, result.text.splitlines(keepends=True)), result]
        case Cancelled() as e:
            return [m.Failed(str(e), "cancelled")]
        case NotFound() as e:
            return [m.Failed(e.message, "missing")]
        case m.PromptTooLong() as e:
            return [m.Failed(e.message, "too long")]
        case m.WantedRefused() as e:
            return [m.Failed(e.message, "refused")]
        case OutcomeUnknown() as e:  # to ask again would queue the job twice
            return [m.Failed(e.message)]
        case DaemonGone():
            return [m.Failed(_DAEMON_GONE)]
        case UserError() as e:
            return [m.Failed(e.message)]
        case bug:
            _LOG.error("a request failed", exc_info=bug)
            return [m.Failed(f"the assistant failed on this request; see {log_file()}", "bug")]


class _PendingRequest:
    """Hold a request that waits or is worked on, and its events that are not sent yet."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        device: m.DeviceChoice,
        checkpoint: FileCheckpoint | None,
    ) -> None:
        self.changed = asyncio.Event()
        self.channel = RequestChannel(self._add_from_thread, device, checkpoint)
        self.work: asyncio.Task[m.Result] | None = None
        self.begun = False
        """Its turn has come."""
        self.waiting = m.Waiting(phrase("gathering the facts"))
        """What it waits for or does now."""
        self._loop = loop
        self._events: list[m.Event] = []

    def stop(self) -> None:
        """End it between two tokens, or at once if its turn has not come."""
        self.channel.stop.set()
        self.changed.set()
        if self.work is not None and not self.begun:
            self.work.cancel()

    def add(self, event: m.Event) -> None:
        """Add an event to those that are to be sent."""
        if isinstance(event, m.Waiting):
            self.waiting = event
        self._events.append(event)
        self.changed.set()

    def _add_from_thread(self, event: m.Event) -> None:
        self._loop.call_soon_threadsafe(self.add, event)

    def take_events(self) -> list[m.Event]:
        """Return the events that are not sent yet."""
        self.changed.clear()
        events, self._events = self._events, []
        return events


def log_file() -> Path:
    """Return the path of the log of the assistant's process."""
    return paths.home() / "assistant.log"


async def serve() -> None:
    """Serve until there is a reason to end."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    server = AssistantServer()
    _LOG.info("ends: %s", await server.run(wire.listen(socket_path())))
    if server.evicted:
        os._exit(0)  # an orderly exit of torch takes longer than the kernel needs to free it all
