"""RWKV-7 "Goose": tokens and a state in, logits and a new state out (Peng et al., arXiv 2503.14456).

The state is a value: `forward` never writes into the one it is given, so keeping a state is a snapshot, and going back to
it gives bit-identical logits. Rewinding, branching and a prepared system prompt are a matter of which state one passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from accel.rwkv import weights, wkv
from accel.rwkv.layers import Memory, Recurrence, advance, norm, project
from accel.rwkv.parameters import arranged
from accel.rwkv.state import State

if TYPE_CHECKING:
    from accel.rwkv import cpu, gpu, prompt

__all__ = ["RWKV7", "State"]

_LONGEST_CHUNK = {"cpu": 128, "cuda": 512}
_CHUNK_WORK = 160_000_000
"""Products that a CPU core may spend on a chunk of a prompt in one layer: some 5 ms."""
_TOGETHER = {torch.float32: 8, torch.int8: 32}
"""Sequences from which on a CPU is faster with matrix products for all of them than one by one, by the type of the weights."""


class RWKV7:
    """An RWKV-7 model. Uses as many CPU threads as torch is set to: one is best for models below 200 million parameters."""

    def __init__(
        self,
        tensors: dict[str, Tensor],
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        compiled: bool = True,
    ) -> None:
        """`tensors`: canonical weights (see `accel.rwkv.weights`). dtype, compiled: see `load`."""
        self.parameters = sum(tensor.numel() for tensor in tensors.values())
        self.identity = _identity(tensors)
        """Tells models apart: of names, shapes and samples of all weights."""
        self._weights = arranged(dict(tensors), torch.device(device), dtype)
        self.vocabulary, self.channels = self._weights.embeddings.shape
        self.nbytes = self._weights.nbytes
        """Memory of the weights."""
        self.device = self._weights.device
        self.chunk = _LONGEST_CHUNK[self.device.type]
        """Tokens of a prompt that are taken at once: always the same, so that a prompt gives the same bits each time."""
        self._recurrence: Recurrence = wkv.chunked
        self._cpu: cpu.Step | None = None
        self._gpu: dict[int, gpu.Step] = {}
        self._prompt: prompt.Prompt | None = None
        self._together = _TOGETHER.get(dtype, 1)
        if self._weights.device.type == "cpu" and self._weights.dtype == torch.float32 and compiled:
            self.use_compiled()
        if self._weights.device.type == "cpu":
            of_a_layer = sum(
                t.numel() for name, t in tensors.items() if name.startswith("blocks.0.")
            )
            self.chunk = max(1, min(self.chunk, _CHUNK_WORK // of_a_layer))

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        compiled: bool = True,
    ) -> RWKV7:
        """The model in `path`: a folder of .safetensors, or a .pth. Raises ModelError (see `accel.rwkv.weights.load`).

        dtype int8: the matrices in int8 with a scale a row, computed in fp32 on a CPU and in bf16 on a GPU.
        On a CPU in fp32 and int8, code is compiled at its first use (see `accel.rwkv.ahead`); `compiled` False: torch computes, some
        five times slower token by token, until `use_compiled`.
        """
        return cls(weights.load(path), device, dtype, compiled=compiled)

    def use_compiled(self) -> None:
        """From now on by code compiled for this CPU: the same within rounding, not bit for bit. For weights in fp32 or int8 there."""
        from accel.rwkv import cpu

        self._recurrence, self._cpu = cpu.recurrence, cpu.Step(self._weights)

    def fresh(self, batch: int = 1) -> State:
        """The state of `batch` sequences before their first tokens."""
        return State.fresh(
            len(self._weights.layers),
            self.channels,
            self._weights.device,
            self._weights.dtype,
            batch,
        )

    def saved(self, state: State) -> bytes:
        """A state as bytes that `restored` takes back bit for bit, in another process too."""
        return state.dumps(self.identity)

    def restored(self, data: bytes) -> State:
        """Raises ModelError for what is not a state of this model in this dtype."""
        return State.loads(data, self.fresh(), self.identity)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Sequence[int],
        state: State | None = None,
        look: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, State]:
        """Take in `tokens` (T >= 1) after `state` (None: the beginning) -> logits [V] after the last one, and the new state.

        Long prompts are taken in chunks. `look` is called after each, on a CPU after each layer of each: it may raise to stop.
        Raises ValueError for no token, and for one that the model does not have.
        """
        self._check(tokens)
        before = state or self.fresh()
        if len(tokens) == 1:
            logits, before = self.step(tokens, before)
            return logits[0], before
        for start in range(0, len(tokens), self.chunk):
            part = tokens[start : start + self.chunk]
            if self.device.type == "cpu":
                x, before = self._rows([part], before, look)
            else:
                x, before = self._prompt_of(len(part))(part, before)
                torch.cuda.current_stream(
                    x.device
                ).synchronize()  # or the looks would run ahead of the work
                look()
        return self._logits(x)[0], before

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
        """One token for each sequence of a batch: [B] -> logits [B, V] and the new state. Weights are read once for all of them.

        Raises ValueError where there are not as many tokens as sequences, and for one that the model does not have.
        """
        self._check(tokens)
        if len(tokens) != state.batch:
            raise ValueError(
                f"a state of {state.batch} sequences takes as many tokens; got {len(tokens)}"
            )
        if self._weights.device.type == "cuda":
            return self._on_gpu(len(tokens))(tokens, state)
        if self._cpu is None or len(tokens) >= self._together:
            x, state = self._rows([[token] for token in tokens], state, lambda: None)
            return self._logits(x), state
        if len(tokens) == 1:
            logits, state = self._cpu(tokens[0], state)
            return logits.unsqueeze(0), state
        each = [self._cpu(token, state.pick([i])) for i, token in enumerate(tokens)]
        return torch.stack([logits for logits, _ in each]), State.join(after for _, after in each)

    def _prompt_of(self, length: int) -> prompt.Prompt:
        """So many tokens of a prompt on a GPU: whole chunks are captured at the first one, and kept with their buffers."""
        from accel.rwkv.prompt import Prompt

        if length < self.chunk:
            return Prompt(self._weights, length)
        if self._prompt is None:
            self._prompt = Prompt(self._weights, length, captured=True)
        return self._prompt

    def _on_gpu(self, batch: int) -> gpu.Step:
        """The step of so many sequences: planned and captured at its first use, and kept with its buffers."""
        from accel.rwkv import gpu

        if batch not in self._gpu:
            self._gpu[batch] = gpu.Step(self._weights, batch)
        return self._gpu[batch]

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise ValueError("forward needs at least one token")
        if not 0 <= min(tokens) <= max(tokens) < self.vocabulary:
            raise ValueError(
                f"tokens are from 0 to {self.vocabulary - 1}; got {min(tokens)} to {max(tokens)}"
            )

    def _rows(
        self, tokens: Sequence[Sequence[int]], before: State, look: Callable[[], None]
    ) -> tuple[Tensor, State]:
        """tokens [B, T] -> what the last layer makes of the last one, [B, C], and the state after."""
        w = self._weights
        x = w.embeddings[torch.tensor(tokens, device=w.device)]
        v_first: Tensor | None = None
        after = []
        for layer, shift, memory in zip(w.layers, before.shift, before.wkv, strict=True):
            x, new, v_first = advance(layer, x, Memory(shift, memory), v_first, self._recurrence)
            after.append(new)
            look()
        state = State(torch.stack([m.shift for m in after]), torch.stack([m.wkv for m in after]))
        return x[:, -1], state

    def _logits(self, x: Tensor) -> Tensor:
        """x [B, C] from the last layer -> logits [B, V]. Of a prompt only the last are wanted: the head of a small model is dear."""
        return project(norm(x, self._weights.norm), self._weights.head)


def _identity(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        sample = tensor.flatten()[:: max(1, tensor.numel() // 64)][:64].float().cpu()
        digest.update(f"{name} {list(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()
