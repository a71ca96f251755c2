"""Let this user's window and commands look at a served model, chat with it, and stop it.

It listens on a Unix socket that only this user can open. Free of torch and Qt.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from gpudeck.accel.serving.request import Sampling
from gpudeck.assistant.host_protocol import Chunk, Completion, Failed, PromptTooLong, Waiting
from gpudeck.assistant.serve import control_messages as c
from gpudeck.assistant.serve.model_requests import Message, ModelChat
from gpudeck.assistant.serve.served_model import ModelRun, ServedModel
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths, wire
from gpudeck.scheduler.protocol.errors import UserError

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(c.Request).decode
_ROLES: tuple[Literal["user"], Literal["assistant"]] = ("user", "assistant")
_BEAT_S = 0.5
"""The time between two signs of life, which also reveal that a client is gone."""
_FOREVER_S = 1e9
"""A person waits for a GPU until they cancel."""


def folder() -> Path:
    """Return the folder of the sockets, each named after its port."""
    return paths.runtime() / "serving"


class Control:
    """Answer the requests of this user's programs about one served model."""

    def __init__(
        self, model: ServedModel, port: int, held: c.Held, ready: Callable[[], None]
    ) -> None:
        """Prepare to listen.

        Args:
            model: The served model.
            port: Of its endpoint.
            held: How it holds a GPU.
            ready: Is called once requests are answered.
        """
        self._model, self._port, self._held, self._ready = model, port, held, ready
        self._stop: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def running(self, stop: Callable[[], None]) -> AsyncIterator[None]:
        """Load the model and answer requests; `stop` ends the endpoint. At the end, end both."""
        self._stop = stop
        path = folder() / f"{self._port}.sock"
        server = await wire.serve(wire.listen(path), self._handle)
        loading = asyncio.create_task(self._model.load())
        try:
            self._ready()
            yield
        finally:
            path.unlink(missing_ok=True)
            server.close()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)  # so that it starts no engine
            await self._model.stop()

    async def _handle(self, line: bytes, peer: wire.Peer) -> None:
        try:
            request = _DECODE(line)
        except msgspec.MsgspecError as e:
            await peer.send(_ENCODE(Failed(f"the server does not know this request: {e}")))
            return
        match request:
            case c.Look():
                await peer.send(_ENCODE(await self.served()))
            case c.Stop():
                self._stop()
            case c.Chat():
                await self._chat(request, peer)

    async def served(self) -> c.Served:
        """Return what the server does."""
        process = self._model.process("auto")
        figures = await process.figures()
        started, loading = process.started, process.loading
        note = process.note
        if started and not figures:
            note = phrase("the engine does not answer")
        made = c.Served(
            self._model.name, process.options.folder, self._port, os.getpid(), self._held,
            process.phase, note, seconds=process.loading_s, figures=figures,
        )  # fmt: skip
        if started is not None:
            return msgspec.structs.replace(
                made, device=started.device, gpu=started.gpu, weights=started.weights,
                context=started.context, cache_tokens=started.cache_tokens,
                seconds=started.seconds, cache=started.cache, cache_error=started.cache_error,
            )  # fmt: skip
        if loading is not None:
            return msgspec.structs.replace(made, done=loading.done, total=loading.total)
        return made

    async def _chat(self, request: c.Chat, peer: wire.Peer) -> None:
        """Send an answer piece by piece; it ends when the client leaves. Old turns may not fit."""
        left_out = 0
        while True:
            try:
                done = await self._answer(request, peer)
            except PromptTooLong as e:
                if len(request.turns) == 1:
                    await peer.send(_ENCODE(Failed(e.message)))
                    return
                request = msgspec.structs.replace(request, turns=request.turns[2:])
                left_out += 2
            except UserError as e:
                await peer.send(_ENCODE(Failed(e.message)))
                return
            else:
                cut_off = done.reason == "length"
                counts = done.prompt_tokens, done.tokens, done.seconds
                await peer.send(_ENCODE(c.Said(done.device, *counts, cut_off, left_out)))
                return

    async def _answer(self, chat: c.Chat, peer: wire.Peer) -> Completion:
        """Send an answer's text, and return how it ended. Raises UserError."""
        messages = [Message(_ROLES[i % 2], turn) for i, turn in enumerate(chat.turns)]
        wanted = ModelChat(model=self._model.name, messages=messages)
        run = ModelRun(wanted, self._model.process("auto"))
        run.wanted = msgspec.structs.replace(run.wanted, program=False, limit=chat.limit)
        if chat.schema:
            run.wanted = msgspec.structs.replace(
                run.wanted, sampling=Sampling(temperature=0.0), grammar="json_schema",
                grammar_text=chat.schema,
            )  # fmt: skip
        async with run:
            await self._send_first(run, peer)
            while (event := await run.next_event()) is not None:
                if isinstance(event, Chunk):
                    await peer.send(_ENCODE(Chunk(event.text)))
            return await run.result()

    async def _send_first(self, run: ModelRun, peer: wire.Peer) -> None:
        """Send what the answer waits for, and its first piece."""
        first = asyncio.create_task(run.first_text(_FOREVER_S))
        try:
            while not first.done():
                process = self._model.process("auto")
                await peer.send(
                    _ENCODE(Waiting(process.note or phrase("the model reads the conversation")))
                )
                if peer.gone:
                    raise ConnectionError
                await asyncio.wait((first,), timeout=_BEAT_S)
            await peer.send(_ENCODE(Chunk(first.result())))
        finally:
            first.cancel()
