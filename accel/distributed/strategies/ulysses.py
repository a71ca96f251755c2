"""Exchange heads, so that each rank computes some heads over all tokens (arXiv 2309.14509).

Heads travel in pieces: while one piece is computed the next one comes, and the results of the one
before it go back. Nothing is added up across ranks, so that gradients are those of one device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import Exchange, Landing, Round
from gpudeck.accel.distributed.local import Answer, attend, differentiate
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.sharding import Span
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.strategies.heads import HeadExchange, by_position
from gpudeck.accel.distributed.strategies.lanes import Lanes
from gpudeck.accel.distributed.strategies.pieces import pieces_of, rounds_ahead
from gpudeck.accel.distributed.tiles import Tile


def refusal(problem: Problem, heads: int, kv_heads: int) -> str | None:
    """Return why heads cannot be divided among the ranks, or None."""
    if kv_heads % problem.size:
        return f"needs key heads that {problem.size} ranks divide; there are {kv_heads}"
    return None


def forward(problem: Problem, x: Shard, exchange: Exchange) -> Answer:
    """Return the answer of this rank's queries."""
    answer = x.new_answer()
    moved = HeadExchange(problem, x.k.shape[1], by_position(problem))
    tiles = problem.over_all((Span(0, problem.end),))
    pieces, groups = pieces_of(moved.each), [x.group, 1, 1]
    rounds = [moved.inbound([x.q, x.k, x.v], groups, piece) for piece in pieces]
    pending = _Returns(moved, exchange, list(answer), [x.group, x.group])
    _reserve(exchange, rounds, moved, pending, pieces)
    lanes, landings = Lanes(x.q.device), rounds_ahead(exchange, rounds)
    for piece in pieces:
        with lanes.turn():
            landing = next(landings)
            landing.arrive()
            part = Shard(*landing.buffers)
            found = part.new_answer()
            sink = None if x.sink is None else x.sink[moved.heads(problem.me, piece, x.group)]
            attend(part.q, part.k, part.v, tiles, problem.rules, found, sink)
            landing.release()
            pending.send([found.out, found.lse], piece)
    lanes.join()
    pending.finish()
    exchange.end()
    return answer


def backward(problem: Problem, x: Shard, up: Upstream, exchange: Exchange) -> Gradients:
    """Return the gradients, each computed by one rank alone."""
    grads = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in x[:3]]
    moved = HeadExchange(problem, x.k.shape[1], by_position(problem))
    tiles = problem.over_all((Span(0, problem.end),))
    given = [x.q, x.k, x.v, up.dout, up.answer.out, up.answer.lse]
    groups = [x.group, 1, 1, x.group, x.group, x.group]
    if up.dlse is not None:
        given.append(up.dlse)
        groups.append(x.group)
    pieces = pieces_of(moved.each)
    rounds = [moved.inbound(given, groups, piece) for piece in pieces]
    pending = _Returns(moved, exchange, grads, groups[:3])
    _reserve(exchange, rounds, moved, pending, pieces)
    lanes, landings = Lanes(x.q.device), rounds_ahead(exchange, rounds)
    for piece in pieces:
        with lanes.turn():
            landing = next(landings)
            landing.arrive()
            q, k, v, dout, out, lse, *dlse = landing.buffers
            answer = Answer(out, lse.squeeze(-1))
            of_lse = dlse[0].squeeze(-1) if dlse else None
            found = _differentiate(problem, tiles, (q, k, v), dout, answer, of_lse)
            landing.release()
            pending.send(found, piece)
    lanes.join()
    pending.finish()
    exchange.end()
    return Gradients(*grads)


def _reserve(
    exchange: Exchange,
    rounds: list[Round],
    moved: HeadExchange,
    pending: _Returns,
    pieces: list[slice],
) -> None:
    """Make room for what comes and what goes back."""
    back = [moved.bytes_back(pending.targets, pending.groups, piece) for piece in pieces]
    exchange.reserve(max(*back, *(round_.bytes_of_any for round_ in rounds)))


def _differentiate(
    problem: Problem,
    tiles: list[Tile],
    qkv: tuple[Tensor, Tensor, Tensor],
    dout: Tensor,
    answer: Answer,
    dlse: Tensor | None,
) -> list[Tensor]:
    """Return the gradients over all tiles, which have no query and no key in common."""
    if len(tiles) == 1 and tiles[0].q == slice(0, problem.end) == tiles[0].k:
        return list(differentiate(dout, *qkv, answer, dlse, tiles[0], problem.rules)[:3])
    grads = [torch.zeros_like(t, dtype=torch.float32) for t in qkv]
    for tile in tiles:
        found = differentiate(dout, *qkv, answer, dlse, tile, problem.rules)
        for grad, part, rows in zip(grads, found[:3], (tile.q, tile.k, tile.k), strict=True):
            grad[:, :, rows] += part
    return [grad.to(t.dtype) for grad, t in zip(grads, qkv, strict=True)]


class _Returns:
    """Send results back while the next piece is computed, and collect those of the one before."""

    def __init__(
        self, moved: HeadExchange, exchange: Exchange, targets: list[Tensor], groups: list[int]
    ) -> None:
        self._moved, self._exchange = moved, exchange
        self.targets, self.groups = targets, groups
        self._last: tuple[Landing, slice] | None = None

    def send(self, results: list[Tensor], piece: slice) -> None:
        """Send the results of a piece; those of the piece before it are collected."""
        landing = self._exchange.begin(self._moved.outbound(results))
        self._moved.keep(results, self.targets, self.groups, piece)
        self.finish()
        self._last = landing, piece

    def finish(self) -> None:
        """Collect what has been sent last."""
        if self._last is not None:
            landing, piece = self._last
            self._moved.collect(landing, self.targets, self.groups, piece)
            self._last = None
