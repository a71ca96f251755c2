"""Serve one model to the process that started this one.

    python -m gpudeck.assistant.inference OPTIONS

It ends with its standard input. On a GPU that is leased it ends, with all its memory, as soon as
somebody else needs that GPU.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from gpudeck.assistant.inference import engine_protocol as m
from gpudeck.assistant.inference.engine_requests import engine_request, tokens_of
from gpudeck.language.text import Message, message_of, phrase
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.gpu_lease import GpuLease
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpudeck.accel.serving.engine import Engine
    from gpudeck.accel.serving.request import Ended, Piece, Stream

_PR_SET_PDEATHSIG = 1
_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(m.Request).decode


class Output:
    """Write replies, from any thread."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._lock = file, threading.Lock()

    def send(self, reply: m.Reply) -> None:
        """Write a line. If nobody reads it any more, the process ends."""
        try:
            with self._lock:
                self._file.write(_ENCODE(reply) + b"\n")
                self._file.flush()
        except OSError:
            os._exit(0)


def main(argv: list[str]) -> int:
    """Load the model and serve until the standard input ends."""
    # a process that is stopped or stuck does not see that its input ends
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    output = Output(sys.stdout.buffer)
    try:
        options = msgspec.json.decode(argv[0].encode(), type=m.Options)
        serve(options, sys.stdin.buffer, output)
    except (UserError, ValueError) as e:  # ModelRefused is a ValueError
        output.send(m.Failed(message_of(e)))
        return 1
    return 0


def serve(options: m.Options, requests: BinaryIO, output: Output) -> None:
    """Serve requests. Raises UserError and ModelRefused before the first one."""
    from gpudeck.accel.serving.families import is_recurrent, read_config

    began = time.monotonic()
    if not is_recurrent(Path(options.folder)):
        # a family that is not served is named before a GPU is leased and torch is loaded
        read_config(Path(options.folder))
    device = _device(options, output)
    import torch

    from gpudeck.accel.serving.cache_error import cache_error
    from gpudeck.accel.serving.engine import Engine
    from gpudeck.accel.serving.transformer import Transformer
    from gpudeck.assistant.inference.prompt_store import PromptStore, model_key

    torch.set_num_threads(1)  # the kernels are ours, and more threads of torch only wait
    total = _least_bytes(Path(options.folder))
    output.send(m.Loading(0, total))
    kept = model_key(Path(options.folder), device, options.weights, options.cache)
    most = options.prompts_bytes
    store = PromptStore(paths.home() / "prompts", kept, most) if most else None
    engine = Engine.load(
        Path(options.folder), device, options.weights, cache=options.cache,
        cache_tokens=options.cache_tokens,
        draft=Path(options.draft) if options.draft else None,
        store=store,
        progress=lambda done: output.send(m.Loading(min(done, total), total)),
    )  # fmt: skip
    error = None
    if isinstance(engine.model, Transformer) and options.cache != "auto":
        error = cache_error(engine.model, engine.tokenizer, options.cache)
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "") if device == "cuda" else ""
    output.send(
        m.Ready(
            device, engine.model.weights, engine.context, engine.cache_tokens,
            time.monotonic() - began, gpu, options.cache, error,
        )
    )  # fmt: skip
    with engine.running():
        answers: dict[int, Answer] = {}
        for line in requests:
            match _DECODE(line):
                case m.Submit() as wanted:
                    _submit(engine, wanted, answers, output)
                case m.Cancel(id):
                    if (answer := answers.get(id)) is not None:
                        answer.stream.cancel()
                        engine.wake()
                case m.Taken(id, texts):
                    if (answer := answers.get(id)) is not None:
                        answer.allow(texts)
                        engine.wake()
                case m.Look(id):
                    output.send(m.Figures(id, asdict(engine.statistics())))


def _device(options: m.Options, output: Output) -> str:
    """Return cpu or cuda; a GPU is leased first, unless it is this process's own."""
    if options.device != "auto":
        return options.device

    def evicted(reason: Message) -> None:
        output.send(m.Failed(phrase("the GPU is needed: {why}", why=reason), evicted=True))
        os._exit(0)  # only the end of the process frees all of its GPU memory

    lease = GpuLease(evicted)
    with Client() as daemon:
        for snapshot in daemon.subscribe():
            if not any(state.device.kind == "nvidia" for state in snapshot.devices):
                return "cpu"
            try:
                lease.take(_least_bytes(Path(options.folder)))
            except UserError as e:
                why = phrase("waiting for the GPU ({why})", why=e.message)
                output.send(m.Waiting(why, gpu=True))
            else:
                return "cuda"
    raise UserError(phrase("the daemon stopped while the model waited for a GPU"))


def _least_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


class Answer:
    """Send an answer as it is written, no further ahead of its reader than MOST_SENT texts."""

    def __init__(self, stream: Stream, send: Callable[[Piece | Ended], None]) -> None:
        """Begin; `send` is called in the engine's thread, and in the one that calls `allow`."""
        self.stream, self._send = stream, send
        self._left, self._lock = m.MOST_SENT, threading.Lock()
        stream.notify(self.pass_on)

    def allow(self, texts: int) -> None:
        """Send as many texts more."""
        with self._lock:
            self._left += texts
        self.pass_on()

    def pass_on(self) -> None:
        """Send what may be sent of what was written. A cancelled answer is sent to its end."""
        with self._lock:
            while self._left > 0 or self.stream.cancelled:
                event = self.stream.take()
                if event is None:
                    return
                self._left -= 1
                self._send(event)


def _submit(engine: Engine, wanted: m.Submit, answers: dict[int, Answer], output: Output) -> None:
    """Give a request to the engine, and its answer to the output."""
    from gpudeck.accel.serving.errors import RequestRefused, TooLong
    from gpudeck.accel.serving.request import Stream

    answer = Answer(Stream(), lambda event: _send(engine, wanted, event, answers, output))
    answers[wanted.id] = answer
    try:
        engine.submit(engine_request(engine, wanted.wanted), answer.stream)
    except RequestRefused as e:
        del answers[wanted.id]
        too_long = isinstance(e, TooLong)
        output.send(m.Done(wanted.id, "too long" if too_long else "refused", message=str(e)))


def _send(
    engine: Engine,
    asked: m.Submit,
    event: Piece | Ended,
    answers: dict[int, Answer],
    output: Output,
) -> None:
    """Send an event of an answer."""
    from gpudeck.accel.serving.request import Ended

    if isinstance(event, Ended):
        answers.pop(asked.id, None)
        output.send(
            m.Done(
                asked.id, event.reason, event.prompt_tokens, event.cached_tokens, event.tokens,
                event.accepted, event.message,
            )
        )  # fmt: skip
    else:
        output.send(m.Text(asked.id, event.text, tokens_of(engine, asked.wanted, event)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
