"""Compute attention in torch's local_tensor mode, which plays all ranks in one process.

The mode runs an operation once for each rank, one after the other, so that ranks cannot wait for
each other. After `register()` ours puts the shards of all ranks together, computes the sequence
once on one device, and gives each rank its rows: whatever strategy is asked for, nothing travels.
So a program can be checked with more ranks than there are GPUs; the strategies have tests of their
own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode

from gpudeck.accel.attention.sinks import sink_gradient
from gpudeck.accel.distributed.local import Answer
from gpudeck.accel.distributed.message_exchange import Messages
from gpudeck.accel.distributed.operation import backward_op, forward_op, problem_over
from gpudeck.accel.distributed.problem import Problem, Rules
from gpudeck.accel.distributed.sharding import Span, Spans, shard, unshard
from gpudeck.accel.distributed.strategies import gather
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.world import resolved


@cache
def register() -> None:
    """Let the operation be computed in the mode."""
    forward_op.register_torch_dispatch(LocalTensorMode, _forward)
    backward_op.register_torch_dispatch(LocalTensorMode, _backward)


class _Team:
    """The ranks of one group, played by this process."""

    def __init__(self, group: dist.ProcessGroup, ranks: Sequence[int], placed: Problem) -> None:
        self.ranks, self._spans = ranks, placed.spans
        whole: Spans = (Span(0, placed.tokens),)
        self.problem = Problem((whole,), (0,), 0, placed.sight, placed.rules)
        self.exchange = Messages(group)

    def joined(self, tensors: Sequence[Any]) -> list[Tensor]:
        """Return the whole sequence of tensors [B,H,S,…] of all ranks."""
        return [unshard([_of(t, rank) for rank in self.ranks], self._spans, 2) for t in tensors]

    def divided(self, whole: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Yield each rank with its rows."""
        for rank, spans in zip(self.ranks, self._spans, strict=True):
            yield rank, shard(whole, spans, 2)


def _forward(mode: LocalTensorMode, op: object, types: object, args: Any, kwargs: object) -> Any:
    q, k, v, sink, *settings = args
    out: dict[int, Tensor] = {}
    lse: dict[int, Tensor] = {}
    for team in _teams(mode, q, settings):
        x = Shard(*team.joined([q, k, v]))._replace(sink=_of(sink, team.ranks[0]))
        answer = x.new_answer()
        gather.forward(team.problem, x, team.exchange, answer)
        out.update(team.divided(answer.out))
        lse.update(team.divided(answer.lse))
    return _local(out), _local(lse)


def _backward(mode: LocalTensorMode, op: object, types: object, args: Any, kwargs: object) -> Any:
    dout, dlse, out, lse, q, k, v, sink, *settings = args
    found: list[dict[int, Tensor]] = [{} for _ in range(4)]
    for team in _teams(mode, q, settings):
        x = Shard(*team.joined([q, k, v]))
        answer = Answer(*team.joined([out, lse]))
        of_out, *of_lse = team.joined([dout] if dlse is None else [dout, dlse])
        grads = Gradients.room(x)
        up = Upstream(answer, of_out, of_lse[0] if of_lse else None)
        gather.backward(team.problem, x, up, team.exchange, grads)
        for each, grad in zip(found[:3], grads, strict=True):
            each.update(team.divided(grad))
        for rank in team.ranks:
            found[3][rank] = sink_gradient(*(_of(t, rank) for t in (dout, out, lse, dlse, sink)))
    return tuple(map(_local, found))


def _teams(mode: LocalTensorMode, q: Tensor, settings: list[Any]) -> Iterator[_Team]:
    """Yield the groups of ranks that are like the one which is named: a dimension of a mesh divides
    all ranks into several."""
    (
        name, layout, spans, tokens, documents, window, scale, softcap, deterministic, _, backend,
        precision,
    ) = settings  # fmt: skip
    group, rules = resolved(name), Rules(scale, softcap, deterministic, backend, precision)
    first, *others = dist.get_process_group_ranks(group)
    left = sorted(mode.ranks)
    while left:
        ranks = [left[0], *(left[0] + other - first for other in others)]
        left = [rank for rank in left if rank not in ranks]
        problems = [
            problem_over(
                len(ranks), me, _of(q, rank).shape[2], layout, tuple(spans), tokens,
                tuple(documents), (window[0], window[1]), rules,
            )
            for me, rank in enumerate(ranks)
        ]  # fmt: skip
        yield _Team(group, ranks, problems[0])


def _of(t: Any, rank: int) -> Any:
    """Return what a rank has; tensors that are no shards are the same everywhere."""
    return t._local_tensors[rank] if isinstance(t, LocalTensor) else t


def _local(of_ranks: dict[int, Tensor]) -> Tensor:
    found: Tensor = LocalTensor(of_ranks)  # type: ignore[no-untyped-call]
    return found
