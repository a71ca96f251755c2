"""The assistant's own process: it answers requests at its door, one after the other, and can be stopped between tokens.

python -m assistant.host

One a user. It starts on demand, serves window and command line alike, and ends after ten minutes without a request, when
the daemon is gone, or when a model on the GPU has to make room: with the process goes all of its GPU memory. Then there is no time
for a tidy end: what asked hears within LEAVE_S what the template says, or asks again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from assistant import messages as m
from assistant.client import door
from assistant.desk import Desk
from assistant.idle import Cancelled
from scheduler import paths, wire
from scheduler.background import Identity, say_ready, serve_alone
from scheduler.client import Client
from scheduler.errors import DaemonGone, NotFound, UserError

UNUSED_S = 600.0
"""After so long without a request the process ends."""
LEAVE_S = 0.05
"""How long an answer may still take when the GPU is needed; the daemon kills the process after twice as long."""
BEAT_S = 1.0
"""How often a waiting client hears that its request is alive; a client that is gone is noticed then."""

_DECODE = msgspec.json.Decoder(m.Request).decode
_ENCODE = msgspec.json.Encoder().encode
_LOG = logging.getLogger("assistant")


class Host:
    """Requests in, replies out; the work itself is done by the desk in a thread."""

    def __init__(self, unused_s: float = UNUSED_S) -> None:
        self._desk = Desk(self._evicted)
        self._turn = asyncio.Lock()
        self._stops: dict[str, threading.Event] = {}
        self._unused_s, self._used = unused_s, time.monotonic()
        self._end = asyncio.Event()
        self._why = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, listening: socket.socket) -> str:
        """Serve until there is a reason to end; returns the reason."""
        self._loop = loop = asyncio.get_running_loop()
        server = await wire.serve(listening, self._handle)
        watch = Client(start=False)
        threading.Thread(target=self._watch, args=(watch, loop), name="watch", daemon=True).start()
        say_ready()
        while not self._end.is_set():
            try:
                async with asyncio.timeout(min(5.0, self._unused_s)):
                    await self._end.wait()
            except TimeoutError:
                if not self._stops and time.monotonic() - self._used > self._unused_s:
                    self._leave(f"unused for {self._unused_s:.0f} s")
        server.close()
        if self.evicted:
            await self._answer_all(LEAVE_S)
            return self._why
        watch.close()
        for stop in self._stops.values():
            stop.set()
        await self._answer_all()
        return self._why

    @property
    def evicted(self) -> bool:
        """Whether it must be off the GPU at once."""
        return self._desk.evicted.is_set()

    async def _answer_all(self, seconds: float = float("inf")) -> None:
        """Whoever is being answered gets the answer."""
        end = time.monotonic() + seconds
        while self._stops and time.monotonic() < end:
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
            case m.Cancel(id):
                stop = self._stops.get(id)
                if stop is not None:
                    stop.set()
                await peer.send(_ENCODE(m.Ok(stop is not None)))
            case m.Status():
                engine = self._desk.engine
                state = m.State(self._turn.locked(), max(0, len(self._stops) - 1), engine.name if engine else "", self._desk.error)
                await peer.send(_ENCODE(state))
            case m.Approve():
                await self._decide(request, peer)
            case m.Ask() | m.Report():
                await self._serve(request, peer)

    async def _decide(self, request: m.Approve, peer: wire.Peer) -> None:
        """A person's word waits for no answer that is being written."""
        work = asyncio.create_task(asyncio.to_thread(self._desk.approve, request))
        await asyncio.wait((work,))
        await peer.send(_ENCODE(_replies(work)[-1]))
        self._used = time.monotonic()

    async def _serve(self, request: m.Ask | m.Report, peer: wire.Peer) -> None:
        key = request.id or f"unnamed {id(request)}"
        stop = self._stops[key] = threading.Event()
        said = _Said("waits until another request is answered" if self._turn.locked() else "gathers the facts")
        work = asyncio.create_task(self._in_turn(request, stop, said))
        try:
            while not work.done():
                await peer.send(_ENCODE(m.Waiting(said.reason)))
                said.changed.clear()
                news = asyncio.create_task(said.changed.wait())
                await asyncio.wait((work, news), timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
            for reply in _replies(work):
                await peer.send(_ENCODE(reply))
        except ConnectionError:
            _LOG.info("a client left before its answer")
        finally:
            stop.set()
            await asyncio.wait((work,))
            del self._stops[key]
            self._used = time.monotonic()
            if self._desk.left_gpu:
                self._leave("the model was changed, and its GPU memory goes with the process")

    async def _in_turn(self, request: m.Ask | m.Report, stop: threading.Event, said: _Said) -> m.Answer:
        loop = asyncio.get_running_loop()

        def waiting(reason: str) -> None:
            loop.call_soon_threadsafe(said.say, reason)

        async with self._turn:
            said.say("gathers the facts")
            if stop.is_set():
                raise Cancelled
            return await asyncio.to_thread(self._desk.answer, request, stop.is_set, waiting)


def _replies(work: asyncio.Task[m.Answer]) -> list[m.Reply]:
    """The answer in pieces and whole; or what went wrong, our own bugs with a trace in the log."""
    match work.exception():
        case None:
            answer = work.result()
            return [*(m.Chunk(piece) for piece in answer.text.splitlines(keepends=True)), answer]
        case Cancelled() as e:
            return [m.Error(str(e), "cancelled")]
        case NotFound() as e:
            return [m.Error(str(e), "missing")]
        case UserError() as e:
            return [m.Error(str(e))]
        case bug:
            _LOG.error("a request failed", exc_info=bug)
            return [m.Error(f"the assistant failed on this request; see {log()}", "bug")]


class _Said:
    """What a request waits for, as last said."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.changed = asyncio.Event()

    def say(self, reason: str) -> None:
        self.reason = reason
        self.changed.set()


def log() -> Path:
    return paths.home() / "assistant.log"


async def _serve() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    host = Host()
    _LOG.info("ends: %s", await host.run(wire.listen(door())))
    if host.evicted:
        os._exit(0)  # taking torch down in order takes longer than the kernel needs to free it all


if __name__ == "__main__":
    sys.exit(serve_alone(Identity("the assistant", paths.home() / "assistant.lock", door(), log()), _serve))
