"""Compute a layer over many tokens in torch, on any device, in any dtype, for any number of
sequences.

It follows the paper closely, and is the reference that all kernels are tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.rwkv.parameters import Layer, Norm, Rank
from gpudeck.accel.rwkv.storage import Matrix
from gpudeck.accel.rwkv.weights import HEAD

DECAY = math.exp(-0.5)
"""The constant of the decay exp(-DECAY * sigmoid(...)), which is therefore never below 0.545."""
GROUP_EPS = 64e-5
_FEW = 4
"""Rows up to which a product with a matrix in int8 on a CPU does not widen the matrix."""

Recurrence = Callable[
    [Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]
]
"""A function of r, w, k, v, a, b [B, T, H, 64] fp32 and a state [B, H, 64, 64] that returns y [B,
T, H, 64] and the new state (see `gpudeck.accel.rwkv.wkv`).
"""


class Memory(NamedTuple):
    """Hold one layer's part of a State."""

    shift: Tensor
    """[B, 2, C]"""
    wkv: Tensor
    """[B, H, 64, 64]"""


def advance(
    layer: Layer, x: Tensor, before: Memory, v_first: Tensor | None, recurrence: Recurrence
) -> tuple[Tensor, Memory, Tensor]:
    """Advance one layer.

    Args:
        layer: The weights.
        x: [B, T, C].
        before: The layer's memory.
        v_first: The first layer's values; None in the first layer.
        recurrence: The implementation of the recurrence.

    Returns:
        x [B, T, C], the layer's new memory, and the first layer's values.
    """
    att_in = norm(x, layer.norm_att)
    out, wkv, v_first = _time_mix(layer, att_in, before, v_first, recurrence)
    x = x + out
    ffn_in = norm(x, layer.norm_ffn)
    x = x + _channel_mix(layer, ffn_in, before.shift[:, 1])
    return x, Memory(torch.stack((att_in[:, -1], ffn_in[:, -1]), dim=1), wkv), v_first


def norm(x: Tensor, by: Norm) -> Tensor:
    """Return the LayerNorm over channels."""
    return functional.layer_norm(x, by.weight.shape, by.weight, by.bias)


def project(x: Tensor, matrix: Matrix) -> Tensor:
    """Multiply the last dimension by a matrix: [..., columns] -> [..., rows]."""
    if _few_by_int8(x, matrix):
        from gpudeck.accel.rwkv.cpu_kernels import matmul_int8  # imports Numba

        return _by_kernel(matmul_int8, x, matrix, len(matrix.values))
    return functional.linear(x, matrix.dense(x.dtype))


def _spread(x: Tensor, matrix: Matrix) -> Tensor:
    """Multiply by a matrix whose rows are inputs: [..., rows] -> [..., columns]."""
    if _few_by_int8(x, matrix):
        from gpudeck.accel.rwkv.cpu_kernels import spread_int8  # imports Numba

        return _by_kernel(spread_int8, x, matrix, matrix.values.shape[1])
    return x @ matrix.dense(x.dtype)


def _few_by_int8(x: Tensor, matrix: Matrix) -> bool:
    rows = x.numel() // x.shape[-1]
    return matrix.scales is not None and x.device.type == "cpu" and rows <= _FEW


def _by_kernel(kernel: Any, x: Tensor, matrix: Matrix, width: int) -> Tensor:
    assert matrix.scales is not None
    out = x.new_zeros(*x.shape[:-1], width)
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    kernel(matrix.values.numpy(), matrix.scales.numpy(), rows.numpy(), out.view(-1, width).numpy())
    return out


def _time_mix(
    layer: Layer, x: Tensor, before: Memory, v_first: Tensor | None, recurrence: Recurrence
) -> tuple[Tensor, Tensor, Tensor]:
    """Mix over time: token shift, low-rank decay, in-context learning rate, gate, and the
    recurrence.
    """
    count = x.shape[2] // HEAD
    heads = (*x.shape[:2], count, HEAD)
    shifted = _shifted(x, before.shift[:, 0]) - x
    x_r, x_k, x_v, x_w, x_a, x_g = (torch.addcmul(x, shifted, mix) for mix in layer.mixes)
    r, k, v = project(x_r, layer.receptance), project(x_k, layer.key), project(x_v, layer.value)
    decay = torch.exp(
        -DECAY * torch.sigmoid(_low_rank(torch.tanh(_down(x_w, layer.decay)), layer.decay).float())
    )
    rate = torch.sigmoid(_low_rank(_down(x_a, layer.rate), layer.rate))
    gate = _low_rank(torch.sigmoid(_down(x_g, layer.gate)), layer.gate)
    if v_first is None:
        v_first = v
    else:
        v = v + (v_first - v) * torch.sigmoid(_low_rank(_down(x_v, layer.residual), layer.residual))
    removal = functional.normalize((k * layer.k_k).view(heads), dim=-1)
    k = k * (1 + (rate - 1) * layer.k_a)

    r, k, v, rate = r.view(heads), k.view(heads), v.view(heads), rate.view(heads)
    erased, gained = -removal.float(), (removal * rate).float()
    y, wkv = recurrence(
        r.float(), decay.view(heads), k.float(), v.float(), erased, gained, before.wkv
    )
    normed = functional.group_norm(
        y.to(x.dtype).flatten(0, 1).flatten(1), count, *layer.norm_wkv, GROUP_EPS
    )
    bonus = (r * k * layer.r_k.view(-1, HEAD)).sum(dim=-1, keepdim=True) * v
    return project((normed.view_as(x) + bonus.flatten(2)) * gate, layer.output), wkv, v_first


def _channel_mix(layer: Layer, x: Tensor, last: Tensor) -> Tensor:
    """Mix over channels: a two-layer perceptron with squared ReLU on the shifted input."""
    active = torch.relu(
        project(torch.addcmul(x, _shifted(x, last) - x, layer.mix_ffn), layer.ffn_key)
    )
    return _spread(active * active, layer.ffn_value)


def _down(x: Tensor, rank: Rank) -> Tensor:
    return functional.linear(x, rank.down)


def _low_rank(inner: Tensor, rank: Rank) -> Tensor:
    out = inner @ rank.up
    return out if rank.bias is None else out + rank.bias


def _shifted(x: Tensor, last: Tensor) -> Tensor:
    """Return the token before each token: x [B, T, C], last [B, C] -> [B, T, C]."""
    return torch.cat((last.unsqueeze(1), x[:, :-1]), dim=1)
