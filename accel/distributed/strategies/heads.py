"""Exchange shards of the sequence with all heads for more of the sequence with some heads."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import (
    Exchange,
    Landing,
    Part,
    Place,
    Receive,
    Round,
    Send,
    Shape,
    bytes_of,
    widened,
)
from gpudeck.accel.distributed.problem import Problem, heads_of, rows_of


class Rows(NamedTuple):
    """Rows of a member's shard, and the first row and the step where they land."""

    here: slice
    row: int
    step: int = 1

    @property
    def size(self) -> int:
        """Return the number of rows."""
        first: int = self.here.start
        last: int = self.here.stop
        return last - first

    @property
    def there(self) -> slice:
        """Return the rows where they land."""
        return slice(self.row, self.row + self.size * self.step)


class Moved(NamedTuple):
    """One of the tensors that are moved: its head size and dtype, and its heads for a key head."""

    batch: int
    group: int
    dim: int
    dtype: torch.dtype

    @classmethod
    def of(cls, t: Tensor, group: int) -> Moved:
        """Describe a tensor [B,H,S,D], or [B,H,S] for elements of one number."""
        return cls(t.shape[0], group, t.shape[3] if t.dim() == 4 else 1, t.dtype)

    def buffer(self, kv_heads: int, rows: int) -> tuple[Shape, torch.dtype]:
        """Return the buffer for some heads and rows."""
        return (self.batch, kv_heads * self.group, rows, self.dim), self.dtype


class HeadExchange:
    """Move pieces of heads to the members that compute them, and their results back.

    Member m computes the key heads m x n to (m + 1) x n - 1, with n = Hkv / members, and the query
    heads that share them. A piece is a slice of these n.
    """

    def __init__(self, problem: Problem, kv_heads: int, *, by_position: bool) -> None:
        """Prepare the exchange.

        Args:
            problem: the problem.
            kv_heads: all key heads.
            by_position: tokens land in the order of their positions; else the shards of all members
                land one after the other.
        """
        self.problem = problem
        self.each = kv_heads // problem.size
        self._rows = _by_position(problem) if by_position else _end_to_end(problem)
        self.tokens = problem.end if by_position else problem.tokens
        self.inbound = lru_cache(maxsize=64)(self._inbound)
        self.outbound = lru_cache(maxsize=64)(self._outbound)

    def heads(self, member: int, piece: slice, group: int) -> slice:
        """Return the heads of a piece of a member, `group` for each key head."""
        begin = member * self.each
        return heads_of(slice(begin + piece.start, begin + piece.stop), group)

    def _inbound(self, tensors: tuple[Moved, ...], begin: int, end: int) -> Round:
        """Return the round that brings a piece of heads of all tokens to each member."""
        p, piece = self.problem, slice(begin, end)
        landing = [t.buffer(end - begin, self.tokens) for t in tensors]
        made = Round(landing, bytes_of(*landing))
        for i, t in enumerate(tensors):
            for other in p.others:
                peer, heads = p.members[other], self.heads(other, piece, t.group)
                made.sends += [
                    Send(peer, Part(i, heads, at.here), Place(i, at.row, at.step), landing)
                    for at in self._rows[p.me]
                ]
                made.receives += [
                    Receive(peer, Place(i, at.row, at.step), at.size) for at in self._rows[other]
                ]
            heads = self.heads(p.me, piece, t.group)
            made.own += [
                (Part(i, heads, at.here), Place(i, at.row, at.step)) for at in self._rows[p.me]
            ]
        return made

    def _outbound(self, results: tuple[Moved, ...], begin: int, end: int) -> Round:
        """Return the round that brings results of a piece of heads back to the ranks of their
        tokens."""
        p, count = self.problem, len(self.problem.others)

        def landing(member: int) -> list[tuple[Shape, torch.dtype]]:
            return [t.buffer(end - begin, p.sizes[member]) for t in results] * count

        size = max(bytes_of(*landing(m)) for m in range(p.size))
        made = Round(landing(p.me), size, back=True)
        for other in p.others:
            peer = p.members[other]
            there = _first(p.me, other) * len(results)
            here = _first(other, p.me) * len(results)
            for i, t in enumerate(results):
                every = slice(0, (end - begin) * t.group)
                made.sends += [
                    Send(
                        peer, Part(i, every, at.there, at.step), Place(there + i, at.here.start),
                        landing(other),
                    )
                    for at in self._rows[other]
                ]  # fmt: skip
                made.receives += [
                    Receive(peer, Place(here + i, at.here.start), at.size)
                    for at in self._rows[p.me]
                ]
        return made

    def keep(
        self, results: list[Tensor], targets: list[Tensor], groups: list[int], piece: slice
    ) -> None:
        """Put this rank's own rows of its results into the targets."""
        p = self.problem
        for target, result, group in zip(targets, results, groups, strict=True):
            mine, whole = target[:, self.heads(p.me, piece, group)], result
            for at in self._rows[p.me]:
                rows = slice(at.there.start, at.there.stop, at.step)
                mine[:, :, at.here] = whole[:, :, rows]

    def collect(
        self, landing: Landing, targets: list[Tensor], groups: list[int], piece: slice
    ) -> None:
        """Put what came back from the other members into the targets."""
        p = self.problem
        landing.arrive()
        for i, (target, group) in enumerate(zip(targets, groups, strict=True)):
            for other in p.others:
                came = landing.buffers[_first(other, p.me) * len(targets) + i]
                widened(target)[:, self.heads(other, piece, group)] = came
        landing.release()


@lru_cache(maxsize=64)
def head_exchange(problem: Problem, kv_heads: int, by_position: bool) -> HeadExchange:
    """Return the exchange of a problem, which is made once."""
    return HeadExchange(problem, kv_heads, by_position=by_position)


def send_back(
    moved: HeadExchange,
    exchange: Exchange,
    results: list[Tensor],
    targets: list[Tensor],
    groups: list[int],
    piece: slice,
) -> None:
    """Bring results back at once."""
    kinds = tuple(Moved.of(t, g) for t, g in zip(results, groups, strict=True))
    round_ = moved.outbound(kinds, piece.start, piece.stop)
    landing = exchange.begin(round_, [widened(t) for t in results])
    moved.keep(results, targets, groups, piece)
    moved.collect(landing, targets, groups, piece)


def _by_position(problem: Problem) -> list[list[Rows]]:
    """Return where tokens lie in the order of their positions."""
    return [
        [Rows(rows, span.start, span.step) for span, rows in rows_of(spans)]
        for spans in problem.spans
    ]


def _end_to_end(problem: Problem) -> list[list[Rows]]:
    """Return where the shards of all members lie one after the other."""
    every, begin = [], 0
    for size in problem.sizes:
        every.append([Rows(slice(0, size), begin)] if size else [])
        begin += size
    return every


def _first(source: int, target: int) -> int:
    """Return the number of a source among the others of a target."""
    return source - (source > target)
