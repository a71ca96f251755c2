"""Gather the keys and values that a rank's queries see, piece by piece of their heads.

Queries stay where they are, and each row of the output is computed by one call over its keys in the
order of their positions, so that the forward pass is bit-equal to that of one device with the same
kernel. Tiles whose keys are all on this rank are computed first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import Exchange, Own, Receive, Round, Send, bytes_of
from gpudeck.accel.distributed.local import Answer, attend, blind, differentiate
from gpudeck.accel.distributed.problem import Problem, heads_of, rows_of
from gpudeck.accel.distributed.sharding import Span
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.strategies.lanes import Lanes
from gpudeck.accel.distributed.strategies.pieces import pieces_of, rounds_ahead
from gpudeck.accel.distributed.tiles import Tile, unseen

BLOCK = 256
"""Keys are moved in multiples of the largest block that a kernel loads, so that it never reads what
was not written."""


def refusal(problem: Problem, heads: int, kv_heads: int) -> str | None:
    """Return why keys cannot be gathered, or None."""
    if not problem.consecutive:
        return "computes over keys in their order, which striped queries cannot do in one call"
    return None


class Work(NamedTuple):
    """The tiles of one rank."""

    early: list[tuple[Tile, Tile]]
    """Tiles whose keys are all here: over all keys, and over those of the shard."""
    late: list[Tile]
    needs: list[Span]
    """The keys that late tiles need, from whatever rank."""


def forward(problem: Problem, x: Shard, exchange: Exchange) -> Answer:
    """Return the answer of this rank's queries."""
    answer = x.new_answer()
    work = _work(problem, problem.me)
    pieces = pieces_of(x.k.shape[1])
    rounds = [_round(problem, x, piece) for piece in pieces]
    exchange.reserve(max(round_.bytes_of_any for round_ in rounds))
    lanes = Lanes(x.q.device)
    landings = rounds_ahead(exchange, rounds)
    landing = next(landings)
    with lanes.turn():
        _attend_early(problem, x, work, answer)
    for number, piece in enumerate(pieces):
        with lanes.turn():
            landing = landing if number == 0 else next(landings)
            landing.arrive()
            heads = heads_of(piece, x.group)
            k, v = landing.buffers
            _attend_late(problem, x.of_heads(piece, heads), k, v, work, _of_heads(answer, heads))
            landing.release()
    lanes.join()
    exchange.end()
    return answer


def backward(problem: Problem, x: Shard, up: Upstream, exchange: Exchange) -> Gradients:
    """Return the gradients: those of keys are summed in float32 where the keys belong, in the order
    of the ranks."""
    work = _work(problem, problem.me)
    tiles = [tile for tile, _ in work.early] + work.late
    dq = torch.zeros_like(x.q, memory_format=torch.contiguous_format)
    dk, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x.k, x.v))
    pieces = pieces_of(x.k.shape[1])
    rounds = [_round(problem, x, piece, everything=True) for piece in pieces]
    widest = max(piece.stop - piece.start for piece in pieces)
    back = [(x.k.shape[0], widest, max(problem.sizes), t.shape[3]) for t in (x.k, x.v)]
    returned_bytes = sum(bytes_of(shape, torch.float32) for shape in back) * (problem.size - 1)
    exchange.reserve(max(returned_bytes, *(round_.bytes_of_any for round_ in rounds)))
    landings = rounds_ahead(exchange, rounds)
    for piece, landing in zip(pieces, landings, strict=True):
        landing.arrive()
        heads = heads_of(piece, x.group)
        k, v = landing.buffers
        sums = [torch.zeros_like(t, dtype=torch.float32) for t in (k, v)]
        for tile in tiles:
            of_tile = _differentiate(problem, x, up, heads, k, v, tile)
            dq[:, heads, tile.q] = of_tile.q
            sums[0][:, :, tile.k] += of_tile.k
            sums[1][:, :, tile.k] += of_tile.v
        landing.release()
        returned = exchange.begin(_return(problem, x, sums))
        returned.arrive()
        _add_up(problem, returned.buffers, sums, (dk[:, piece], dv[:, piece]))
        returned.release()
    exchange.end()
    return Gradients(dq, dk, dv)


def _differentiate(
    problem: Problem, x: Shard, up: Upstream, heads: slice, k: Tensor, v: Tensor, tile: Tile
) -> Gradients:
    dlse = None if up.dlse is None else up.dlse[:, heads]
    found = differentiate(
        up.dout[:, heads], x.q[:, heads], k, v, _of_heads(up.answer, heads), dlse, tile,
        problem.rules,
    )  # fmt: skip
    return Gradients(*found[:3])


def _of_heads(answer: Answer, heads: slice) -> Answer:
    return Answer(answer.out[:, heads], answer.lse[:, heads])


def _attend_early(problem: Problem, x: Shard, work: Work, answer: Answer) -> None:
    for rows in unseen([t for t, _ in work.early] + work.late, x.q.shape[2]):
        blind(answer, rows, x.sink)
    for _, tile in work.early:
        _attend(problem, x, x.k, x.v, tile, answer)


def _attend_late(
    problem: Problem, x: Shard, k: Tensor, v: Tensor, work: Work, answer: Answer
) -> None:
    for tile in work.late:
        _attend(problem, x, k, v, tile, answer)


def _attend(problem: Problem, x: Shard, k: Tensor, v: Tensor, tile: Tile, answer: Answer) -> None:
    rows = tile.q
    part = tile._replace(q=slice(0, rows.stop - rows.start))
    room = Answer(answer.out[:, :, rows], answer.lse[:, :, rows])
    attend(x.q[:, :, rows], k, v, [part], problem.rules, room, x.sink)


@lru_cache(maxsize=256)
def _work(problem: Problem, member: int) -> Work:
    """Return the work of a member; every rank knows that of all."""
    early, late = [], []
    for tile in problem.over_all(problem.spans[member]):
        mine = _in_shard(problem, member, tile)
        if mine is None:
            late.append(tile)
        else:
            early.append((tile, mine))
    return Work(early, late, _needs(late))


def _in_shard(problem: Problem, member: int, tile: Tile) -> Tile | None:
    """Return the tile over the keys of the member's own shard; None if some are elsewhere."""
    first = _first_key(tile)
    if first != tile.k.start:
        return None
    for span, rows in rows_of(problem.spans[member]):
        if span.start <= tile.k.start and tile.k.stop <= span.stop:
            shift = rows.start - span.start
            return tile._replace(k=slice(tile.k.start + shift, tile.k.stop + shift))
    return None


def _first_key(tile: Tile) -> int:
    """Return the first key that a kernel loads for a tile."""
    if tile.left is None or tile.lengths:
        return tile.k.start
    spare = (tile.k.stop - tile.k.start) - (tile.q.stop - tile.q.start)
    return tile.k.start + max(0, spare - tile.left) // BLOCK * BLOCK


def _needs(tiles: list[Tile]) -> list[Span]:
    """Return the keys of tiles as spans that do not overlap."""
    needs: list[Span] = []
    for first, stop in sorted((_first_key(tile), tile.k.stop) for tile in tiles):
        if needs and first <= needs[-1].stop:
            needs[-1] = Span(needs[-1].start, max(needs[-1].stop, stop))
        else:
            needs.append(Span(first, stop))
    return needs


def _moved(
    problem: Problem, source: int, target: int, everything: bool
) -> Iterator[tuple[int, slice]]:
    """Yield the position and the rows in the source's shard of what the target needs of it."""
    needs = [Span(0, problem.end)] if everything else _work(problem, target).needs
    for span, rows in rows_of(problem.spans[source]):
        for need in needs:
            skipped, part = span.within(need.start, need.stop)
            if part.size:
                begin = rows.start + skipped
                yield part.start, slice(begin, begin + part.size)


def _round(problem: Problem, x: Shard, piece: slice, *, everything: bool = False) -> Round:
    """Return the round that brings a piece of the heads of keys and values to where they are
    needed."""
    both = x.k[:, piece], x.v[:, piece]
    shapes = [(t.shape[0], t.shape[1], problem.end, t.shape[3]) for t in both]
    size = sum(bytes_of(shape, t.dtype) for shape, t in zip(shapes, both, strict=True))
    landing = [(shape, t.dtype) for shape, t in zip(shapes, both, strict=True)]
    made = Round(landing, size)
    me = problem.me
    for other in problem.others:
        peer = problem.members[other]
        for position, rows in _moved(problem, me, other, everything):
            made.sends += [
                Send(peer, t[:, :, rows], i, position, there=landing) for i, t in enumerate(both)
            ]
        for position, rows in _moved(problem, other, me, everything):
            count = rows.stop - rows.start
            made.receives += [Receive(peer, i, position, count) for i in range(2)]
    for position, rows in _moved(problem, me, me, everything):
        made.own += [Own(t[:, :, rows], i, position) for i, t in enumerate(both)]
    return made


def _return(problem: Problem, x: Shard, sums: list[Tensor]) -> Round:
    """Return the round that brings partial gradients of keys to the ranks of the keys."""
    batch, heads = sums[0].shape[:2]

    others = sorted(problem.others)

    def landing(member: int) -> list[tuple[tuple[int, ...], torch.dtype]]:
        rows = problem.sizes[member]
        return [((batch, heads, rows, t.shape[3]), t.dtype) for t in sums] * len(others)

    size = max(sum(bytes_of(*x) for x in landing(m)) for m in range(problem.size))
    made = Round(landing(problem.me), size, fresh=True)
    for other in others:
        peer = problem.members[other]
        at = 2 * (problem.me - (problem.me > other))  # among the others of that rank
        for span, rows in rows_of(problem.spans[other]):
            made.sends += [
                Send(
                    peer, t[:, :, span.start : span.stop], at + i, rows.start, there=landing(other)
                )
                for i, t in enumerate(sums)
            ]
        at = 2 * (other - (other > problem.me))
        for _, rows in rows_of(problem.mine):
            count = rows.stop - rows.start
            made.receives += [Receive(peer, at + i, rows.start, count) for i in range(2)]
    return made


def _add_up(
    problem: Problem, received: list[Tensor], sums: list[Tensor], targets: tuple[Tensor, Tensor]
) -> None:
    for i, target in enumerate(targets):
        own = [sums[i][:, :, span.start : span.stop] for span, _ in rows_of(problem.mine)]
        total = torch.cat([own[0][:, :, :0], *own], 2) if own else target.float()
        parts = received[i::2]
        parts.insert(problem.me, total)
        target.copy_(sum(parts[1:], start=parts[0]))
