"""Draw random inputs of an attention problem, repeatable from their seed."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.workloads.grid import Shape

Distribution = Literal["normal", "outliers"]

OUTLIER_SHARE = 0.001
OUTLIER_WIDTH = 10.0


class Tensors(NamedTuple):
    """Hold q and dout [batch, heads, seq, head_dim], k and v [batch, kv_heads, seq, head_dim]."""

    q: Tensor
    k: Tensor
    v: Tensor
    dout: Tensor


def fresh(
    shape: Shape, device: torch.device, seed: int, distribution: Distribution = "normal"
) -> Tensors:
    """Return standard normal inputs.

    The same seed gives the same inputs on the same kind of device.

    Args:
        distribution: `outliers` adds N(0, 100) to a thousandth of the elements of q, k and v.

    Source: FlashAttention-3 (arXiv 2407.08608), section 4.3, for the outliers.
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
    """Leave NaN in the memory that the next outputs are likely to get.

    Elements that a kernel does not write are then noticed.
    """
    dtype: torch.dtype = getattr(torch, shape.dtype)
    for heads in (shape.heads, shape.kv_heads, shape.kv_heads):
        size = (shape.batch, shape.seq, heads, shape.head_dim)
        torch.full(size, torch.nan, dtype=dtype, device=device)
    torch.full((shape.batch, shape.heads, shape.seq), torch.nan, device=device)
