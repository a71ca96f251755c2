"""Operations on rows in Helion, as its documentation writes such kernels: a peer of our templates.

Helion chooses block sizes, loops over rows or whole rows, warps and the rest by its own search.
"""

from __future__ import annotations

from typing import Any

import helion  # type: ignore[import-not-found, unused-ignore]
import helion.language as hl  # type: ignore[import-not-found, unused-ignore]
import torch
from torch import Tensor

from gpudeck.accel.search.tasks import EPS


def softmax(x: Tensor) -> Tensor:
    rows, _ = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        out[tile, :] = torch.nn.functional.softmax(x[tile, :], dim=1)
    return out


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    rows, columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        row = x[tile, :]
        centred = row - (torch.sum(row, dim=-1) / columns)[:, None]
        variance = torch.sum(centred * centred, dim=-1) / columns
        out[tile, :] = centred * torch.rsqrt(variance + EPS)[:, None] * weight[:] + bias[:]
    return out


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    rows, columns = x.size()
    out = torch.empty_like(x)
    for tile in hl.tile(rows):
        row = x[tile, :]
        scale = torch.rsqrt(torch.sum(row * row, dim=-1) / columns + EPS)
        out[tile, :] = row * scale[:, None] * weight[:]
    return out


def row_sum(x: Tensor) -> Tensor:
    rows, _ = x.size()
    out = torch.empty([rows], dtype=x.dtype, device=x.device)
    for tile in hl.tile(rows):
        out[tile] = torch.sum(x[tile, :], dim=-1)
    return out


def cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    rows, _ = x.size()
    out = torch.empty([rows], dtype=x.dtype, device=x.device)
    for tile in hl.tile(rows):
        row, other = x[tile, :], y[tile, :]
        top = torch.amax(row, dim=-1)
        log = torch.log(torch.sum(torch.exp(row - top[:, None]), dim=-1)) + top
        weight = torch.exp(other - torch.amax(other, dim=-1)[:, None])
        shared = torch.sum(weight * (log[:, None] - row), dim=-1)
        out[tile] = shared / torch.sum(weight, dim=-1)
    return out


def gelu(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = torch.nn.functional.gelu(x[tile])
    return out


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size()):
        out[tile] = x[tile] * torch.sigmoid(x[tile]) * y[tile]
    return out


FUNCTIONS = (softmax, layer_norm, rms_norm, row_sum, cross_entropy, gelu, swiglu)


def kernel_of(name: str, seconds: int) -> Any:
    """Return the kernel of a task, whose first call searches for so many seconds.

    Below two minutes it is Helion's quick search, which begins with its default configuration: the
    first generation of the full one takes longer than such a budget to compile.
    """
    function = next(f for f in FUNCTIONS if f.__name__ == name)
    effort: Any = "quick" if seconds < 120 else "full"
    made = helion.kernel(
        static_shapes=True, autotune_budget_seconds=seconds, autotune_effort=effort
    )
    return made(function)
