"""Recognise block masks that are causal, windows or documents, for which there are faster kernels.

The pairs themselves are compared, each of them, so that nothing is guessed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.blocks import FULL, PARTIAL, BlockLists
from gpudeck.accel.attention.ragged import Ragged


class Visible(NamedTuple):
    """Describe which keys a query sees, as `accel.attention.attention` takes it."""

    window: tuple[int | None, int | None]
    documents: Ragged | None = None


def recognise_mask(lists: BlockLists) -> Visible | None:
    """Return the rule that a mask for all batches and heads follows, or None if there is none."""
    queries, keys = lists.lengths
    if lists.geometry.shape[:2] != (1, 1) or 0 in lists.lengths:
        return None
    first, end, count = _spans(lists)
    place = torch.arange(queries, device=first.device)
    if not bool((count == end - first).all()):
        return None
    if (window := _window(first, end, place, keys)) is not None:
        return window
    return _documents(first, end, place) if queries == keys and bool((count > 0).all()) else None


def _spans(lists: BlockLists) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first visible key of each query, the key after the last one, and their number.

    A query that sees nothing has 0 for all.
    """
    rows, cols, (_, _, of_queries, _) = lists.geometry
    queries, keys = lists.lengths
    kinds, device = lists.kinds[0, 0], lists.kinds.device
    first = torch.full((of_queries, rows), keys, device=device)
    end, count = torch.zeros_like(first), torch.zeros_like(first)

    def add(at: Tensor, begins: Tensor, ends: Tensor, counts: Tensor) -> None:
        index = at[:, None].expand(-1, rows)
        first.scatter_reduce_(0, index, begins, "amin")
        end.scatter_reduce_(0, index, ends, "amax")
        count.scatter_add_(0, index, counts)

    q, k = (kinds == FULL).nonzero().unbind(1)
    wide = [x[:, None].expand(-1, rows) for x in (k * cols, ((k + 1) * cols).clamp(max=keys))]
    add(q, wide[0], wide[1], wide[1] - wide[0])
    q, k = (kinds == PARTIAL).nonzero().unbind(1)
    seen = (
        lists.bits.bool() & (k[:, None] * cols + torch.arange(cols, device=device) < keys)[:, None]
    )
    any_ = seen.any(2)
    begins = k[:, None] * cols + seen.byte().argmax(2)
    ends = (k[:, None] + 1) * cols - seen.flip(2).byte().argmax(2)
    add(q, torch.where(any_, begins, keys), torch.where(any_, ends, 0), seen.sum(2))
    blind = count == 0
    found = first.masked_fill(blind, 0), end.masked_fill(blind, 0), count
    return tuple(x.flatten()[:queries] for x in found)  # type: ignore[return-value]


def _window(first: Tensor, end: Tensor, place: Tensor, keys: int) -> Visible | None:
    """Return the window whose spans these are, aligned bottom-right, or None."""
    position = place + keys - len(place)
    # Where a side cuts no row off, the furthest distance stands for no limit.
    left = int((position - first).max()) if bool((first > 0).any()) else None
    right = int((end - 1 - position).max()) if bool((end < keys).any()) else None
    if any(side is not None and side < 0 for side in (left, right)):
        return None
    low = torch.zeros_like(first) if left is None else (position - left).clamp(0, keys)
    high = torch.full_like(end, keys) if right is None else (position + right + 1).clamp(0, keys)
    blind = high <= low
    same = (first == low.masked_fill(blind, 0)) & (end == high.masked_fill(blind, 0))
    return Visible((left, right)) if bool(same.all()) else None


def _documents(first: Tensor, end: Tensor, place: Tensor) -> Visible | None:
    """Return the documents, wholly or causally visible, whose spans these are, or None."""
    starts = torch.cat([torch.ones_like(first[:1], dtype=torch.bool), first[1:] != first[:-1]])
    begins = starts.nonzero().squeeze(1)
    number = starts.cumsum(0) - 1
    edges = torch.cat([begins, begins.new_tensor([len(place)])])
    if not bool((first == begins[number]).all()):
        return None
    causal = bool((end == place + 1).all())
    if not causal and not bool((end == edges[number + 1]).all()):
        return None
    lengths = edges.diff().tolist()
    return Visible((None, 0 if causal else None), Ragged.of(lengths, device=first.device))
