"""Turn a block mask of FlexAttention into the lists that kernels read.

A block mask says which blocks of queries and keys see each other wholly or in part, and has a
function for the pairs of the latter. The function is evaluated once, for these blocks only; kernels
then read a byte a pair. Its memory thus grows with the number of partial blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch.nn.attention.flex_attention import BlockMask

from gpudeck.accel.attention.blocks import FULL, PARTIAL, BlockLists
from gpudeck.accel.attention.mods import reads

_SIZES = (16, 32, 64, 128, 256, 512, 1024)
_PAIRS_AT_ONCE = 1 << 24
Mod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_KNOWN: WeakKeyDictionary[BlockMask, dict[tuple[int, ...], BlockLists]] = WeakKeyDictionary()


def lists_of(mask: BlockMask, sizes: tuple[int, int, int, int], device: torch.device) -> BlockLists:
    """Return the lists of a block mask for (batch, heads, queries, keys), made at its first use.

    Tensors that its function reads must not change afterwards.

    Raises:
        ValueError: if the mask does not fit the sizes or its blocks do not fit kernels.
    """
    known = _KNOWN.setdefault(mask, {})
    if sizes not in known:
        known[sizes] = _make(mask, sizes, device)
    return known[sizes]


def forget(mask: BlockMask) -> None:
    """Free the lists of a mask, which are made again if they are needed."""
    _KNOWN.pop(mask, None)


def _make(mask: BlockMask, sizes: tuple[int, int, int, int], device: torch.device) -> BlockLists:
    batch, heads, *lengths = sizes
    rows, cols = mask.BLOCK_SIZE
    if mask.kv_num_blocks.device != device:
        raise ValueError(f"block_mask must be on {device}; got {mask.kv_num_blocks.device}")
    if tuple(mask.seq_lengths) != (*lengths,):
        raise ValueError(
            f"block_mask is for {mask.seq_lengths[0]} queries and {mask.seq_lengths[1]} keys; got"
            f" {lengths[0]} and {lengths[1]}"
        )
    if rows not in _SIZES or cols not in _SIZES:
        raise ValueError(
            f"block_mask must have blocks of {', '.join(map(str, _SIZES))} queries and keys; got"
            f" {rows} x {cols}"
        )
    if any(n not in (1, all_) for n, all_ in zip(mask.shape[:2], (batch, heads), strict=True)):
        raise ValueError(
            f"block_mask must be for 1 or {batch} batches and 1 or {heads} heads; got"
            f" {mask.shape[0]} and {mask.shape[1]}"
        )
    kinds = _kinds(mask, -(-lengths[0] // rows), -(-lengths[1] // cols))
    # A mask made for all batches whose function tells them apart has bits of its own for each.
    by_batch, by_head = (name in reads(mask.mask_mod, device) for name in ("b", "h"))
    kinds = kinds.expand(
        batch if by_batch else kinds.shape[0], heads if by_head else kinds.shape[1], -1, -1
    ).contiguous()
    bits = _bits(mask.mask_mod, kinds, (rows, cols), (lengths[0], lengths[1]))
    return BlockLists.of(kinds, bits, (lengths[0], lengths[1]))


def _kinds(mask: BlockMask, of_queries: int, of_keys: int) -> Tensor:
    kinds = torch.zeros(
        (*mask.kv_num_blocks.shape[:2], of_queries, of_keys + 1),
        dtype=torch.int8,
        device=mask.kv_num_blocks.device,
    )
    for kind, counts, lists in (
        (PARTIAL, mask.kv_num_blocks, mask.kv_indices),
        (FULL, mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        if counts is None or lists is None:
            continue
        given = torch.arange(lists.shape[3], device=lists.device) < counts[..., None]
        # What is beyond a list's count goes to a column that is cut off.
        kinds.scatter_(3, torch.where(given, lists, of_keys).long(), kind)
    return kinds[..., :of_keys]


def _bits(mod: Mod, kinds: Tensor, block: tuple[int, int], lengths: tuple[int, int]) -> Tensor:
    """Evaluate the function of a mask at all pairs of the partial blocks: uint8 [n, rows, cols]."""
    b, h, *places = (kinds == PARTIAL).nonzero().unbind(1)
    index = partial(torch.arange, device=kinds.device)
    q, k = (place[:, None] * size + index(size) for place, size in zip(places, block, strict=True))
    beyond = (q >= lengths[0])[:, :, None] | (k >= lengths[1])[:, None]
    inside = [t.clamp(max=n - 1).int() for t, n in zip((q, k), lengths, strict=True)]
    run: Any = mod
    for dims in ((None, None, None, 0), (None, None, 0, None), (0, 0, 0, 0)):
        run = torch.vmap(run, in_dims=dims)
    bits = torch.empty((len(b), *block), dtype=torch.uint8, device=kinds.device)
    step = max(1, _PAIRS_AT_ONCE // (block[0] * block[1]))
    with TransformGetItemToIndex():
        for i in range(0, len(b), step):
            part = slice(i, i + step)
            bits[part] = run(b[part].int(), h[part].int(), *(t[part] for t in inside))
    return bits.logical_or_(beyond)
