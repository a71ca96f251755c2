"""What a model remembers of all tokens so far: a value that can be cloned, joined into a batch, saved and restored bit for bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from accel.rwkv.errors import ModelError
from accel.rwkv.weights import HEAD


@dataclass(frozen=True, slots=True)
class State:
    """The memory of B sequences. No function of a model writes into one it is given, so keeping a state is a snapshot."""

    shift: Tensor
    """[layers, B, 2, C] in the model's dtype: the last token's inputs of the time mix and of the channel mix."""
    wkv: Tensor
    """[layers, B, H, 64, 64] fp32: the matrix-valued memory of each head, values by keys."""

    @classmethod
    def fresh(
        cls, layers: int, channels: int, device: torch.device, dtype: torch.dtype, batch: int = 1
    ) -> State:
        """Before the first token."""
        shift = torch.zeros(layers, batch, 2, channels, device=device, dtype=dtype)
        return cls(
            shift, shift.new_zeros(layers, batch, channels // HEAD, HEAD, HEAD, dtype=torch.float32)
        )

    @property
    def batch(self) -> int:
        """Number of sequences, B."""
        return self.shift.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of it."""
        return self.shift.nbytes + self.wkv.nbytes

    def clone(self) -> State:
        """A copy with memory of its own."""
        return State(self.shift.clone(), self.wkv.clone())

    def to(self, device: str | torch.device) -> State:
        """The same on another device; bits do not change."""
        return State(self.shift.to(device), self.wkv.to(device))

    @staticmethod
    def join(states: Iterable[State]) -> State:
        """One batch of all sequences of the given states, in their order."""
        every = list(states)
        return State(
            torch.cat([s.shift for s in every], dim=1), torch.cat([s.wkv for s in every], dim=1)
        )

    def pick(self, sequences: list[int]) -> State:
        """Of a batch the given sequences, copied: an int may come twice."""
        at = torch.tensor(sequences, device=self.shift.device)
        return State(self.shift.index_select(1, at), self.wkv.index_select(1, at))

    def dumps(self, model: str) -> bytes:
        """As a .safetensors file, with the identity of the model it belongs to."""
        name = torch.frombuffer(bytearray(model.encode()), dtype=torch.uint8)
        return save(
            {
                "shift": self.shift.cpu().contiguous(),
                "wkv": self.wkv.cpu().contiguous(),
                "model": name,
            }
        )

    @classmethod
    def loads(cls, data: bytes, like: State, model: str) -> State:
        """What `dumps` wrote. `like`: any state of the model. Raises ModelError for what is no state, or not of this model."""
        try:
            found = load(data)
        except (SafetensorError, ValueError) as e:
            raise ModelError(
                f"this is not a saved state, or it is damaged ({e}). Begin again."
            ) from e
        if (
            set(found) != {"shift", "wkv", "model"}
            or bytes(found["model"].tolist()) != model.encode()
        ):
            raise ModelError("this saved state belongs to another model. Begin again.")
        state = cls(found["shift"], found["wkv"])
        for ours, theirs in ((like.shift, state.shift), (like.wkv, state.wkv)):
            if (
                ours.dtype != theirs.dtype
                or ours.dim() != theirs.dim()
                or ours.shape[2:] != theirs.shape[2:]
                or len(ours) != len(theirs)
            ):
                raise ModelError(
                    "this saved state has another shape or data type than the model's. Begin again."
                )
        return state.to(like.shift.device)
