"""Arrange ranks in rows and columns: queries are shared in a column, keys go round in a row.

With a x b ranks, rank (i, j) holds the queries of all ranks (·, j) and sees the keys of all ranks
(i, ·), one after the other; the partial answers of a query are added up where it belongs. Each rank
moves a - 1 shards of queries and b - 1 of keys instead of a x b - 1 of keys (Mesh-Attention, arXiv
2512.20968; the concentric rings of StarTrail, arXiv 2407.00611, are a case of it). With a = 1 it is
Ring Attention (arXiv 2310.01889).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpudeck.accel.distributed.exchange import (
    Exchange,
    Part,
    Place,
    Receive,
    Round,
    Send,
    bytes_of,
    narrowed,
    widened,
)
from gpudeck.accel.distributed.local import Answer, attend_one, differentiate
from gpudeck.accel.distributed.merging import Sum
from gpudeck.accel.distributed.problem import Problem
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.language.text import Text


def shape_of(problem: Problem, x: Shard) -> tuple[int, int]:
    """Return the rows and columns that move the fewest bytes."""
    queries = x.q.shape[1] * (x.q.shape[3] + 2 * x.v.shape[3])
    keys = x.k.shape[1] * (x.k.shape[3] + x.v.shape[3])
    shapes = [(a, problem.size // a) for a in range(1, problem.size + 1) if problem.size % a == 0]
    return min(shapes, key=lambda s: (s[0] - 1) * queries + (s[1] - 1) * keys)


def refusal(problem: Problem, heads: int, kv_heads: int) -> Text | None:
    """Return None: everything can be divided so."""
    return None


def forward(problem: Problem, x: Shard, exchange: Exchange, answer: Answer) -> None:
    """Write the answer, with the shape of the mesh that moves least."""
    forward_on(problem, x, exchange, answer, shape_of(problem, x))


def backward(
    problem: Problem, x: Shard, up: Upstream, exchange: Exchange, grads: Gradients
) -> None:
    """Write the gradients, with the shape of the mesh that moves least."""
    backward_on(problem, x, up, exchange, grads, shape_of(problem, x))


def forward_on(
    problem: Problem, x: Shard, exchange: Exchange, answer: Answer, shape: tuple[int, int]
) -> None:
    """Write the answer of this rank's queries."""
    column, row = _lines(problem, shape)
    queries = _shared(problem, column, [x.q], exchange)
    sums = {
        m: Sum((*q.shape[:3], x.v.shape[3]), q.device)
        for m, (q,) in zip(column, queries, strict=True)
    }
    for holder, (k, v) in _around(problem, row, [x.k, x.v], exchange):
        for member, (q,) in zip(column, queries, strict=True):
            for tile in problem.between(member, holder):
                sums[member].add(*attend_one(q, k, v, tile, problem.rules), tile.q)
    mine = sums[problem.me]
    if len(column) > 1:
        parts = _to_owners(problem, column, {m: [s.out, s.lse] for m, s in sums.items()}, exchange)
        mine = Sum(x.out_shape, x.q.device)
        for out, lse in parts:
            mine.add(out, narrowed(lse), slice(0, x.q.shape[2]))
    exchange.end()
    mine.write(answer, x.sink)


def backward_on(
    problem: Problem,
    x: Shard,
    up: Upstream,
    exchange: Exchange,
    grads: Gradients,
    shape: tuple[int, int],
) -> None:
    """Write the gradients, summed in float32; those of keys go round with them."""
    column, row = _lines(problem, shape)
    given = [x.q, up.dout, up.answer.out, up.answer.lse]
    given += [] if up.dlse is None else [up.dlse]
    queries = _shared(problem, column, given, exchange)
    dqs = {
        m: torch.zeros_like(q[0], dtype=torch.float32) for m, q in zip(column, queries, strict=True)
    }
    here = [torch.zeros_like(t, dtype=torch.float32) for t in (x.k, x.v)]
    for step, (holder, (k, v)) in enumerate(_around(problem, row, [x.k, x.v], exchange)):
        if step:
            here = _passed_on(problem, row, holder, here, exchange)
        for member, (q, dout, out, lse, *dlse) in zip(column, queries, strict=True):
            above = Answer(out, narrowed(lse))
            of_lse = narrowed(dlse[0]) if dlse else None
            for tile in problem.between(member, holder):
                found = differentiate(dout, q, k, v, above, of_lse, tile, problem.rules)
                dqs[member][:, :, tile.q] += found.q
                here[0][:, :, tile.k] += found.k
                here[1][:, :, tile.k] += found.v
    if len(row) > 1:
        here = _passed_on(problem, row, problem.me, here, exchange)
    dq = dqs[problem.me]
    if len(column) > 1:
        parts = _to_owners(problem, column, {m: [t] for m, t in dqs.items()}, exchange)
        dq = sum((part[0] for part in parts[1:]), start=parts[0][0])
    exchange.end()
    for target, total in zip(grads, (dq, *here), strict=True):
        target.copy_(total)


def _lines(problem: Problem, shape: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Return the members of this rank's column and of its row, both in their order."""
    rows, columns = shape
    i, j = divmod(problem.me, columns)
    return [x * columns + j for x in range(rows)], [i * columns + y for y in range(columns)]


def _sized(t: Tensor, rows: int) -> tuple[tuple[int, ...], torch.dtype]:
    return (*t.shape[:2], rows, t.shape[3]), t.dtype


def _bytes(problem: Problem, tensors: list[Tensor], times: int = 1) -> int:
    most = max(problem.sizes)
    return times * bytes_of(*(_sized(t, most) for t in tensors))


def _whole(tensor: int, t: Tensor) -> Part:
    return Part(tensor, slice(0, t.shape[1]), slice(0, t.shape[2]))


def _shared(
    problem: Problem, column: list[int], tensors: list[Tensor], exchange: Exchange
) -> list[list[Tensor]]:
    """Return the tensors of each member of the column."""
    if len(column) == 1:
        return [tensors]
    wide = [widened(t) for t in tensors]
    others = [m for m in column if m != problem.me]
    shapes = [_sized(t, problem.sizes[m]) for m in others for t in wide]
    made = Round(shapes, _bytes(problem, wide, len(others)))
    for number, other in enumerate(others):
        peer, there = problem.members[other], column.index(problem.me)
        there -= problem.me > other
        for i, t in enumerate(wide):
            if t.shape[2]:
                made.sends.append(Send(peer, _whole(i, t), Place(there * len(wide) + i, 0)))
            if rows := problem.sizes[other]:
                made.receives.append(Receive(peer, Place(number * len(wide) + i, 0), rows))
    landing = exchange.begin(made, wide)
    landing.arrive()
    parts = {m: landing.buffers[n * len(wide) : (n + 1) * len(wide)] for n, m in enumerate(others)}
    return [tensors if m == problem.me else parts[m] for m in column]


def _around(
    problem: Problem, row: list[int], tensors: list[Tensor], exchange: Exchange
) -> Iterator[tuple[int, list[Tensor]]]:
    """Yield each member of the row with its tensors, this rank first: the next ones come while they
    are used."""
    at = row.index(problem.me)
    before, after = row[at - 1], row[(at + 1) % len(row)]
    for step in range(len(row)):
        holder, coming = row[at - step], row[at - step - 1]
        landing = None
        if step + 1 < len(row):
            landing = exchange.begin(_hop(problem, tensors, before, after, coming), tensors)
        yield holder, tensors
        if landing is not None:
            landing.arrive()
            tensors = landing.buffers


def _passed_on(
    problem: Problem, row: list[int], holder: int, tensors: list[Tensor], exchange: Exchange
) -> list[Tensor]:
    """Send gradients to the next rank, and return those of the holder's keys from the one
    before."""
    at = row.index(problem.me)
    round_ = _hop(problem, tensors, row[at - 1], row[(at + 1) % len(row)], holder)
    landing = exchange.begin(round_, tensors)
    landing.arrive()
    return landing.buffers


def _hop(problem: Problem, tensors: list[Tensor], before: int, after: int, coming: int) -> Round:
    rows = problem.sizes[coming]
    made = Round([_sized(t, rows) for t in tensors], _bytes(problem, tensors))
    for i, t in enumerate(tensors):
        if t.shape[2]:
            made.sends.append(Send(problem.members[after], _whole(i, t), Place(i, 0)))
        if rows:
            made.receives.append(Receive(problem.members[before], Place(i, 0), rows))
    return made


def _to_owners(
    problem: Problem, column: list[int], parts: dict[int, list[Tensor]], exchange: Exchange
) -> list[list[Tensor]]:
    """Send partial results to the ranks of their queries; return those for this rank, in order."""
    mine = [widened(t) for t in parts[problem.me]]
    others = [m for m in column if m != problem.me]
    shapes = [_sized(t, problem.sizes[problem.me]) for _ in others for t in mine]
    made = Round(shapes, _bytes(problem, mine, len(others)))
    given: list[Tensor] = []
    for number, other in enumerate(others):
        peer, there = problem.members[other], column.index(problem.me) - (problem.me > other)
        for i, t in enumerate(map(widened, parts[other])):
            if t.shape[2]:
                place = Place(there * len(mine) + i, 0)
                made.sends.append(Send(peer, _whole(len(given), t), place))
                given.append(t)
            if rows := mine[i].shape[2]:
                made.receives.append(Receive(peer, Place(number * len(mine) + i, 0), rows))
    landing = exchange.begin(made, given or mine)
    landing.arrive()
    came = {m: landing.buffers[n * len(mine) : (n + 1) * len(mine)] for n, m in enumerate(others)}
    return [mine if m == problem.me else came[m] for m in column]
