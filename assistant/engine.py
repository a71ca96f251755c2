"""The model as an author: one RWKV-7 with its tokenizer, and texts written from a saved state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from assistant.generate import Generation, prompt, read
from assistant.idle import Cancelled
from assistant.model import RWKV7, State
from assistant.sampling import Sampler
from assistant.tokenizer import Tokenizer
from scheduler.errors import UserError

LIMIT = 400
"""Tokens of one text at most."""
_ENDS = (".", "!", "?", "\n")


class Engine:
    """A loaded model."""

    def __init__(self, path: str, device: str) -> None:
        """Load what is at `path` onto `cpu` (fp32, one thread) or `cuda` (bf16). Raises UserError, one line."""
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("the model cannot run on cuda: torch finds no NVIDIA GPU here. Set model_device to cpu")
        torch.set_num_threads(1)  # measured: on a busy machine two threads can be many times slower than one
        self.name = Path(path).stem if path.endswith((".pth", ".safetensors")) else Path(path).name
        self.device = device
        try:
            self.model = RWKV7.load(path, device, torch.bfloat16 if device == "cuda" else torch.float32)
            self.model.forward([0])  # what is compiled at the first use on a machine is compiled now
        except (RuntimeError, MemoryError) as e:
            raise UserError(f"the model {path} does not fit on {device}: {(str(e).splitlines() or ['out of memory'])[0]}") from e
        self.tokenizer = Tokenizer.load(path)
        if self.tokenizer.size > self.model.vocabulary:
            raise UserError(
                f"{path}: the vocabulary has {self.tokenizer.size} tokens, the model {self.model.vocabulary}; they do not belong together"
            )


class EngineAuthor:
    """One request's use of an engine (an `assistant.writer.Author`)."""

    def __init__(self, engine: Engine, cancelled: Callable[[], bool]) -> None:
        self.name, self.device = engine.name, engine.device
        self.tokens = 0
        """Tokens written so far."""
        self._engine, self._cancelled = engine, cancelled
        self._marks: list[_Mark] = []

    def begin(self, system: str, user: str) -> None:
        """Take in the prompt, and keep the state after it. Raises Cancelled."""
        tokens = self._engine.tokenizer.encode(prompt(system, user))
        self._marks = [_Mark(0, *read(self._engine.model, tokens, None, self._cancelled))]

    def back(self, kept: int) -> int:
        """Return to the last saved state at or before `kept` characters: after the prompt, or where a sentence ended."""
        while self._marks[-1].length > kept:
            self._marks.pop()
        return self._marks[-1].length

    def attempt(self, number: int) -> Iterator[str]:
        """Write on from the last saved state, piece by piece: greedy first, then sampled, `number` the seed. Raises Cancelled."""
        length, logits, state = self._marks[-1]
        sampler = Sampler() if number == 0 else Sampler(temperature=1.0, top_p=0.5, seed=number)
        generation = Generation(self._engine.model, self._engine.tokenizer, sampler, logits, state, limit=LIMIT, cancelled=self._cancelled)
        try:
            for piece in generation:
                length += len(piece)
                if piece.endswith(_ENDS) and generation.settled:
                    self._marks.append(_Mark(length, generation.logits, generation.state))
                yield piece
        finally:
            self.tokens += len(generation.tokens)
        if generation.reason == "cancelled":
            raise Cancelled


class _Mark(NamedTuple):
    """A place in the text to go back to: its characters so far, and the model after them."""

    length: int
    logits: Tensor
    state: State
