"""Copies into other ranks' memory land where they are read, in the order that flags keep."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from memory_of_ranks import play
from ranks import results
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.distributed.direct import Direct
from gpudeck.accel.distributed.problem import Problem, Rules
from gpudeck.accel.distributed.sharding import shard, spans_of, unshard
from gpudeck.accel.distributed.strategies import gather, pieces, ulysses
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.tiles import Sight

STRATEGIES = {"gather": (gather, 3), "ulysses": (ulysses, 4)}


def whole(tokens: int, heads: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    return [
        torch.randn(2, h, tokens, 8, generator=draw) for h in (2 * heads, heads, heads, 2 * heads)
    ]


def on_rank(folder: str, name: str, sizes: list[tuple[int, int]]) -> list[list[Tensor]]:
    strategy, slots = STRATEGIES[name]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        play(patch, folder)
        patch.setattr(pieces, "LEAST_BYTES", 1)
        group = dist.distributed_c10d._get_default_group()
        cpu = torch.device("cpu")
        forth, back = Direct(group, group, cpu, slots), None
        for tokens, heads in sizes:
            ranks, me = dist.get_world_size(), dist.get_rank()
            rules = Rules(8**-0.5, backend="math")
            spans = spans_of("zigzag", tokens, ranks)
            problem = Problem(spans, tuple(range(ranks)), me, Sight(right=0), rules)
            q, k, v, dout = (shard(t, problem.mine, 2) for t in whole(tokens, heads))
            k = k.transpose(1, 2).contiguous().transpose(1, 2)  # as models have it
            x = Shard(q, k, v)
            answer, grads = x.new_answer(), Gradients.room(x)
            strategy.forward(problem, x, forth, answer)
            back = back or (forth if slots == 4 else Direct(group, group, cpu, 4))
            strategy.backward(problem, x, Upstream(answer, dout), back, grads)
            found.append([answer.out, *grads])
    return found


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_direct_copies_give_the_answer_call_after_call(name, ranks, tmp_path):
    sizes = [(29, 6), (29, 6), (64, 12), (7, 6), (64, 12)]
    every = results(ranks, on_rank, str(tmp_path), name, sizes)
    for number, (tokens, heads) in enumerate(sizes):
        q, k, v, dout = whole(tokens, heads)
        leaves = [t.requires_grad_() for t in (q, k, v)]
        out = attention(*leaves, causal=True, backend="math")
        wanted = [out.detach(), *torch.autograd.grad(out, leaves, dout)]
        spans = spans_of("zigzag", tokens, ranks)
        for i, expected in enumerate(wanted):
            got = unshard([answers[number][i] for answers in every], spans, 2)
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
