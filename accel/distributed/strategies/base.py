"""Define what every strategy offers: two passes, and what it refuses."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import Exchange
from gpudeck.accel.distributed.local import Answer
from gpudeck.accel.distributed.problem import Problem
from gpudeck.language.text import Text


class Shard(NamedTuple):
    """The tensors of one rank: q [B,H,S,D], k [B,Hkv,S,D], v [B,Hkv,S,Dv], sink [H]."""

    q: Tensor
    k: Tensor
    v: Tensor
    sink: Tensor | None = None

    @property
    def group(self) -> int:
        """Return how many query heads share a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Return the shape of the output."""
        return (*self.q.shape[:3], self.v.shape[3])

    def new_answer(self) -> Answer:
        """Return room for the answer."""
        out = self.q.new_empty(self.out_shape)
        return Answer(out, self.q.new_empty(self.q.shape[:3], dtype=torch.float32))

    def of_heads(self, keys: slice, queries: slice) -> Shard:
        """Return some heads."""
        sink = None if self.sink is None else self.sink[queries]
        return Shard(self.q[:, queries], self.k[:, keys], self.v[:, keys], sink)


class Upstream(NamedTuple):
    """The answer of the forward pass, which holds the sink, and the gradients of both parts."""

    answer: Answer
    dout: Tensor
    dlse: Tensor | None = None


class Gradients(NamedTuple):
    """The gradients of q, k and v of one rank."""

    q: Tensor
    k: Tensor
    v: Tensor

    @classmethod
    def room(cls, x: Shard) -> Gradients:
        """Return room for the gradients of a rank."""
        return cls(
            *(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x.q, x.k, x.v))
        )


class Strategy(Protocol):
    """A module with these functions."""

    def refusal(self, problem: Problem, heads: int, kv_heads: int) -> Text | None:
        """Return why it cannot divide the problem, or None if it can."""

    def forward(self, problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
        """Write the answer of this rank's queries."""

    def backward(
        self, problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
    ) -> None:
        """Write the gradients of this rank's tensors."""
