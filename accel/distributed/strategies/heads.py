"""Exchange shards of the sequence with all heads for more of the sequence with some heads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import (
    Exchange,
    Landing,
    Own,
    Receive,
    Round,
    Send,
    bytes_of,
    place,
)
from gpudeck.accel.distributed.problem import Problem, heads_of, rows_of


class Place(NamedTuple):
    """Rows of a member's shard, and the first row and the step where they land."""

    rows: slice
    row: int
    step: int = 1

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return self.rows.stop - self.rows.start


def by_position(problem: Problem) -> tuple[list[list[Place]], int]:
    """Return places where all tokens lie in the order of their positions, and their number."""
    places = [
        [Place(rows, span.start, span.step) for span, rows in rows_of(spans)]
        for spans in problem.spans
    ]
    return places, problem.end


def end_to_end(problem: Problem) -> tuple[list[list[Place]], int]:
    """Return places where the shards of all members lie one after the other."""
    places, begin = [], 0
    for size in problem.sizes:
        places.append([Place(slice(0, size), begin)] if size else [])
        begin += size
    return places, begin


class HeadExchange:
    """Move pieces of heads to the members that compute them, and their results back.

    Member m computes the key heads m x n to (m + 1) x n - 1, with n = Hkv / members, and the query
    heads that share them. A piece is a slice of these n.
    """

    def __init__(
        self, problem: Problem, kv_heads: int, places: tuple[list[list[Place]], int]
    ) -> None:
        self.problem = problem
        self.each = kv_heads // problem.size
        self._places, self.rows = places

    def heads(self, member: int, piece: slice, group: int) -> slice:
        """Return the heads of a piece of a member, `group` for each key head."""
        begin = member * self.each
        return heads_of(slice(begin + piece.start, begin + piece.stop), group)

    def inbound(self, tensors: list[Tensor], groups: list[int], piece: slice) -> Round:
        """Return the round that brings a piece of heads of all tokens to each member.

        Args:
            tensors: [B,H,S,D] with the tokens of this rank; those with 3 dimensions are as wide as
                one element.
            groups: how many of its heads belong to a key head, for each tensor.
            piece: the piece.
        """
        p = self.problem
        tensors = [_wide(t) for t in tensors]
        width = piece.stop - piece.start
        shapes = [
            (t.shape[0], width * g, self.rows, t.shape[3])
            for t, g in zip(tensors, groups, strict=True)
        ]
        landing = [(shape, t.dtype) for shape, t in zip(shapes, tensors, strict=True)]
        made = Round(landing, sum(bytes_of(*x) for x in landing))
        every = list(zip(tensors, groups, strict=True))
        for other in p.others:
            peer = p.members[other]
            for i, (t, group) in enumerate(every):
                part = t[:, self.heads(other, piece, group)]
                made.sends += [
                    Send(peer, part[:, :, at.rows], i, at.row, at.step, landing)
                    for at in self._places[p.me]
                ]
                made.receives += [
                    Receive(peer, i, at.row, at.count, at.step) for at in self._places[other]
                ]
        for i, (t, group) in enumerate(every):
            part = t[:, self.heads(p.me, piece, group)]
            made.own += [Own(part[:, :, at.rows], i, at.row, at.step) for at in self._places[p.me]]
        return made

    def bytes_back(self, targets: list[Tensor], groups: list[int], piece: slice) -> int:
        """Return the bytes that results of a piece take at most where they come back."""
        rows, width = max(self.problem.sizes), piece.stop - piece.start
        each = [
            bytes_of((t.shape[0], width * group, rows, _wide(t).shape[3]), t.dtype)
            for t, group in zip(targets, groups, strict=True)
        ]
        return sum(each) * (self.problem.size - 1)

    def outbound(self, results: list[Tensor]) -> Round:
        """Return the round that brings results of a piece of heads back to the ranks of their
        tokens."""
        p = self.problem
        results = [_wide(t) for t in results]
        others = len(p.others)

        def landing(member: int) -> list[tuple[tuple[int, ...], torch.dtype]]:
            return [
                ((*t.shape[:2], p.sizes[member], t.shape[3]), t.dtype) for t in results
            ] * others

        size = max(sum(bytes_of(*x) for x in landing(m)) for m in range(p.size))
        made = Round(landing(p.me), size, fresh=True)
        for other in p.others:
            peer = p.members[other]
            there, here = self._first(p.me, other), self._first(other, p.me)
            for i, t in enumerate(results):
                made.sends += [
                    Send(
                        peer, place(t, at.row, at.count, at.step), there * len(results) + i,
                        at.rows.start, there=landing(other),
                    )
                    for at in self._places[other]
                ]  # fmt: skip
                made.receives += [
                    Receive(peer, here * len(results) + i, at.rows.start, at.count)
                    for at in self._places[p.me]
                ]
        return made

    def keep(
        self, results: list[Tensor], targets: list[Tensor], groups: list[int], piece: slice
    ) -> None:
        """Put this rank's own rows of its results into the targets."""
        p = self.problem
        for target, result, group in zip(targets, results, groups, strict=True):
            mine = _wide(target)[:, self.heads(p.me, piece, group)]
            for at in self._places[p.me]:
                mine[:, :, at.rows] = place(_wide(result), at.row, at.count, at.step)

    def collect(
        self, landing: Landing, targets: list[Tensor], groups: list[int], piece: slice
    ) -> None:
        """Put what came back from the other members into the targets."""
        p = self.problem
        landing.arrive()
        for i, (target, group) in enumerate(zip(targets, groups, strict=True)):
            for other in p.others:
                came = landing.buffers[self._first(other, p.me) * len(targets) + i]
                _wide(target)[:, self.heads(other, piece, group)] = came
        landing.release()

    def _first(self, source: int, target: int) -> int:
        """Return the number of a source among the others of a target."""
        return source - (source > target)


def send_back(
    moved: HeadExchange,
    exchange: Exchange,
    results: list[Tensor],
    targets: list[Tensor],
    groups: list[int],
    piece: slice,
) -> None:
    """Bring results back at once."""
    landing = exchange.begin(moved.outbound(results))
    moved.keep(results, targets, groups, piece)
    moved.collect(landing, targets, groups, piece)


def _wide(t: Tensor) -> Tensor:
    return t if t.dim() == 4 else t.unsqueeze(-1)
