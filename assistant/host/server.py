"""The assistant's own process: it answers requests at its socket_path, one after the other, and can be stopped between tokens.

python -m assistant.host

One a user. It starts on demand, serves window and command line alike, and ends after ten minutes without a request, when
the daemon is gone, or when a model on the GPU has to make room: with the process goes all of its GPU memory. Then there is no time
for a tidy end: what asked hears so and asks again, of the next process. A model on the GPU that nobody asks anything leaves it after
the setting `model_idle_minutes`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from assistant import messages as m
from assistant.client import socket_path
from assistant.engine.checkpoint import FileCheckpoint, sweep
from assistant.host.benchmark import benchmark
from assistant.host.completion import complete
from assistant.host.context import RequestContext
from assistant.host.desk import Desk
from assistant.host.request_queue import RequestQueue
from assistant.idle import Cancelled
from scheduler.background.instance import say_ready
from scheduler.client import Client
from scheduler.protocol import paths, settings, wire
from scheduler.protocol.errors import DaemonGone, NotFound, UserError

UNUSED_S = 600.0
"""After so long without a request the process ends."""
STOP_S = 0.3
"""What was stopped has so long to end: after it whoever asked is free, also of a model that is still being loaded."""
LEAVE_S = 0.02
"""How long it may take to tell those who wait that the process ends; the daemon kills it 0.1 s after it said that the GPU is needed."""
BEAT_S = 1.0
"""How often a waiting client hears that its request is alive; a client that is gone is noticed then."""

_DECODE = msgspec.json.Decoder(m.Request).decode
_ENCODE = msgspec.json.Encoder().encode
_LOG = logging.getLogger("assistant")


class Host:
    """Requests in, replies out; the work itself is done by the desk in a thread."""

    def __init__(self, unused_s: float = UNUSED_S) -> None:
        self._desk = Desk(self._evicted)
        self._line = RequestQueue()
        self._asked: dict[str, _Asked] = {}
        self._unused_s, self._used = unused_s, time.monotonic()
        self._end = asyncio.Event()
        self._why = ""
        self._warming: asyncio.Task[None] | None = None
        """The model is loaded that nobody has asked for yet."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, listening: socket.socket) -> str:
        """Serve until there is a reason to end; returns the reason."""
        self._loop = loop = asyncio.get_running_loop()
        await asyncio.to_thread(sweep)
        server = await wire.serve(listening, self._handle)
        watch = Client(start=False)
        threading.Thread(target=self._watch, args=(watch, loop), name="watch", daemon=True).start()
        self._warming = asyncio.create_task(self._warm())
        say_ready()
        while not self._end.is_set():
            try:
                async with asyncio.timeout(
                    min(1.0 if self._desk.resident.on_gpu else 5.0, self._unused_s)
                ):
                    await self._end.wait()
            except TimeoutError:
                await self._end_unused()
        server.close()
        for asked in self._asked.values():
            asked.stop()
        if not self.evicted:
            watch.close()
        await self._answer_all(LEAVE_S if self.evicted else float("inf"))
        return self._why

    async def _warm(self) -> None:
        async with self._line.turn():
            await asyncio.to_thread(self._desk.warm)

    async def _end_unused(self) -> None:
        """End where nobody has asked anything for long: earlier, as the user set it, with a model on the GPU."""
        unused = self._unused_s
        if self._desk.resident.on_gpu:
            unused = min(unused, 60 * (await asyncio.to_thread(settings.load)).model_idle_minutes)
        if not self._asked and time.monotonic() - self._used > unused:
            self._leave(f"unused for {unused:.0f} s")

    @property
    def evicted(self) -> bool:
        """Whether it must be off the GPU at once."""
        return self._desk.resident.evicted.is_set()

    async def _answer_all(self, seconds: float = float("inf")) -> None:
        """Whoever is being answered gets the answer."""
        end = time.monotonic() + seconds
        while self._asked and time.monotonic() < end:
            await asyncio.sleep(0.002)

    def _leave(self, why: str) -> None:
        self._why = self._why or why
        self._end.set()

    def _evicted(self, why: str) -> None:
        """Called from the thread that listens to the daemon."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._leave, why)

    def _watch(self, daemon: Client, loop: asyncio.AbstractEventLoop) -> None:
        """End with the daemon. Runs in a thread of its own."""
        try:
            for _ in daemon.subscribe(live=False):
                pass
        except (DaemonGone, ValueError):
            pass  # gone, or we are ending and closed the connection
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._leave, "the daemon is gone")

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        try:
            request = _DECODE(line)
        except msgspec.MsgspecError as e:
            await peer.send(_ENCODE(m.Error(f"that is no request this assistant knows: {e}")))
            return
        match request:
            case m.Cancel(id) | m.UseCpu(id):
                asked = self._asked.get(id)
                if asked is not None:
                    asked.stop() if isinstance(request, m.Cancel) else asked.turn.cpu.set()
                await peer.send(_ENCODE(m.Ok(asked is not None)))
            case m.Status():
                resident = self._desk.resident
                await peer.send(
                    _ENCODE(
                        m.State(
                            self._line.busy,
                            max(0, len(self._asked) - 1),
                            resident.name,
                            resident.error,
                        )
                    )
                )
            case m.Approve():
                await self._decide(request, peer)
            case m.Ask() | m.Report() | m.CompletionRequest() | m.Benchmark():
                await self._serve(request, peer)

    async def _decide(self, request: m.Approve, peer: wire.Peer) -> None:
        """A person's word waits for no answer that is being written."""
        work: asyncio.Task[m.Done] = asyncio.create_task(
            asyncio.to_thread(self._desk.approve, request)
        )
        await asyncio.wait((work,))
        await peer.send(_ENCODE(_replies(work)[-1]))
        self._used = time.monotonic()

    async def _serve(self, request: m.Work, peer: wire.Peer) -> None:
        assert self._loop is not None
        key = request.id or f"unnamed {id(request)}"
        await self._end_older(key)
        checkpoint = FileCheckpoint(request.id) if request.id else None
        asked = self._asked[key] = _Asked(self._loop, request.device, checkpoint)
        before = (
            "loads the model"
            if self._warming and not self._warming.done()
            else "waits until another request is answered"
        )
        asked.say(m.Waiting(before if self._line.busy else "gathers the facts"))
        work = asked.work = asyncio.create_task(self._in_turn(request, asked))
        try:
            while not work.done():
                for event in asked.news():
                    await peer.send(_ENCODE(event))
                if asked.turn.stop.is_set():
                    await asyncio.wait((work,), timeout=STOP_S)
                if self.evicted or asked.turn.stop.is_set():
                    break
                changed = asyncio.create_task(asked.changed.wait())
                await asyncio.wait(
                    (work, changed), timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
            gone = self.evicted and (not work.done() or isinstance(work.exception(), Cancelled))
            last = [m.Left(self._desk.resident.why_evicted)] if gone else _replies(work)
            for reply in (*asked.rest(), *last):
                await peer.send(_ENCODE(reply))
        except ConnectionError:
            _LOG.info("a client left before its answer")
        finally:
            asked.stop()
            await asyncio.wait((work,))
            cut_short = isinstance(work.exception(), Cancelled) and self.evicted
            if checkpoint is not None:
                checkpoint.close(done=not cut_short)
            del self._asked[key]
            self._used = time.monotonic()
            if self._desk.resident.left_gpu:
                self._leave("the model was changed, and its GPU memory goes with the process")

    async def _end_older(self, key: str) -> None:
        """The same request, of a client that lost its connection."""
        while older := self._asked.get(key):
            older.stop()
            await asyncio.sleep(0.01)

    async def _in_turn(self, request: m.Work, asked: _Asked) -> m.Done:
        async with AsyncExitStack() as turn:
            try:
                await turn.enter_async_context(
                    self._line.turn(
                        program=isinstance(request, m.CompletionRequest) and request.program
                    )
                )
            except asyncio.CancelledError:
                raise Cancelled from None  # it is stopped before its turn has come
            asked.begun = True
            asked.turn.look()
            if isinstance(request, m.CompletionRequest):
                return await asyncio.to_thread(complete, self._desk.resident, request, asked.turn)
            if isinstance(request, m.Benchmark):
                return await asyncio.to_thread(benchmark, self._desk.resident, request, asked.turn)
            asked.say(m.Waiting("gathers the facts"))
            return await asyncio.to_thread(self._desk.answer, request, asked.turn)


def _replies(work: asyncio.Task[m.Done]) -> list[m.Reply]:
    """The answer, in pieces first where it was not told so; or what went wrong, our own bugs with a trace in the log."""
    if not work.done():
        return [m.Error(str(Cancelled()), "cancelled")]  # it ends by itself, where it looks next
    match work.exception():
        case None:
            done = work.result()
            return (
                [*(m.Chunk(piece) for piece in done.text.splitlines(keepends=True)), done]
                if isinstance(done, m.Answer)
                else [done]
            )
        case Cancelled() as e:
            return [m.Error(str(e), "cancelled")]
        case NotFound() as e:
            return [m.Error(str(e), "missing")]
        case m.PromptTooLong() as e:
            return [m.Error(str(e), "too long")]
        case UserError() as e:
            return [m.Error(str(e))]
        case bug:
            _LOG.error("a request failed", exc_info=bug)
            return [m.Error(f"the assistant failed on this request; see {log()}", "bug")]


class _Asked:
    """A request that is being answered, and what is to be told of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        device: m.DeviceChoice,
        checkpoint: FileCheckpoint | None,
    ) -> None:
        self.changed = asyncio.Event()
        self.turn = RequestContext(self._say_from_afar, device, checkpoint)
        self.work: asyncio.Task[m.Done] | None = None
        self.begun = False
        """Whether its turn has come."""
        self._loop = loop
        self._waiting = m.Waiting("")
        self._news: list[m.Event] = []

    def stop(self) -> None:
        """End it: between two tokens, or at once while others are before it."""
        self.turn.stop.set()
        self.changed.set()
        if self.work is not None and not self.begun:
            self.work.cancel()

    def _say_from_afar(self, event: m.Event) -> None:
        """From the thread that works."""
        self._loop.call_soon_threadsafe(self.say, event)

    def say(self, event: m.Event) -> None:
        if isinstance(event, m.Waiting):
            self._waiting = event
        self._news.append(event)
        self.changed.set()

    def news(self) -> list[m.Event]:
        """What is new; where nothing is, once more what it waits for, as a sign of life."""
        return self.rest() or [self._waiting]

    def rest(self) -> list[m.Event]:
        self.changed.clear()
        news, self._news = self._news, []
        return news


def log() -> Path:
    return paths.home() / "assistant.log"


async def serve() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    host = Host()
    _LOG.info("ends: %s", await host.run(wire.listen(socket_path())))
    if host.evicted:
        os._exit(0)  # taking torch down in order takes longer than the kernel needs to free it all
