"""Exchange heads among neighbouring ranks, and send keys round the groups of them.

It serves where there are fewer key heads than ranks (USP, arXiv 2405.07719).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from torch import Tensor

from gpudeck.accel.distributed.exchange import Exchange, narrowed, widened
from gpudeck.accel.distributed.local import Answer
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.strategies import ring
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.strategies.heads import (
    HeadExchange,
    Moved,
    head_exchange,
    send_back,
)
from gpudeck.language.text import Text, phrase


def refusal(problem: Problem, heads: int, kv_heads: int) -> Text | None:
    """Return why ranks cannot be grouped by heads, or None."""
    if gcd(problem.size, kv_heads) == 1:
        return phrase(
            "needs a group of ranks that divides the key heads; {n} ranks have none for {heads}",
            n=problem.size,
            heads=kv_heads,
        )
    return None


def forward(problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
    """Write the answer of this rank's queries."""
    inner, outer = _stages(problem, x.k.shape[1])
    moved = head_exchange(inner, x.k.shape[1], False)
    piece = slice(0, moved.each)
    part = Shard(*_bring(moved, exchange, list(x[:3]), [x.group, 1, 1], piece))
    sink = None if x.sink is None else x.sink[moved.heads(inner.me, piece, x.group)]
    part = part._replace(sink=sink)
    found = part.new_answer()
    ring.forward(outer, part, exchange, found)
    send_back(moved, exchange, list(found), list(answer), [x.group, x.group], piece)


def backward(
    problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
) -> None:
    """Write the gradients of this rank's tensors."""
    inner, outer = _stages(problem, x.k.shape[1])
    moved = head_exchange(inner, x.k.shape[1], False)
    given = [x.q, x.k, x.v, up.dout, up.answer.out, up.answer.lse]
    given += [] if up.dlse is None else [up.dlse]
    groups, piece = [x.group, 1, 1, *(x.group for _ in given[3:])], slice(0, moved.each)
    q, k, v, dout, out, lse, *dlse = _bring(moved, exchange, given, groups, piece)
    above = Upstream(Answer(out, narrowed(lse)), dout, narrowed(dlse[0]) if dlse else None)
    part = Shard(q, k, v)
    found = Gradients.room(part)
    ring.backward(outer, part, above, exchange, found)
    send_back(moved, exchange, list(found), list(grads), groups[:3], piece)


def _bring(
    moved: HeadExchange, exchange: Exchange, given: list[Tensor], groups: list[int], piece: slice
) -> list[Tensor]:
    """Return tensors with this rank's heads of all tokens of its group."""
    kinds = tuple(Moved.of(t, g) for t, g in zip(given, groups, strict=True))
    round_ = moved.inbound(kinds, piece.start, piece.stop)
    landing = exchange.begin(round_, [widened(t) for t in given])
    landing.arrive()
    return landing.buffers


def _stages(problem: Problem, kv_heads: int) -> tuple[Problem, Problem]:
    """Return the problem among the neighbours that exchange heads, and that among the groups."""
    width = gcd(problem.size, kv_heads)
    group, place = divmod(problem.me, width)
    near = range(group * width, (group + 1) * width)
    inner = replace(
        problem,
        spans=tuple(problem.spans[m] for m in near),
        members=tuple(problem.members[m] for m in near),
        me=place,
    )
    groups = range(problem.size // width)
    joined = tuple(
        tuple(span for m in range(g * width, (g + 1) * width) for span in problem.spans[m])
        for g in groups
    )
    outer = replace(
        problem,
        spans=joined,
        members=tuple(problem.members[g * width + place] for g in groups),
        me=group,
    )
    return inner, outer
