"""Exchange heads, so that each rank computes some heads over all tokens (arXiv 2309.14509).

Heads travel in pieces: while one piece is computed the next one comes, and the results of the one
before it go back. Nothing is added up across ranks, so that gradients are those of one device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import Exchange, Landing, narrowed, widened
from gpudeck.accel.distributed.local import Answer, attend, blind, differentiate
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.sharding import Span
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.strategies.heads import HeadExchange, Moved, head_exchange
from gpudeck.accel.distributed.strategies.lanes import Lanes
from gpudeck.accel.distributed.strategies.pieces import pieces_of, rounds_ahead
from gpudeck.accel.distributed.tiles import Tile, unseen
from gpudeck.language.text import Text, phrase


def refusal(problem: Problem, heads: int, kv_heads: int) -> Text | None:
    """Return why heads cannot be divided among the ranks, or None."""
    if kv_heads % problem.size:
        return phrase(
            "needs key heads that {n} ranks divide; there are {heads}",
            n=problem.size,
            heads=kv_heads,
        )
    return None


def forward(problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
    """Write the answer of this rank's queries."""
    tiles = problem.over_all((Span(0, problem.end),))
    trip = _Trip(
        problem, x, exchange, [x.q, x.k, x.v], [x.group, 1, 1], list(answer), [x.group, x.group]
    )
    for piece in trip.pieces:
        with trip.lanes.turn():
            landing = trip.next()
            part = Shard(*landing.buffers)
            found = part.new_answer()
            sink = None
            if x.sink is not None:
                sink = x.sink[trip.moved.heads(problem.me, piece, x.group)]
            for rows in unseen(tiles, problem.end):
                blind(Answer(found.out[:, :, rows], found.lse[:, :, rows]), sink)
            for tile in tiles:
                _attend(problem, part, tile, found, sink)
            landing.release()
            trip.send(list(found), piece)
    trip.end()


def _attend(problem: Problem, x: Shard, tile: Tile, found: Answer, sink: Tensor | None) -> None:
    rows = tile.q
    room = Answer(found.out[:, :, rows], found.lse[:, :, rows])
    part = tile._replace(q=slice(0, rows.stop - rows.start))
    attend(x.q[:, :, rows], x.k, x.v, part, problem.rules, room, sink)


def backward(
    problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
) -> None:
    """Write the gradients, each computed by one rank alone."""
    tiles = problem.over_all((Span(0, problem.end),))
    given = [x.q, x.k, x.v, up.dout, up.answer.out, up.answer.lse]
    given += [] if up.dlse is None else [up.dlse]
    groups = [x.group, 1, 1, *(x.group for _ in given[3:])]
    trip = _Trip(problem, x, exchange, given, groups, list(grads), groups[:3])
    for piece in trip.pieces:
        with trip.lanes.turn():
            landing = trip.next()
            q, k, v, dout, out, lse, *dlse = landing.buffers
            answer = Answer(out, narrowed(lse))
            of_lse = narrowed(dlse[0]) if dlse else None
            found = _differentiate(problem, tiles, (q, k, v), dout, answer, of_lse)
            landing.release()
            trip.send(found, piece)
    trip.end()


def _differentiate(
    problem: Problem,
    tiles: list[Tile],
    qkv: tuple[Tensor, Tensor, Tensor],
    dout: Tensor,
    answer: Answer,
    dlse: Tensor | None,
) -> list[Tensor]:
    """Return the gradients over all tiles, which have no query in common."""
    if len(tiles) == 1 and tiles[0].q == slice(0, problem.end) == tiles[0].k:
        return list(differentiate(dout, *qkv, answer, dlse, tiles[0], problem.rules)[:3])
    grads = [torch.zeros_like(t, dtype=torch.float32) for t in qkv]
    for tile in tiles:
        found = differentiate(dout, *qkv, answer, dlse, tile, problem.rules)
        for grad, part, rows in zip(grads, found[:3], (tile.q, tile.k, tile.k), strict=True):
            grad[:, :, rows] += part
    return [grad.to(t.dtype) for grad, t in zip(grads, qkv, strict=True)]


class _Trip:
    """Bring pieces of heads one after the other, and take their results back meanwhile."""

    def __init__(
        self,
        problem: Problem,
        x: Shard,
        exchange: Exchange,
        given: list[Tensor],
        groups: list[int],
        targets: list[Tensor],
        groups_back: list[int],
    ) -> None:
        kv_heads = x.k.shape[1]
        self.moved: HeadExchange = head_exchange(problem, kv_heads, True)
        self._exchange, self._targets, self._groups = exchange, targets, groups_back
        kinds = tuple(Moved.of(t, g) for t, g in zip(given, groups, strict=True))
        self._back = tuple(Moved.of(t, g) for t, g in zip(targets, self._groups, strict=True))
        whole = sum(t.numel() * t.element_size() for t in given)
        self.pieces = pieces_of(self.moved.each, whole)
        ends = [(piece.start, piece.stop) for piece in self.pieces]
        rounds = [self.moved.inbound(kinds, *piece) for piece in ends]
        returns = [self.moved.outbound(self._back, *piece) for piece in ends]
        exchange.reserve(max(r.size for r in rounds), max(r.size for r in returns))
        self._landings = rounds_ahead(exchange, rounds, [widened(t) for t in given])
        self.lanes = Lanes(x.q.device, len(self.pieces))
        self._last: tuple[Landing, slice] | None = None

    def next(self) -> Landing:
        """Return the landing of the next piece when it has arrived."""
        landing = next(self._landings)
        landing.arrive()
        return landing

    def send(self, results: list[Tensor], piece: slice) -> None:
        """Send the results of a piece; those of the piece before it are collected.

        They are moved beside the lanes, so that the next piece of a lane need not wait.
        """
        round_ = self.moved.outbound(self._back, piece.start, piece.stop)
        with self.lanes.aside(results):
            landing = self._exchange.begin(round_, [widened(t) for t in results])
            self.moved.keep(results, self._targets, self._groups, piece)
            self._collect()
        self._last = landing, piece

    def end(self) -> None:
        """Collect what has been sent last, and wait for everything."""
        self.lanes.join()
        self._collect()
        self._exchange.end()

    def _collect(self) -> None:
        if self._last is not None:
            landing, piece = self._last
            self.moved.collect(landing, self._targets, self._groups, piece)
            self._last = None
