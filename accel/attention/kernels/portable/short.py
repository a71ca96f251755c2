"""Plan both passes of many sequences with few keys; see `kernel_short`."""

from __future__ import annotations

import torch
from triton import cdiv

from gpudeck.accel.attention.kernels.geometry import Geometry, Strides, Target, unit_of
from gpudeck.accel.attention.kernels.portable.kernel_short import (
    attention_short,
    attention_short_backward,
)
from gpudeck.accel.attention.kernels.portable.tile_sizes import (
    PACKED_ROWS,
    TileConfig,
    pad_width,
    short_backward_config,
    short_config,
)
from gpudeck.accel.runtime.call import Argument, KernelCall, Pointer

Arguments = dict[str, Argument]
_FORWARD, _BACKWARD = (4, 8), (2, 16)
"""Programs for each processor before one takes several sequences, and the most of these."""


def short_tile(geometry: Geometry) -> TileConfig | None:
    """Return the tile of the forward pass, or None if the problem is another one."""
    queries, keys = geometry.longest
    shared = geometry.bias is None or geometry.bias.strides[0] == 0
    packed = geometry.group > 1 and queries * geometry.group <= PACKED_ROWS
    special = (
        geometry.ragged or geometry.blocks or geometry.sink or geometry.rules.softcap or packed
        or geometry.slopes is not None
    )  # fmt: skip
    if special or not shared or not keys:
        return None
    return short_config(geometry.dtype, pad_width(geometry.head_dim), queries, keys)


def short_forward_call(geometry: Geometry, tile: TileConfig, target: Target) -> KernelCall:
    """Return a launch over tiles of queries, heads and parts of the sequences."""
    tiles = cdiv(geometry.longest[0], tile.block_m)
    each = _each(tiles * geometry.heads * geometry.sequences, target, *_FORWARD)
    out = geometry.q.like()
    return KernelCall(
        attention_short,
        tiles * geometry.heads * cdiv(geometry.sequences, each),
        {
            **geometry.arguments(),
            **_shared_bias(geometry),
            **out.named("out"),
            "out_ptr": Pointer(geometry.dtype),
            "lse_ptr": Pointer(torch.float32),
            "tiles": tiles,
            "sequences": geometry.sequences,
            "each": each,
        },
        {
            **geometry.constants(),
            "BLOCK_D": pad_width(geometry.head_dim),
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "UNIT": unit_of(geometry.q, geometry.k, geometry.v, out),
        },
        tile.options,
    )


def short_backward_tile(geometry: Geometry, bias_grad: bool, target: Target) -> TileConfig | None:
    """Return the tile that has all rows of a sequence, or None if the problem is another one."""
    tile = short_tile(geometry)
    if tile is None or geometry.longest[0] > tile.block_m or geometry.group > 1:
        return None
    if bias_grad and not is_shared(geometry):
        return None
    return short_backward_config(target.capability, tile, pad_width(geometry.head_dim))


def short_backward_call(
    geometry: Geometry,
    shared: Arguments,
    constants: dict[str, object],
    tile: TileConfig,
    bias_grad: bool,
    target: Target,
) -> tuple[KernelCall, int]:
    """Return a launch over heads and parts of the sequences, and the number of these parts.

    Args:
        geometry: the problem.
        shared: the arguments of all kernels of the backward pass.
        constants: their tl.constexpr arguments.
        tile: that of `short_backward_tile`.
        bias_grad: compute the gradient of the bias, float32 for each part if there are several.
        target: the GPU.
    """
    each = _each(geometry.heads * geometry.sequences, target, *_BACKWARD)
    parts = cdiv(geometry.sequences, each)
    kind = geometry.bias.dtype if geometry.bias and parts == 1 else torch.float32
    call = KernelCall(
        attention_short_backward,
        geometry.heads * parts,
        {
            **shared,
            **_shared_bias(geometry),
            **geometry.q.like().named("dq"),
            **geometry.k.like().named("dk"),
            **geometry.v.like().named("dv"),
            **dict.fromkeys(("dq_ptr", "dk_ptr", "dv_ptr"), Pointer(geometry.dtype)),
            "dbias_ptr": Pointer(kind) if bias_grad else None,
            "sequences": geometry.sequences,
            "each": each,
        },
        {**constants, "BLOCK_M": tile.block_m, "BLOCK_N": tile.block_n},
        tile.options,
    )
    return call, parts


def is_shared(geometry: Geometry) -> bool:
    """Return whether all sequences, and nothing else, share the bias."""
    assert geometry.bias is not None
    by_batch, by_head, by_query, by_key = geometry.bias.strides
    return not by_batch and bool((by_head or geometry.heads == 1) and by_query and by_key)


def _shared_bias(geometry: Geometry) -> dict[str, Strides]:
    """Return the strides of a bias that is the same in all sequences."""
    _, *own = geometry.bias_strides
    return {"bias_strides": Strides(None, *own)}


def _each(programs: int, target: Target, at_once: int, most: int) -> int:
    """Return how many sequences a program takes, of `programs` if it takes one."""
    return min(most, -(-programs // max(1, at_once * target.processors)))
