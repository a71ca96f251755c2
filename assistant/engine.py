"""The model as an author: one RWKV-7 with its tokenizer, and texts written from a saved state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

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
        self.name = engine.name
        self.tokens = 0
        """Tokens written so far."""
        self._engine, self._cancelled = engine, cancelled
        self._kept: tuple[Tensor, State] | None = None

    def begin(self, system: str, user: str) -> None:
        """Take in the prompt, and keep the state after it. Raises Cancelled."""
        self._kept = read(self._engine.model, self._engine.tokenizer.encode(prompt(system, user)), None, self._cancelled)

    def attempt(self, number: int) -> Iterator[str]:
        """A text from the kept state, piece by piece: greedy first, then sampled, `number` the seed. Raises Cancelled."""
        assert self._kept is not None, "begin comes first"
        sampler = Sampler() if number == 0 else Sampler(temperature=1.0, top_p=0.5, seed=number)
        generation = Generation(self._engine.model, self._engine.tokenizer, sampler, *self._kept, limit=LIMIT, cancelled=self._cancelled)
        try:
            yield from generation
        finally:
            self.tokens += len(generation.tokens)
        if generation.reason == "cancelled":
            raise Cancelled
