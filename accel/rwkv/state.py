"""Hold what a model remembers of all tokens so far.

A state is a value that can be cloned and joined into a batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpudeck.accel.rwkv.weights import HEAD


@dataclass(frozen=True, slots=True)
class State:
    """Hold the memory of B sequences. No function writes into a state, so keeping one is a
    snapshot.
    """

    shift: Tensor
    """[layers, B, 2, C] in the model's dtype: the last token's inputs of the time and
    channel mix.
    """
    wkv: Tensor
    """[layers, B, H, 64, 64] fp32: the matrix-valued memory of each head, values by keys."""

    @classmethod
    def fresh(
        cls, layers: int, channels: int, device: torch.device, dtype: torch.dtype, batch: int = 1
    ) -> State:
        """Return the state before the first token."""
        shift = torch.zeros(layers, batch, 2, channels, device=device, dtype=dtype)
        return cls(
            shift, shift.new_zeros(layers, batch, channels // HEAD, HEAD, HEAD, dtype=torch.float32)
        )

    @property
    def batch(self) -> int:
        """Return the number of sequences, B."""
        return self.shift.shape[1]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the state."""
        return self.shift.nbytes + self.wkv.nbytes

    def clone(self) -> State:
        """Return a copy with memory of its own."""
        return State(self.shift.clone(), self.wkv.clone())

    def to(self, device: str | torch.device) -> State:
        """Return the same state on another device; bits do not change."""
        return State(self.shift.to(device), self.wkv.to(device))

    @staticmethod
    def join(states: Iterable[State]) -> State:
        """Join states into one batch, in their order."""
        every = list(states)
        return State(
            torch.cat([s.shift for s in every], dim=1), torch.cat([s.wkv for s in every], dim=1)
        )

    def pick(self, sequences: list[int]) -> State:
        """Return a copy of the given sequences of a batch; a sequence may be repeated."""
        at = torch.tensor(sequences, device=self.shift.device)
        return State(self.shift.index_select(1, at), self.wkv.index_select(1, at))
