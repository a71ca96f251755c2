"""Compute products in torch, in any precision and on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.quantize.fp8 import expand


def product(x: Operands, dtype: torch.dtype) -> Tensor:
    """Return the result [batch, m, n] computed in `dtype`, with scales multiplied into operands."""
    a, b = x.a.to(dtype), x.b.to(dtype)
    if x.scale_a is not None and x.scale_b is not None:
        a = a * expand(x.scale_a.to(dtype), a.shape[1:])
        b = b * expand(x.scale_b.to(dtype), b.shape[1:])
    out = a @ b
    if x.bias is not None:
        out = out + x.bias.to(dtype)
    return activate(out, x.problem.activation)


def activate(x: Tensor, activation: str) -> Tensor:
    """Apply an activation by its name; `gelu` is the exact one."""
    if activation == "relu":
        return functional.relu(x)
    if activation == "silu":
        return functional.silu(x)
    return functional.gelu(x) if activation == "gelu" else x
