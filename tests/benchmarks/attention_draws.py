"""Draw the tensors of a shape of the zoo as a model's projections leave them in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gpudeck.accel.attention import Ragged
from gpudeck.accel.attention.inputs import Inputs, arrange
from gpudeck.accel.runtime.timing import copies_beyond_cache
from tests.benchmarks.attention_shapes import ModelShape

CUDA = torch.device("cuda", 0)


@dataclass(frozen=True)
class Draw:
    """Hold one set of tensors of a shape: [B,H,S,D] that lie in memory as [B,S,H,D], or [T,H,D]
    in a ragged batch."""

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor
    bias: Tensor | None
    ragged: Ragged | None

    def inputs(self, layout: str) -> Inputs:
        """Return the tensors as backends take them, in a layout."""
        x = arrange(self.q, self.k, self.v, self.bias, self.ragged, "bhsd")
        if layout == "bshd" or self.ragged is not None:
            return x
        k, v = _contiguous(x.k, x.v)
        return x._replace(q=x.q.contiguous(), k=k, v=v)

    def laid_out(self, layout: str) -> Draw:
        """Return the tensors in a layout."""
        if layout == "bshd" or self.ragged is not None:
            return self
        q, dout = (t.contiguous() for t in (self.q, self.dout))
        return Draw(q, *_contiguous(self.k, self.v), dout, self.bias, self.ragged)

    def upstream(self, layout: str) -> Tensor:
        """Return the gradient of the output [B,H,S,D] in a layout."""
        if self.ragged is not None:
            return self.dout.transpose(0, 1).unsqueeze(0)
        return self.dout.contiguous() if layout == "bhsd" else self.dout


def _contiguous(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return keys and values one after the other; values that are a part of the keys remain it."""
    copy = k.contiguous()
    shared = v.data_ptr() == k.data_ptr()
    return copy, copy[..., : v.shape[3]] if shared else v.contiguous()


def draws(shape: ModelShape) -> list[Draw]:
    """Return random tensors that together exceed the cache several times."""
    wide = shape.value_dim or shape.head_dim
    of_keys = shape.head_dim if shape.absorbed else shape.head_dim + wide
    held = shape.seq_q * shape.heads * (shape.head_dim + wide)
    held = 2 * shape.batch * (held + shape.seq_k * shape.kv_heads * of_keys)
    bias = _bias(shape)

    def normal(heads: int, length: int, dim: int) -> Tensor:
        size = (shape.batch, length, heads, dim)
        if shape.lengths:
            size = (sum(shape.lengths), heads, dim)
        drawn = torch.randn(size, device=CUDA, dtype=torch.bfloat16)
        return drawn if shape.lengths else drawn.transpose(1, 2)

    ragged = Ragged.of(shape.lengths, device=CUDA) if shape.lengths else None

    def drawn() -> Draw:
        q = normal(shape.heads, shape.seq_q, shape.head_dim)
        k = normal(shape.kv_heads, shape.seq_k, shape.head_dim)
        v = k[..., :wide] if shape.absorbed else normal(shape.kv_heads, shape.seq_k, wide)
        return Draw(q, k, v, normal(shape.heads, shape.seq_q, wide), bias, ragged)

    return [drawn() for _ in range(copies_beyond_cache(held, CUDA))]


def _bias(shape: ModelShape) -> Tensor | None:
    if shape.mask == "none":
        return None
    if shape.mask == "padding":
        ends = torch.randint(shape.seq_k // 2, shape.seq_k + 1, (shape.batch, 1, 1, 1), device=CUDA)
        return torch.arange(shape.seq_k, device=CUDA) < ends
    size = (1, shape.heads, shape.seq_q, shape.seq_k)
    if shape.mask == "learned":
        return torch.randn(size, device=CUDA, dtype=torch.bfloat16)
    slopes = 2.0 ** (-8.0 * torch.arange(1, shape.heads + 1, device=CUDA) / shape.heads)
    at = torch.arange(shape.seq_k, device=CUDA)
    return (slopes[:, None, None] * (at - at[:, None]).clamp(max=0))[None].to(torch.bfloat16)
