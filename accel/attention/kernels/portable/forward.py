"""Plan the portable forward pass once for each kind of problem, then launch it quickly."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv

from gpudeck.accel.attention.blocks import BlockLists
from gpudeck.accel.attention.kernels.geometry import (
    Geometry,
    Layout,
    Target,
    geometry_key,
    geometry_of,
    list_arguments,
    list_sides,
    target_of,
    unit_of,
)
from gpudeck.accel.attention.kernels.portable.kernel_forward import (
    attention_forward,
    combine_splits,
)
from gpudeck.accel.attention.kernels.portable.short import short_forward_call, short_tile
from gpudeck.accel.attention.kernels.portable.tile_sizes import (
    PACKED_ROWS,
    TileConfig,
    forward_config,
    pad_width,
    split_keys,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

_MOST_SPLITS = 64
_FEWEST_KEYS = 16
"""Of a block: tensor cores multiply so many at once."""
Blocks = tuple[int | None, int | None]
Run = Callable[..., tuple[Tensor, Tensor]]
"""A function that maps q, k and v to out and lse."""


class ForwardCalls(NamedTuple):
    """List the launches of one forward pass."""

    attend: KernelCall
    combine: KernelCall | None
    """Runs after an `attend` that split the keys; otherwise None."""
    splits: int


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    *,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
    visible: BlockLists | None = None,
    sink: Tensor | None = None,
    blocks: Blocks = (None, None),
) -> tuple[Tensor, Tensor]:
    """Compute softmax(scale * q kᵀ) v and its log-sum-exp, for compute capability 8.0 and newer.

    The result is deterministic, and takes O(Sq) memory beside the outputs.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D] with Hkv dividing H and D up to 512, in
    float16, bfloat16 or float32 (in full precision, without tensor cores), with any strides. With
    `ragged` the sequences lie end to end in q [1,H,Tq,D], and in k and v.

    Args:
        rules: which keys are seen, and how scores are made.
        ragged: the position of each sequence.
        bias: [B,H,Sq,Sk], expanded where broadcast; added to the scores, or bool, True where a
            query sees a key.
        slopes: float32 [H] or [B,H]; slope x (key - position of the query) is added to the scores.
        visible: the blocks of keys that queries see, instead of a window, `ragged` and `bias`.
        sink: float32 [H], one more score of each row, to which no value belongs.
        blocks: queries and keys of a tile; None chooses by size and target.

    Returns:
        The output in the layout of torch.empty_like(q), and the natural log-sum-exp, float32
        [B,H,Sq]. A query that sees no key gets 0 and -inf.

    Raises:
        ValueError: if the kernels cannot compute the problem.
    """
    key = geometry_key(q, k, v, rules, ragged, bias, slopes, visible, sink)
    plan = _plan(key, blocks)
    lists = visible.of_queries if visible else ()
    return plan.run(q, k, v, *extras(bias, ragged, slopes), *lists, sink=sink)


def plan_run(q: Tensor, k: Tensor, v: Tensor, rules: Rules, tile: TileConfig | None = None) -> Run:
    """Return `forward` for tensors of one kind, which it does not check.

    They have the sizes, strides, dtype, device and alignment of these.

    Args:
        tile: another tile than that of `forward_config`.
    """
    return _plan(geometry_key(q, k, v, rules), (None, None), tile).run


def forward_calls(
    geometry: Geometry,
    target: Target,
    blocks: Blocks = (None, None),
    tile: TileConfig | None = None,
) -> ForwardCalls:
    """Return what `forward` launches on a target, with a tile or of one with such blocks.

    Raises:
        ValueError: for unknown blocks.
    """
    free = tile is None and blocks == (None, None)
    if free and (short := short_tile(geometry)) is not None:
        return ForwardCalls(short_forward_call(geometry, short, target), None, 1)
    longest_q, longest_k = geometry.longest
    group = geometry.group
    lists = geometry.blocks
    alone = geometry.bias is not None or lists is not None
    pack = group if group > 1 and longest_q * group <= PACKED_ROWS and not alone else 1
    block_d = pad_width(geometry.head_dim)
    config = tile or forward_config(
        target.capability, geometry.dtype, block_d, longest_q * pack, alone
    ).resize(*blocks)
    if lists:
        config = config.within(lists.rows, lists.cols)
    tiles = cdiv(longest_q * pack, config.block_m)
    units = geometry.heads // pack * geometry.sequences
    splits, chunk = _split(
        0 if lists else target.processors // max(1, tiles * units),
        longest_k,
        split_keys(longest_q * pack),
        config.block_n,
    )
    rows = geometry.q.shape[0] * geometry.heads * geometry.q.shape[2]
    out = geometry.q.like()
    attend = KernelCall(
        attention_forward,
        tiles * units * splits,
        {
            **geometry.arguments(),
            **out.named("out"),
            **list_arguments(lists, by_keys=False),
            "out_ptr": Pointer(torch.float32 if splits > 1 else geometry.dtype),
            "lse_ptr": Pointer(torch.float32),
            "sink_ptr": _sink(geometry) if splits == 1 else None,
            "tiles": tiles,
            "units": units,
            "chunk": chunk,
            "partial_stride": rows,
        },
        {
            **geometry.constants(),
            "BLOCK_D": block_d,
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "TAIL": _tail(geometry, config.block_n),
            "PACK": pack,
            "SPLIT": splits > 1,
            "EVEN_K": not geometry.ragged and longest_k % config.block_n == 0,
            **list_sides(lists),
            "SINK": geometry.sink,
            "UNIT": unit_of(geometry.q, geometry.k, geometry.v, out),
        },
        config.options,
    )
    return ForwardCalls(
        attend, _combine(geometry, out, rows, splits) if splits > 1 else None, splits
    )


def _tail(geometry: Geometry, block_n: int) -> int:
    """Return the keys of a block at the end: fewer than block_n if the last ones fill only half.

    Masks have such blocks elsewhere, too, so that there they are like the others.
    """
    last = geometry.k.shape[2] % block_n
    if geometry.rules.is_cut or geometry.ragged or geometry.blocks or not 0 < 2 * last <= block_n:
        return block_n
    return max(_FEWEST_KEYS, 1 << (last - 1).bit_length())


def _split(idle: int, keys: int, fewest: int, block_n: int) -> tuple[int, int]:
    """Split the keys so that each processor has a program.

    Args:
        idle: the processors for each program of the kernel without splits.
        keys: the number of keys.
        fewest: the least number of keys of a part.
        block_n: the keys of a tile.

    Returns:
        The number of parts, and the keys of a part, a multiple of block_n.
    """
    wanted = min(idle, keys // fewest, _MOST_SPLITS)
    if wanted <= 1:
        return 1, 0
    chunk = cdiv(cdiv(keys, wanted), block_n) * block_n
    return cdiv(keys, chunk), chunk


def _combine(geometry: Geometry, out: Layout, rows: int, splits: int) -> KernelCall:
    block_s = 1 << (splits - 1).bit_length()
    return KernelCall(
        combine_splits,
        rows,
        {
            "partial_ptr": Pointer(torch.float32),
            "partial_lse_ptr": Pointer(torch.float32),
            "out_ptr": Pointer(geometry.dtype),
            "lse_ptr": Pointer(torch.float32),
            "sink_ptr": _sink(geometry),
            **out.named("out"),
            "heads": geometry.heads,
            "total_q": geometry.q.shape[2],
            "splits": splits,
            "partial_stride": rows,
        },
        {
            "HEAD_DIM": geometry.head_dim,
            "BLOCK_D": pad_width(geometry.head_dim),
            "BLOCK_S": block_s,
            "SINK": geometry.sink,
        },
        {"num_warps": 4, "num_stages": 1},
    )


def _sink(geometry: Geometry) -> Pointer | None:
    return Pointer(torch.float32, False) if geometry.sink else None


class _ForwardPlan(NamedTuple):
    """Hold the prepared launches; `attend` is None if there is nothing to compute."""

    lse: Tensor
    """One element, expanded: torch.empty_like of it takes half the time of torch.empty."""
    attend: Callable[..., None] | None
    combine: Callable[..., None] | None
    splits: int

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, *more: Tensor, sink: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Allocate the results and launch the kernels; `more` are the tensors of `extras`."""
        last = () if sink is None else (sink,)
        out, lse = torch.empty_like(q), torch.empty_like(self.lse)
        if self.attend is None:
            return out, lse
        if self.combine is None:
            self.attend(q, k, v, out, lse, *last, *more)
            return out, lse
        partial = torch.empty(
            (self.splits, lse.numel(), q.shape[3]), dtype=torch.float32, device=q.device
        )
        partial_lse = torch.empty((self.splits, lse.numel()), dtype=torch.float32, device=q.device)
        self.attend(q, k, v, partial, partial_lse, *more)
        self.combine(partial, partial_lse, out, lse, *last)
        return out, lse


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...], blocks: Blocks, tile: TileConfig | None = None) -> _ForwardPlan:
    geometry = geometry_of(key)
    lse = torch.empty(1, dtype=torch.float32, device=geometry.device).expand(geometry.q.shape[:3])
    if 0 in (*geometry.q.shape, geometry.sequences, geometry.longest[0]):
        return _ForwardPlan(lse, None, None, 1)
    calls = forward_calls(geometry, target_of(geometry.device), blocks, tile)
    combine = None if calls.combine is None else prepare(calls.combine, geometry.device)
    return _ForwardPlan(lse, prepare(calls.attend, geometry.device), combine, calls.splits)


def extras(bias: Tensor | None, ragged: Ragged | None, slopes: Tensor | None) -> tuple[Tensor, ...]:
    """Return the optional tensors in the kernels' order."""
    found: tuple[Tensor, ...] = () if slopes is None else (slopes,)
    if bias is not None:
        return (bias.view(torch.uint8) if bias.dtype == torch.bool else bias, *found)
    return found if ragged is None else (ragged.starts_q, ragged.starts_k, *found)
