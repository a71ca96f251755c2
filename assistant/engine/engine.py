"""The assistant's model: a loaded RWKV-7 behind the scheduler that serves all its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import torch

from gpudeck.accel.rwkv.model import RWKV7
from gpudeck.accel.rwkv.tokenizer import Tokenizer
from gpudeck.accel.serving.engine import Engine as ServingEngine
from gpudeck.accel.serving.errors import ModelRefused, RequestRefused, TooLong
from gpudeck.accel.serving.request import Ended, Piece, Request
from gpudeck.assistant.host_protocol import PromptTooLong, WantedRefused
from gpudeck.assistant.idle import Cancelled
from gpudeck.assistant.library.describe import model_errors
from gpudeck.language.text import message_of, phrase
from gpudeck.scheduler.protocol.errors import UserError

_TOGETHER = 16
"""Answers that are written at once."""
_STATES = 64
"""States of prompts and texts that are kept, apart from those."""
_POLL_S = 0.02
"""The time between two looks at whether a request was cancelled."""


class Engine:
    """A loaded model with its tokenizer, and the thread that answers by it."""

    def __init__(self, path: str, device: str) -> None:
        """Load a model.

        Args:
            path: Its folder or file.
            device: `cpu` (float32, one thread) or `cuda` (bfloat16).

        Raises:
            UserError: It cannot be loaded, in one line.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError(
                phrase(
                    "the model cannot run on cuda: torch finds no NVIDIA GPU. Set "
                    "model_device to cpu"
                )
            )
        # measured: on a busy machine two threads can be many times slower than one
        torch.set_num_threads(1)
        self.name = Path(path).stem if path.endswith((".pth", ".safetensors")) else Path(path).name
        self.device = device
        self._lock, self._users, self._retired = threading.Lock(), 0, False
        try:
            with model_errors():
                self.network = self._load(path)
                self._vocabulary = Tokenizer.load(path)
            self.network.forward([0])  # compiles what is compiled at the first use on a machine
            if self._vocabulary.size > self.network.vocabulary:
                raise UserError(
                    phrase(
                        "{file}: the vocabulary has {size} tokens but the model {vocabulary}; "
                        "they do not belong together",
                        file=str(path),
                        size=self._vocabulary.size,
                        vocabulary=self.network.vocabulary,
                    )
                )
            self.serving, self._serving = self._start()
        except (RuntimeError, MemoryError, ModelRefused) as e:
            reason = (str(e).splitlines() or ["out of memory"])[0]
            raise UserError(
                phrase(
                    "the model {file} does not fit on {device}: {reason}",
                    file=str(path),
                    device=device,
                    reason=reason,
                )
            ) from e

    def enter(self) -> None:
        """Begin to use the model."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Use it no more. A model that was replaced ends with its last request."""
        with self._lock:
            self._users -= 1
            self._end_if_unused()

    def retire(self) -> None:
        """End once nobody uses it."""
        with self._lock:
            self._retired = True
            self._end_if_unused()

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text. Raises UserError if the vocabulary lacks a byte of it."""
        with model_errors():
            return self._vocabulary.encode(text)

    def decode(self, tokens: tuple[int, ...]) -> str:
        """Return the text of tokens; bytes that are no character become U+FFFD."""
        return self.serving.tokenizer.decode(tokens)

    def answer(self, request: Request, must_stop: Callable[[], bool]) -> Iterator[Piece | Ended]:
        """Yield an answer piece by piece, and how it ended; it stops when nobody iterates on.

        Args:
            request: What is asked.
            must_stop: Asked all the time.

        Raises:
            Cancelled: `must_stop` returned True.
            PromptTooLong: The prompt and the answer do not fit.
            WantedRefused: The model cannot answer such a request.
        """
        try:
            stream = self.serving.submit(request)
        except TooLong as e:
            raise PromptTooLong(message_of(e)) from e
        except RequestRefused as e:
            raise WantedRefused(message_of(e)) from e
        try:
            event: Piece | Ended | None = None
            while not isinstance(event, Ended):
                event = stream.take(_POLL_S)
                if must_stop():
                    raise Cancelled
                if event is not None:
                    yield event
        finally:
            stream.cancel()
            self.serving.wake()

    def _load(self, path: str) -> RWKV7:
        return RWKV7.load(
            path, self.device, torch.bfloat16 if self.device == "cuda" else torch.float32
        )

    def _start(self) -> tuple[ServingEngine, ExitStack]:
        """Start to serve without any state of before, and return what ends it, too."""
        serving = ServingEngine.of_network(self.network, self._vocabulary, _TOGETHER, _STATES)
        stack = ExitStack()
        stack.enter_context(serving.running())
        return serving, stack

    def _end_if_unused(self) -> None:
        if self._retired and self._users == 0:
            self._serving.close()
