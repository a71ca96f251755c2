"""Find which queries of one shard see which keys of another, in the terms of local attention.

Local attention aligns queries and keys bottom-right: with m queries and n keys, query i stands at
p = i + n - m and sees the keys from p - left to p + right. The visible pairs of two spans with the
same step are a band, low <= j - i <= high in their indices. Without the queries that see nothing
and the keys that nobody sees, each band has sides of 0 or more in these terms.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from gpudeck.accel.distributed.sharding import Span, Spans


class Sight(NamedTuple):
    """Say which keys a query sees by their global positions, as `Problem` does."""

    left: int | None = None
    right: int | None = None
    documents: tuple[int, ...] = ()
    """The lengths of documents that do not see each other; empty for one whole sequence."""


class Tile(NamedTuple):
    """One call of local attention: rows of queries, rows of keys, and the window between them."""

    q: slice
    k: slice
    left: int | None
    right: int | None
    lengths: tuple[tuple[int, int], ...] = ()
    """The numbers of queries and keys of each document, if there are several."""


def tiles_of(queries: Spans, keys: Spans, sight: Sight, *, whole_keys: bool = False) -> list[Tile]:
    """Return the calls that cover every visible pair once.

    Args:
        queries: the positions of the rows of q, all spans of one step.
        keys: the positions of the rows of k, likewise.
        sight: which keys are visible.
        whole_keys: keep the keys from the first on in each span or document, so that a kernel that
            counts its blocks of keys from there sums in the same order as it would over all keys.
    """
    tiles: list[Tile] = []
    starts = list(accumulate(sight.documents, initial=0))
    row = 0
    for q in queries:
        key = 0
        for k in keys:
            found = list(_of_pair(q, row, k, key, sight, starts, whole_keys))
            tiles += _fused(found) if sight.documents else found
            key += k.size
        row += q.size
    return tiles


def unseen(tiles: list[Tile], rows: int) -> list[slice]:
    """Return the rows of queries that are in no tile."""
    gaps, end = [], 0
    for tile in sorted(tiles, key=lambda tile: tile.q.start):
        if tile.q.start > end:
            gaps.append(slice(end, tile.q.start))
        end = max(end, tile.q.stop)
    return [*gaps, slice(end, rows)] if end < rows else gaps


def _of_pair(
    q: Span, row: int, k: Span, key: int, sight: Sight, starts: list[int], whole_keys: bool
) -> Iterator[Tile]:
    if not sight.documents:
        tile = _band(q, row, k, key, sight, whole_keys)
        if tile is not None:
            yield tile
        return
    for d in range(max(0, bisect_right(starts, q.start) - 1), len(starts) - 1):
        if starts[d] >= q.stop:
            return
        skipped_q, mine = q.within(starts[d], starts[d + 1])
        skipped_k, theirs = k.within(starts[d], starts[d + 1])
        tile = _band(mine, row + skipped_q, theirs, key + skipped_k, sight, whole_keys)
        if tile is not None:
            yield tile


def _band(q: Span, row: int, k: Span, key: int, sight: Sight, whole_keys: bool) -> Tile | None:
    """Return the tile of two spans whose first rows are `row` and `key`; None if nothing is
    visible."""
    m, n, step = q.size, k.size, q.step
    high = None if sight.right is None else (q.start - k.start + sight.right) // step
    low = None if sight.left is None else -((sight.left - q.start + k.start) // step)
    if high is not None and low is not None and low > high:
        return None
    first = 0 if high is None else max(0, -high)
    last = m if low is None else min(m, n - low)
    begin = 0 if low is None or whole_keys else max(0, first + low)
    end = n if high is None else min(n, last + high)
    if first >= last or begin >= end:
        return None
    spare = (end - begin) - (last - first)
    shift = first - begin
    return Tile(
        slice(row + first, row + last),
        slice(key + begin, key + end),
        None if low is None else spare - (low + shift),
        None if high is None else high + shift - spare,
    )


def _fused(tiles: list[Tile]) -> list[Tile]:
    """Join tiles of neighbouring documents with the same window into ragged ones."""
    fused: list[Tile] = []
    for tile in tiles:
        size = (tile.q.stop - tile.q.start, tile.k.stop - tile.k.start)
        last = fused[-1] if fused else None
        if (
            last is not None
            and (last.q.stop, last.k.stop) == (tile.q.start, tile.k.start)
            and last[2:4] == tile[2:4]
        ):
            rows = slice(last.q.start, tile.q.stop), slice(last.k.start, tile.k.stop)
            fused[-1] = Tile(*rows, tile.left, tile.right, (*last.lengths, size))
        else:
            fused.append(tile._replace(lengths=(size,)))
    return [tile._replace(lengths=tile.lengths[1:] and tile.lengths) for tile in fused]
