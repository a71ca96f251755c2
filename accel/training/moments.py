"""Keep what an optimizer remembers in eight bits between its steps.

Blocks of a row have a scale of their own, so codes and scales are divided among processes as the
matrix is. A code names one of at most 256 numbers, which are closer to each other towards zero.

Source: Dettmers et al., 8-bit Optimizers via Block-wise Quantization, arXiv 2110.02861. Unlike
there, second moments are kept by their roots, and none becomes zero beside larger ones: a weight
whose second moment is lost moves without bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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


def encode(
    xs: Sequence[Tensor], *, signed: bool, compiled: bool = False
) -> list[tuple[Tensor, Tensor]]:
    """Return the codes of each x, uint8 like x, and the scales of its blocks [..., blocks].

    All x whose blocks have one size are encoded together: each launch costs the processor time.

    Args:
        xs: the numbers.
        signed: whether some may be negative; else the codes stand for their roots.
        compiled: compute with one kernel that torch.compile makes.
    """
    run = _compiled(_encode) if compiled else _encode
    shapes = [_blocks(x).shape for x in xs]
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for places in _alike(shapes):
        limits = levels(xs[places[0]].device, signed=signed)[1]
        together = torch.cat([_blocks(xs[place]).flatten(0, -2) for place in places])
        counts = [math.prod(shapes[place][:-1]) for place in places]
        parts = (part.split(counts) for part in run(together, limits, signed))
        found |= dict(zip(places, zip(*parts, strict=True), strict=True))
    return [
        (_rows(found[i][0].view(shapes[i]), x.shape[-1]), found[i][1].view(shapes[i][:-1]))
        for i, x in enumerate(xs)
    ]


def decode(
    pairs: Sequence[tuple[Tensor, Tensor]], *, signed: bool, compiled: bool = False
) -> list[Tensor]:
    """Return the numbers that codes and scales stand for; see `encode`."""
    run = _compiled(_decode) if compiled else _decode
    shapes = [_blocks(codes).shape for codes, _ in pairs]
    found: dict[int, Tensor] = {}
    for places in _alike(shapes):
        numbers = levels(pairs[places[0]][0].device, signed=signed)[0]
        codes = torch.cat([_blocks(pairs[place][0]).flatten(0, -2) for place in places])
        scales = torch.cat([pairs[place][1].flatten() for place in places])
        counts = [math.prod(shapes[place][:-1]) for place in places]
        found |= dict(zip(places, run(codes, scales, numbers, signed).split(counts), strict=True))
    return [_rows(found[i].view(shapes[i]), codes.shape[-1]) for i, (codes, _) in enumerate(pairs)]


def _encode(blocks: Tensor, limits: Tensor, signed: bool) -> tuple[Tensor, Tensor]:
    """Return the codes of blocks [count, size], and the scales [count]."""
    blocks = blocks if signed else blocks.sqrt()
    scales = blocks.abs().amax(-1)
    spread = scales.clamp(min=torch.finfo(blocks.dtype).tiny).unsqueeze(-1)
    return torch.bucketize(blocks / spread, limits, out_int32=True).to(torch.uint8), scales


def _decode(codes: Tensor, scales: Tensor, numbers: Tensor, signed: bool) -> Tensor:
    blocks = numbers[codes.int()] * scales.unsqueeze(-1)
    return blocks if signed else blocks.square()


@cache
def _compiled(run: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(run, dynamic=True)


def _alike(shapes: Sequence[torch.Size]) -> Iterator[list[int]]:
    """Yield the places of shapes whose last sizes are equal."""
    for size in dict.fromkeys(shape[-1] for shape in shapes):
        yield [place for place, shape in enumerate(shapes) if shape[-1] == size]


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
    states = optimizer.state.values()
    for kind in dict.fromkeys(n for state in states for n, v in state.items() if v.dim() > 1):
        owners = [state for state in states if kind in state]
        moments = [state.pop(kind) for state in owners]
        pairs = encode([own_share(m) for m in moments], signed=kind != _SQUARES, compiled=compiled)
        for state, moment, (codes, scales) in zip(owners, moments, pairs, strict=True):
            state[kind + _CODES] = share_like(codes, moment)
            state[kind + _SCALES] = share_like(scales, moment)


@torch.no_grad()
def unpack(optimizer: torch.optim.Optimizer, *, compiled: bool) -> None:
    """Replace codes and scales by the moments that they stand for."""
    states = optimizer.state.values()
    for name in dict.fromkeys(n for state in states for n in state if n.endswith(_CODES)):
        kind = name.removesuffix(_CODES)
        owners = [state for state in states if name in state]
        packed = [(state.pop(name), state.pop(kind + _SCALES)) for state in owners]
        pairs = [(own_share(codes), own_share(scales)) for codes, scales in packed]
        moments = decode(pairs, signed=kind != _SQUARES, compiled=compiled)
        for state, (codes, _), moment in zip(owners, packed, moments, strict=True):
            state[kind] = share_like(moment, codes)
