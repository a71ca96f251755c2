"""Random inputs of an attention problem: fresh, never zeros, and replayed from their seed."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from accel.workloads.grid import Shape

Distribution = Literal["normal", "outliers"]

OUTLIER_SHARE = 0.001
OUTLIER_WIDTH = 10.0


class Tensors(NamedTuple):
    """q and dout [batch, heads, seq, head_dim], k and v [batch, kv_heads, seq, head_dim]."""

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor


def fresh(
    shape: Shape, device: torch.device, seed: int, distribution: Distribution = "normal"
) -> Tensors:
    """Standard normal inputs; with `outliers` plus N(0, 100) for a thousandth of the elements of q, k and v.

    The second is the distribution by which FlashAttention-3 (section 4.3) measures numerical error. The same seed gives the same inputs on
    the same kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    queries = (shape.batch, shape.heads, shape.seq, shape.head_dim)
    keys = (shape.batch, shape.kv_heads, shape.seq, shape.head_dim)

    def normal(size: tuple[int, ...]) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    def wide(size: tuple[int, ...]) -> Tensor:
        x = normal(size)
        if distribution == "outliers":
            far = torch.rand(size, generator=generator, device=device) < OUTLIER_SHARE
            x += far * OUTLIER_WIDTH * normal(size)
        return x

    dtype: torch.dtype = getattr(torch, shape.dtype)
    q, k, v, dout = wide(queries), wide(keys), wide(keys), normal(queries)
    return Tensors(*(x.to(dtype) for x in (q, k, v, dout)))


def poison(shape: Shape, device: torch.device) -> None:
    """Leave NaN in the memory that the next outputs are likely to get, so that what a kernel does not write shows."""
    for like in (
        (shape.heads, shape.head_dim),
        (shape.kv_heads, shape.head_dim),
        (shape.kv_heads, shape.head_dim),
    ):
        torch.full(
            (shape.batch, shape.seq, *like),
            torch.nan,
            dtype=getattr(torch, shape.dtype),
            device=device,
        )
    torch.full((shape.batch, shape.heads, shape.seq), torch.nan, device=device)
