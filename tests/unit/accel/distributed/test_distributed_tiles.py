"""Tiles cover exactly the visible pairs, each once, for any layout, window and documents."""

from __future__ import annotations

import random

import pytest
import torch

from gpudeck.accel.distributed.sharding import (
    LAYOUTS,
    Spans,
    balanced_spans,
    positions,
    shard,
    size_of,
    spans_of,
    unshard,
)
from gpudeck.accel.distributed.tiles import Sight, Tile, tiles_of, unseen


def visible(tokens: int, sight: Sight) -> torch.Tensor:
    at = torch.arange(tokens)
    distance = at[None, :] - at[:, None]
    seen = torch.ones(tokens, tokens, dtype=torch.bool)
    if sight.left is not None:
        seen &= distance >= -sight.left
    if sight.right is not None:
        seen &= distance <= sight.right
    if sight.documents:
        ids = torch.repeat_interleave(
            torch.arange(len(sight.documents)), torch.tensor(sight.documents)
        )
        seen &= ids[None] == ids[:, None]
    return seen


def drawn(tile: Tile, queries: int, keys: int) -> torch.Tensor:
    """Return how often local attention over a tile sees each pair."""
    seen = torch.zeros(queries, keys, dtype=torch.int)
    row, key = tile.q.start, tile.k.start
    whole = (tile.q.stop - row, tile.k.stop - key)
    for m, n in tile.lengths or (whole,):
        assert tile.left is None or tile.left >= 0
        assert tile.right is None or tile.right >= 0
        place = torch.arange(m)[:, None] + n - m
        at = torch.arange(n)[None]
        part = torch.ones(m, n, dtype=torch.bool)
        if tile.left is not None:
            part &= at >= place - tile.left
        if tile.right is not None:
            part &= at <= place + tile.right
        seen[row : row + m, key : key + n] += part
        row, key = row + m, key + n
    assert (row, key) == (tile.q.stop, tile.k.stop)
    return seen


def sights(tokens: int, draw: random.Random) -> list[Sight]:
    cuts = sorted(draw.randrange(tokens + 1) for _ in range(4))
    documents = tuple(b - a for a, b in zip([0, *cuts], [*cuts, tokens], strict=True))
    sides = [
        (None, 0),
        (None, None),
        (draw.randrange(9), 0),
        (draw.randrange(9), draw.randrange(9)),
    ]
    return [Sight(*pair, docs) for pair in [*sides, (None, 3)] for docs in ((), documents)]


def check(layout: tuple[Spans, ...], tokens: int, sight: Sight) -> None:
    seen = visible(tokens, sight)
    for queries in layout:
        rows = positions(queries)
        for keys in layout:
            tiles = tiles_of(queries, keys, sight)
            shape = (size_of(queries), size_of(keys))
            total = sum((drawn(t, *shape) for t in tiles), torch.zeros(shape, dtype=torch.int))
            assert torch.equal(total, seen[rows][:, positions(keys)].int())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("tokens", "ranks"), [(24, 2), (37, 3), (5, 4), (50, 4)])
def test_tiles_cover_every_visible_pair_once(layout, tokens, ranks):
    for sight in sights(tokens, random.Random(tokens)):
        check(spans_of(layout, tokens, ranks), tokens, sight)


def test_tiles_over_all_keys_have_each_query_once():
    tokens = 61
    for sight in sights(tokens, random.Random(3)):
        for queries in spans_of("zigzag", tokens, 3):
            tiles = tiles_of(queries, spans_of("contiguous", tokens, 1)[0], sight, whole_keys=True)
            shape = (size_of(queries), tokens)
            total = sum((drawn(t, *shape) for t in tiles), torch.zeros(shape, dtype=torch.int))
            assert torch.equal(total, visible(tokens, sight)[positions(queries)].int())
            rows = [r for t in tiles for r in range(t.q.start, t.q.stop)]
            rows += [r for gap in unseen(tiles, shape[0]) for r in range(gap.start, gap.stop)]
            assert sorted(rows) == list(range(shape[0]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("tokens", "ranks"), [(12, 2), (37, 3), (1, 4), (0, 2)])
def test_shards_are_put_together_again(layout, tokens, ranks):
    x = torch.randn(2, tokens, 3)
    layout = spans_of(layout, tokens, ranks)
    assert torch.equal(unshard([shard(x, mine) for mine in layout], layout), x)
    at = [positions(mine) for mine in layout]
    assert sorted(torch.cat(at).tolist()) == list(range(tokens))


def test_zigzag_gives_all_ranks_as_many_causal_pairs():
    pairs = [
        int(sum(p + 1 for p in positions(mine).tolist())) for mine in spans_of("zigzag", 8192, 4)
    ]
    assert max(pairs) - min(pairs) < 0.001 * max(pairs)


def test_balanced_documents_give_about_equal_work():
    documents = [32768, 100, 9000, 1, 4000, 12000, 7667]
    layout = balanced_spans(documents, 4)
    assert sorted(p for m in layout for s in m for p in range(s.start, s.stop)) == list(
        range(sum(documents))
    )
    start = [n for length in documents for n in range(length)]
    work = [sum(start[p] + 1 for s in m for p in range(s.start, s.stop)) for m in layout]
    assert max(work) < 1.06 * sum(work) / 4


def test_shards_of_balanced_documents_are_put_together_again():
    documents = [700, 60, 1, 300]
    layout = balanced_spans(documents, 2, unit=16)
    assert max(map(len, layout)) > 2
    x = torch.randn(1, sum(documents), 3)
    assert torch.equal(unshard([shard(x, mine) for mine in layout], layout), x)
