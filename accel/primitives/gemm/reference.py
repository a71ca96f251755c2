"""Compute products in float64: what every backend is checked against."""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.plain import product


def reference(x: Operands) -> Tensor:
    """Return the exact result [batch, m, n] in float64."""
    return product(x, torch.float64)
