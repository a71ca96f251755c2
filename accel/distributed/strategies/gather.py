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

from gpudeck.accel.distributed.exchange import (
    Exchange,
    Part,
    Place,
    Receive,
    Round,
    Send,
    Shape,
    bytes_of,
)
from gpudeck.accel.distributed.local import Answer, attend, blind, differentiate
from gpudeck.accel.distributed.problem import Problem, heads_of, rows_of
from gpudeck.accel.distributed.sharding import Span
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.strategies.lanes import Lanes
from gpudeck.accel.distributed.strategies.pieces import pieces_of, rounds_ahead
from gpudeck.accel.distributed.tiles import Tile, unseen
from gpudeck.language.text import Text, phrase

BLOCK = 256
"""Keys are moved in multiples of the largest block that a kernel loads, so that it never reads what
was not written."""
LAST = 0.5
"""The share of heads whose early tiles are computed last, in a batch of one: in larger batches,
some of the heads do not lie together."""


def refusal(problem: Problem, heads: int, kv_heads: int) -> Text | None:
    """Return why keys cannot be gathered, or None."""
    if not problem.consecutive:
        return phrase(
            "computes over keys in their order, which striped queries cannot do in one call"
        )
    return None


class Work(NamedTuple):
    """The tiles of one rank, each over queries from row 0 on, and the rows where they lie."""

    early: list[tuple[slice, Tile]]
    """Tiles whose keys are all here, over those of the shard."""
    late: list[tuple[slice, Tile]]
    """Tiles over all keys."""
    all: list[Tile]
    """All tiles over all keys, with the rows of the shard."""
    blind: list[slice]
    """Rows that see nothing."""
    needs: list[Span]
    """The keys that late tiles need, from whatever rank."""


class Plan(NamedTuple):
    """What is decided once for a problem and sizes."""

    work: Work
    first: int
    """The key heads whose early tiles come before all others."""
    pieces: list[slice]
    rounds: list[Round]
    size: int
    """The bytes of the largest round that brings keys."""
    back: int
    """The same for partial gradients."""


def forward(problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
    """Write the answer of this rank's queries.

    A part of the early tiles hides the first journey. The others come last: their queries see few
    keys, so that they fill the multiprocessors that the last long rows leave idle.
    """
    plan = _plan(problem, tuple(x.k.shape), x.v.shape[3], x.k.dtype, False)
    exchange.reserve(plan.size)
    work, rules = plan.work, problem.rules
    rooms = {rows.start: _room(x, answer, rows) for rows, _ in (*work.early, *work.late)}
    landings = rounds_ahead(exchange, plan.rounds, [x.k, x.v])
    landing = next(landings)
    lanes = Lanes(x.q.device, len(plan.pieces) + bool(work.early))

    def attend_early(piece: slice) -> None:
        if not work.early or piece.start == piece.stop:
            return
        with lanes.turn():
            part = x.of_heads(piece, heads_of(piece, x.group))
            for rows, tile in work.early:
                room = _of_heads(rooms[rows.start], heads_of(piece, x.group))
                attend(part.q[:, :, rows], part.k, part.v, tile, rules, room, part.sink)

    attend_early(slice(0, plan.first))
    for number, piece in enumerate(plan.pieces):
        with lanes.turn():
            landing = landing if number == 0 else next(landings)
            landing.arrive()
            heads = heads_of(piece, x.group)
            q, sink = x.q[:, heads], None if x.sink is None else x.sink[heads]
            k, v = landing.buffers
            for rows, tile in work.late:
                room = _of_heads(rooms[rows.start], heads)
                attend(q[:, :, rows], k, v, tile, rules, room, sink)
            landing.release()
    attend_early(slice(plan.first, x.k.shape[1]))
    lanes.join()
    exchange.end()
    _gather_rows(x, work, rooms, answer)


def _room(x: Shard, answer: Answer, rows: slice) -> Answer:
    """Return room for some rows; their logarithms lie together, as kernels write them."""
    lse = answer.lse
    if rows != slice(0, lse.shape[2]):
        shape = (*x.q.shape[:2], rows.stop - rows.start)
        lse = x.q.new_empty(shape, dtype=torch.float32)
    return Answer(answer.out[:, :, rows], lse)


def _gather_rows(x: Shard, work: Work, rooms: dict[int, Answer], answer: Answer) -> None:
    """Write the logarithms of all rows, and the rows that see nothing."""
    for rows in work.blind:
        rooms[rows.start] = _room(x, answer, rows)
        blind(rooms[rows.start], x.sink)
    if len(rooms) > 1:
        torch.cat([rooms[begin].lse for begin in sorted(rooms)], 2, out=answer.lse)


def backward(
    problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
) -> None:
    """Write the gradients: those of keys are summed in float32 where the keys belong, in the order
    of the ranks."""
    plan = _plan(problem, tuple(x.k.shape), x.v.shape[3], x.k.dtype, True)
    exchange.reserve(plan.size, plan.back)
    for rows in plan.work.blind:
        grads.q[:, :, rows] = 0
    landings = rounds_ahead(exchange, plan.rounds, [x.k, x.v])
    for piece in plan.pieces:
        landing = next(landings)
        landing.arrive()
        heads = heads_of(piece, x.group)
        sums = [torch.zeros_like(t, dtype=torch.float32) for t in landing.buffers]
        dlse = None if up.dlse is None else up.dlse[:, heads]
        k, v = landing.buffers
        for tile in plan.work.all:
            found = differentiate(
                up.dout[:, heads], x.q[:, heads], k, v, _of_heads(up.answer, heads), dlse, tile,
                problem.rules,
            )  # fmt: skip
            grads.q[:, heads, tile.q] = found.q
            sums[0][:, :, tile.k] += found.k
            sums[1][:, :, tile.k] += found.v
        landing.release()
        shapes = tuple(tuple(t.shape) for t in sums)
        returned = exchange.begin(_return(problem, shapes), sums)
        returned.arrive()
        _add_up(problem, returned.buffers, sums, (grads.k[:, piece], grads.v[:, piece]))
        returned.release()
    exchange.end()


def _of_heads(answer: Answer, heads: slice) -> Answer:
    return Answer(answer.out[:, heads], answer.lse[:, heads])


@lru_cache(maxsize=256)
def _plan(
    problem: Problem, keys: Shape, value_dim: int, dtype: torch.dtype, backward: bool
) -> Plan:
    """Return the plan for k of a shape, and v like it but for the head size."""
    batch, kv_heads, _, dim = keys
    whole = batch * kv_heads * problem.end * (dim + value_dim) * dtype.itemsize
    pieces = pieces_of(kv_heads, whole)
    dims = (dim, value_dim)
    rounds = [_round(problem, batch, piece, dims, dtype, backward) for piece in pieces]
    size = max(round_.size for round_ in rounds)
    widest = max(piece.stop - piece.start for piece in pieces)
    each = [((batch, widest, max(problem.sizes), d), torch.float32) for d in dims]
    back = (problem.size - 1) * bytes_of(*each)
    first = kv_heads - int(kv_heads * LAST) if batch == 1 else kv_heads
    return Plan(_work(problem, problem.me), first, pieces, rounds, size, back)


@lru_cache(maxsize=256)
def _work(problem: Problem, member: int) -> Work:
    """Return the work of a member; every rank knows that of all."""
    early, late, needed = [], [], []
    every = problem.over_all(problem.spans[member])
    for tile in every:
        rows = slice(0, tile.q.stop - tile.q.start)
        mine = _in_shard(problem, member, tile)
        if mine is None:
            late.append((tile.q, tile._replace(q=rows)))
            needed.append(tile)
        else:
            early.append((tile.q, mine._replace(q=rows)))
    return Work(early, late, every, unseen(every, problem.sizes[member]), _needs(needed))


def _in_shard(problem: Problem, member: int, tile: Tile) -> Tile | None:
    """Return the tile over the keys of the member's own shard; None if some are elsewhere."""
    if _first_key(tile) != tile.k.start:
        return None
    for span, rows in rows_of(problem.spans[member]):
        if span.start <= tile.k.start and tile.k.stop <= span.stop:
            shift = rows.start - span.start
            return tile._replace(k=slice(tile.k.start + shift, tile.k.stop + shift))
    return None


def _first_key(tile: Tile) -> int:
    """Return the first key that a kernel loads for a tile."""
    start: int = tile.k.start
    if tile.left is None or tile.lengths:
        return start
    spare: int = (tile.k.stop - start) - (tile.q.stop - tile.q.start)
    return start + max(0, spare - tile.left) // BLOCK * BLOCK


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


def _round(
    problem: Problem,
    batch: int,
    piece: slice,
    dims: tuple[int, int],
    dtype: torch.dtype,
    everything: bool,
) -> Round:
    """Return the round that brings a piece of the heads of keys and values to where they are
    needed."""
    landing = [((batch, piece.stop - piece.start, problem.end, dim), dtype) for dim in dims]
    made, me = Round(landing, bytes_of(*landing)), problem.me
    for other in problem.others:
        peer = problem.members[other]
        for position, rows in _moved(problem, me, other, everything):
            made.sends += [
                Send(peer, Part(i, piece, rows), Place(i, position), landing) for i in range(2)
            ]
        for position, rows in _moved(problem, other, me, everything):
            count = rows.stop - rows.start
            made.receives += [Receive(peer, Place(i, position), count) for i in range(2)]
    for position, rows in _moved(problem, me, me, everything):
        made.own += [(Part(i, piece, rows), Place(i, position)) for i in range(2)]
    return made


@lru_cache(maxsize=256)
def _return(problem: Problem, shapes: tuple[Shape, ...]) -> Round:
    """Return the round that brings partial gradients of keys to the ranks of the keys."""
    others = sorted(problem.others)

    def landing(member: int) -> list[tuple[Shape, torch.dtype]]:
        rows = problem.sizes[member]
        return [((*s[:2], rows, s[3]), torch.float32) for s in shapes] * len(others)

    size = max(bytes_of(*landing(m)) for m in range(problem.size))
    made = Round(landing(problem.me), size, back=True)
    for other in others:
        peer = problem.members[other]
        at = 2 * (problem.me - (problem.me > other))  # among the others of that rank
        for span, rows in rows_of(problem.spans[other]):
            for i, shape in enumerate(shapes):
                part = Part(i, slice(0, shape[1]), slice(span.start, span.stop))
                made.sends.append(Send(peer, part, Place(at + i, rows.start), landing(other)))
        at = 2 * (other - (other > problem.me))
        for _, rows in rows_of(problem.mine):
            count = rows.stop - rows.start
            made.receives += [Receive(peer, Place(at + i, rows.start), count) for i in range(2)]
    return made


def _add_up(
    problem: Problem, received: list[Tensor], sums: list[Tensor], targets: tuple[Tensor, Tensor]
) -> None:
    for i, target in enumerate(targets):
        own = [sums[i][:, :, span.start : span.stop] for span, _ in rows_of(problem.mine)]
        total = torch.cat([sums[i][:, :, :0], *own], 2)
        parts = received[i::2]
        parts.insert(problem.me, total)
        target.copy_(sum(parts[1:], start=parts[0]))
