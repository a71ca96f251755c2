"""Divide a sequence among ranks, and put it together again.

These are plain functions for data loaders as well: tokens, labels, positions for rotary embeddings
and documents are sharded by the same rule as keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor

LAYOUTS = ("zigzag", "striped", "contiguous")


class Span(NamedTuple):
    """Hold the global positions `start`, `start + step`, … that are less than `stop`."""

    start: int
    stop: int
    step: int = 1

    @property
    def size(self) -> int:
        """Return the number of positions."""
        return max(0, -((self.start - self.stop) // self.step))

    def within(self, start: int, stop: int) -> tuple[int, Span]:
        """Return the part from position `start` to `stop`, and the index of its first position."""
        skipped = max(0, -((self.start - start) // self.step))
        return skipped, Span(self.start + skipped * self.step, min(self.stop, stop), self.step)


Spans = tuple[Span, ...]
"""The positions of a rank's tokens, in the order in which they lie in its shard."""


def spans_of(layout: str, tokens: int, ranks: int) -> tuple[Spans, ...]:
    """Return the positions that each rank holds.

    `contiguous` gives each rank one piece. `zigzag` cuts the sequence into 2 x ranks pieces and
    gives rank r the pieces r and 2 x ranks - 1 - r, so that all ranks have equally many causal
    pairs (the rule of Llama 3, arXiv 2407.21783).
    `striped` gives rank r the positions r, r + ranks, … (arXiv 2311.09431). No length has to be
    divisible; shards may be empty.

    Raises:
        ValueError: if the layout is unknown or a number is out of range.
    """
    if ranks < 1 or tokens < 0:
        raise ValueError(f"a sequence is divided among 1 or more ranks; got {tokens} and {ranks}")
    if layout == "striped":
        return tuple((Span(rank, max(rank, tokens), ranks),) for rank in range(ranks))
    if layout == "contiguous":
        return tuple((piece,) for piece in _pieces(tokens, ranks))
    if layout == "zigzag":
        pieces = _pieces(tokens, 2 * ranks)
        return tuple(_joined([pieces[rank], pieces[-1 - rank]]) for rank in range(ranks))
    raise ValueError(f"layout is one of {', '.join(LAYOUTS)}; got {layout!r}")


def balanced_spans(
    documents: Sequence[int], ranks: int, *, causal: bool = True, blocks: int = 8, unit: int = 128
) -> tuple[Spans, ...]:
    """Return positions that give each rank about the same work for these documents.

    The sequence is cut into `blocks` x ranks pieces of whole `unit`s. They are given out in the
    order of their work, the largest first, each to the rank with the least work so far; a rank gets
    no more than `blocks` pieces, so that shards have about one size.

    Args:
        documents: the lengths of all documents, end to end.
        ranks: the number of ranks.
        causal: whether a token sees only the tokens before it in its document.
        blocks: the pieces of each rank.
        unit: the tokens that are never separated.
    """
    tokens = sum(documents)
    units = _pieces(-(-tokens // unit), blocks * ranks)
    pieces = [Span(min(p.start * unit, tokens), min(p.stop * unit, tokens)) for p in units]
    work = [_pairs(piece, documents, causal) for piece in pieces]
    given: list[list[Span]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for at in sorted(range(len(pieces)), key=lambda at: -work[at]):
        rank = min((r for r in range(ranks) if len(given[r]) < blocks), key=loads.__getitem__)
        given[rank].append(pieces[at])
        loads[rank] += work[at]
    return tuple(_joined(sorted(mine)) for mine in given)


def _pairs(piece: Span, documents: Sequence[int], causal: bool) -> int:
    """Count the pairs of queries in a piece with the keys that they see."""
    pairs = 0
    for start, stop in pairwise(accumulate(documents, initial=0)):
        first, last = max(start, piece.start), min(stop, piece.stop)
        if first < last:
            seen = (first + last + 1 - 2 * start) / 2 if causal else stop - start
            pairs += int((last - first) * seen)
    return pairs


def _joined(spans: list[Span]) -> Spans:
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].stop == span.start:
            joined[-1] = Span(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return tuple(joined)


def _pieces(tokens: int, count: int) -> list[Span]:
    """Cut a sequence into pieces whose lengths differ by at most 1."""
    return [Span(i * tokens // count, (i + 1) * tokens // count) for i in range(count)]


def size_of(spans: Spans) -> int:
    """Return the number of tokens of a shard."""
    return sum(span.size for span in spans)


def positions(spans: Spans, device: torch.device | str = "cpu") -> Tensor:
    """Return the global positions of a shard's tokens, int64 [tokens], as rotary embeddings
    need them."""
    parts = [torch.arange(span.start, span.stop, span.step, device=device) for span in spans]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=device)


def shard(x: Tensor, spans: Spans, dim: int = 1) -> Tensor:
    """Return a rank's part of a tensor whose dimension `dim` is the whole sequence."""
    return torch.cat([_part(x, span, dim) for span in spans or (Span(0, 0),)], dim)


def unshard(shards: Sequence[Tensor], spans: Sequence[Spans], dim: int = 1) -> Tensor:
    """Return the whole sequence from the shards of all ranks.

    Raises:
        ValueError: if a shard has not as many tokens as its spans.
    """
    sizes = [size_of(mine) for mine in spans]
    given = [x.shape[dim] for x in shards]
    if sizes != given:
        raise ValueError(f"the shards must have {sizes} tokens by this layout; got {given}")
    shape = list(shards[0].shape)
    shape[dim] = sum(sizes)
    whole = shards[0].new_empty(shape)
    for x, mine in zip(shards, spans, strict=True):
        begin = 0
        for span in mine:
            _part(whole, span, dim).copy_(x.narrow(dim, begin, span.size))
            begin += span.size
    return whole


def _part(x: Tensor, span: Span, dim: int) -> Tensor:
    dim %= x.dim()
    return x[(slice(None),) * dim + (slice(span.start, span.stop, span.step),)]
