"""RWKV-7 "Goose": tokens and a state in, logits and a new state out (Peng et al., arXiv
2503.14456).

The state is a value. `forward` never writes into the one it is given, so keeping a state is a
snapshot, and returning to it gives bit-identical logits. Rewinding, branching and a prepared system
prompt need no more than passing the right state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gpudeck.accel.rwkv import wkv
from gpudeck.accel.rwkv.layers import Memory, advance, norm, project
from gpudeck.accel.rwkv.parameters import arrange
from gpudeck.accel.rwkv.state import State
from gpudeck.accel.rwkv.weights import load

if TYPE_CHECKING:
    from gpudeck.accel.rwkv import gpu, prompt

__all__ = ["RWKV7", "State"]

_LONGEST_CHUNK = {"cpu": 128, "cuda": 512}
_CHUNK_WORK = 160_000_000
"""Multiplications that a CPU core may spend on a chunk of a prompt in one layer: about 5 ms."""


class RWKV7:
    """Run an RWKV-7 model.

    On a CPU it uses torch's number of threads; one is best below 200 million parameters.
    """

    def __init__(
        self,
        tensors: dict[str, Tensor],
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Arrange canonical weights (see `gpudeck.accel.rwkv.weights`) on a device.

        Args:
            tensors: Weights by their canonical names.
            device: `cpu` or `cuda`.
            dtype: See `load`.
        """
        self.parameters = sum(tensor.numel() for tensor in tensors.values())
        self.identity = _identity(tensors)
        """A digest of names, shapes and samples of all weights, which identifies the model."""
        self.weights = arrange(dict(tensors), torch.device(device), dtype)
        self.vocabulary, self.channels = self.weights.embeddings.shape
        self.nbytes = self.weights.nbytes
        """Bytes of the weights."""
        self.device = self.weights.device
        self.chunk = _LONGEST_CHUNK[self.device.type]
        """Tokens of a prompt that are computed at once. Always the same, so that results are
        reproducible.
        """
        self._gpu: dict[int, gpu.Step] = {}
        self._prompt: prompt.Prompt | None = None
        if self.weights.device.type == "cpu":
            of_a_layer = sum(
                t.numel() for name, t in tensors.items() if name.startswith("blocks.0.")
            )
            self.chunk = max(1, min(self.chunk, _CHUNK_WORK // of_a_layer))

    @classmethod
    def load(
        cls, path: str | Path, device: str = "cpu", dtype: torch.dtype = torch.float32
    ) -> RWKV7:
        """Load the model in `path`: a folder of .safetensors files, or a .pth file.

        Args:
            path: The folder or file.
            device: `cpu` or `cuda`.
            dtype: Of the weights. int8 keeps matrices in int8 with a scale a row, and computes in
                fp32 on a CPU and in bf16 on a GPU.

        Raises:
            ModelError: The model cannot be used (see `gpudeck.accel.rwkv.weights.load`).
        """
        return cls(load(path), device, dtype)

    def fresh(self, batch: int = 1) -> State:
        """Return the state of `batch` sequences before their first tokens."""
        w = self.weights
        state = State.fresh(len(w.layers), self.channels, w.device, w.dtype, batch)
        if w.start is not None:
            state.wkv.copy_(w.start.unsqueeze(1))
        return state

    @torch.inference_mode()
    def forward(
        self,
        tokens: Sequence[int],
        state: State | None = None,
        on_chunk: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, State]:
        """Process `tokens` after `state`, and return the logits [V] after the last one and the new
        state.

        Args:
            tokens: At least one token. Long prompts are processed in chunks.
            state: The state of one sequence; None for the beginning.
            on_chunk: Called after each chunk, on a CPU after each layer of it. It may raise to
                stop.

        Raises:
            ValueError: There is no token, or one that the model does not have.
        """
        self._check(tokens)
        before = state or self.fresh()
        if len(tokens) == 1:
            logits, before = self.step(tokens, before)
            return logits[0], before
        for start in range(0, len(tokens), self.chunk):
            part = tokens[start : start + self.chunk]
            if self.device.type == "cpu":
                x, before = self.last_layer([part], before, on_chunk)
            else:
                x, before = self._prompt_of(len(part))(part, before)
                torch.cuda.current_stream(
                    x.device
                ).synchronize()  # Otherwise on_chunk would be called before the work is done.
                on_chunk()
        return self._logits(x)[0], before

    @torch.inference_mode()
    def step(self, tokens: Sequence[int], state: State) -> tuple[Tensor, State]:
        """Process one token of each sequence of a batch; each weight is read once for all of them.

        Returns:
            The logits [B, V] and the new state.

        Raises:
            ValueError: The numbers of tokens and sequences differ, or a token is unknown.
        """
        self._check(tokens)
        if len(tokens) != state.batch:
            raise ValueError(
                f"a state of {state.batch} sequences takes as many tokens; got {len(tokens)}"
            )
        if self.weights.device.type == "cuda":
            return self._on_gpu(len(tokens))(tokens, state)
        x, state = self.last_layer([[token] for token in tokens], state, lambda: None)
        return self._logits(x), state

    def _prompt_of(self, length: int) -> prompt.Prompt:
        """Return the plan for this many tokens of a prompt on a GPU.

        Whole chunks are captured at the first use and kept with their buffers.
        """
        from gpudeck.accel.rwkv.prompt import Prompt

        if length < self.chunk:
            return Prompt(self.weights, length)
        if self._prompt is None:
            self._prompt = Prompt(self.weights, length, captured=True)
        return self._prompt

    def _on_gpu(self, batch: int) -> gpu.Step:
        """Return the step for this many sequences, captured at its first use and kept with its
        buffers.
        """
        from gpudeck.accel.rwkv import gpu

        if batch not in self._gpu:
            self._gpu[batch] = gpu.Step(self.weights, batch)
        return self._gpu[batch]

    def _check(self, tokens: Sequence[int]) -> None:
        if not tokens:
            raise ValueError("forward needs at least one token")
        if not 0 <= min(tokens) <= max(tokens) < self.vocabulary:
            raise ValueError(
                f"tokens are from 0 to {self.vocabulary - 1}; got {min(tokens)} to {max(tokens)}"
            )

    def last_layer(
        self, tokens: Sequence[Sequence[int]], before: State, on_chunk: Callable[[], None]
    ) -> tuple[Tensor, State]:
        """Process tokens [B, T]; return the last layer's output [B, C] for the last token, and the
        state.
        """
        w = self.weights
        x = w.embeddings[torch.tensor(tokens, device=w.device)]
        v_first: Tensor | None = None
        after = []
        for layer, shift, memory in zip(w.layers, before.shift, before.wkv, strict=True):
            x, new, v_first = advance(layer, x, Memory(shift, memory), v_first, wkv.chunked)
            after.append(new)
            on_chunk()
        state = State(torch.stack([m.shift for m in after]), torch.stack([m.wkv for m in after]))
        return x[:, -1], state

    def _logits(self, x: Tensor) -> Tensor:
        """Return the logits [B, V] of the last layer's output x [B, C].

        Prompts need only the last ones: the head of a small model is expensive.
        """
        return project(norm(x, self.weights.norm), self.weights.head)


def _identity(tensors: dict[str, Tensor]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        sample = tensor.flatten()[:: max(1, tensor.numel() // 64)][:64].float().cpu()
        digest.update(f"{name} {list(tensor.shape)}".encode() + sample.numpy().tobytes())
    return digest.hexdigest()
