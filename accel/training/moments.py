"""Keep what an optimizer remembers in eight bits between its steps.

Blocks of a row have a scale of their own, so codes and scales are divided among processes as the
matrix is. A code names one of at most 256 numbers, which are closer to each other towards zero.

Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861. Unlike
there, second moments are kept by their roots, and none becomes zero beside larger ones: a weight
whose second moment is lost moves without bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.training.ranks import own_share, share_like

BLOCK = 256
"""The columns that share a scale; fewer where a row is shorter."""
_DECADES = 7
_SQUARES = "exp_avg_sq"
"""AdamW's name of the means of squares, which are never negative."""
_CODES, _SCALES = ".codes", ".scales"


@cache
def levels(device: torch.device, *, signed: bool) -> tuple[Tensor, Tensor]:
    """Return the numbers that codes stand for, and the limits between neighbours.

    Each of seven decades has twice as many numbers as the one below it; those without a sign have
    twice as many in each.
    """
    found = [1.0]
    for decade in range(_DECADES):
        count = 2 ** (decade if signed else decade + 1)
        ends = torch.linspace(0.1, 1.0, count + 1, dtype=torch.float64)
        found += ((ends[1:] + ends[:-1]) / 2 * 10.0 ** (decade - _DECADES + 1)).tolist()
    if signed:
        found += [-level for level in found[1:]] + [0.0]
    numbers = torch.tensor(sorted(found), dtype=torch.float64)
    limits = (numbers[1:] + numbers[:-1]) / 2
    return numbers.float().to(device), limits.float().to(device)


def encode(x: Tensor, *, signed: bool, compiled: bool = False) -> tuple[Tensor, Tensor]:
    """Return the codes of x, uint8 like x, and the scales of its blocks [..., blocks].

    Args:
        x: the numbers.
        signed: whether some may be negative.
        compiled: compute with one kernel that torch.compile makes.
    """
    columns = x.shape[-1]
    blocks = _blocks(x)
    run = _compiled(_encode) if compiled else _encode
    codes, scales = run(blocks.flatten(0, -2), levels(x.device, signed=signed)[1])
    return _rows(codes.view(blocks.shape), columns), scales.view(blocks.shape[:-1])


def decode(codes: Tensor, scales: Tensor, *, signed: bool, compiled: bool = False) -> Tensor:
    """Return the numbers that codes and scales stand for; see `encode`."""
    columns = codes.shape[-1]
    blocks = _blocks(codes)
    run = _compiled(_decode) if compiled else _decode
    numbers = levels(codes.device, signed=signed)[0]
    found = run(blocks.flatten(0, -2), scales.flatten(), numbers)
    return _rows(found.view(blocks.shape), columns)


def _encode(blocks: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the codes of blocks [count, size], and the scales [count]."""
    scales = blocks.abs().amax(-1)
    spread = scales.clamp(min=torch.finfo(blocks.dtype).tiny).unsqueeze(-1)
    return torch.bucketize(blocks / spread, limits, out_int32=True).to(torch.uint8), scales


def _decode(codes: Tensor, scales: Tensor, numbers: Tensor) -> Tensor:
    return numbers[codes.int()] * scales.unsqueeze(-1)


@cache
def _compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(run, dynamic=True)


def _blocks(x: Tensor) -> Tensor:
    """Return x [..., columns] as [..., blocks, columns of a block], filled up with zeros."""
    columns = x.shape[-1]
    block = min(BLOCK, columns)
    return functional.pad(x, (0, -columns % block)).reshape(*x.shape[:-1], -1, block)


def _rows(blocks: Tensor, columns: int) -> Tensor:
    """Return what `_blocks` made blocks of."""
    return blocks.flatten(-2)[..., :columns].contiguous()


@torch.no_grad()
def pack(optimizer: torch.optim.Optimizer, *, compiled: bool) -> None:
    """Replace the moments of matrices by codes and scales; those of vectors are small, and stay."""
    for state in optimizer.state.values():
        for kind in [name for name, value in state.items() if value.dim() > 1]:
            moment = state.pop(kind)
            own = own_share(moment)
            signed = kind != _SQUARES
            positive = own if signed else own.sqrt()
            codes, scales = encode(positive, signed=signed, compiled=compiled)
            state[kind + _CODES] = share_like(codes, moment)
            state[kind + _SCALES] = share_like(scales, moment)


@torch.no_grad()
def unpack(optimizer: torch.optim.Optimizer, *, compiled: bool) -> None:
    """Replace codes and scales by the moments that they stand for."""
    for state in optimizer.state.values():
        for kind in [name.removesuffix(_CODES) for name in state if name.endswith(_CODES)]:
            codes, scales = state.pop(kind + _CODES), state.pop(kind + _SCALES)
            signed = kind != _SQUARES
            moment = decode(own_share(codes), own_share(scales), signed=signed, compiled=compiled)
            state[kind] = share_like(moment if signed else moment.square(), codes)
