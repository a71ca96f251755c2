"""Copies into other ranks' memory land where they are read, in the order that flags keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from memory_of_ranks import play
from ranks import results
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.problem import Problem as LocalProblem
from gpudeck.accel.distributed import direct, local
from gpudeck.accel.distributed.direct import Direct
from gpudeck.accel.distributed.problem import Problem, Rules
from gpudeck.accel.distributed.replays import Replays
from gpudeck.accel.distributed.sharding import shard, spans_of, unshard
from gpudeck.accel.distributed.strategies import gather, pieces, ulysses
from gpudeck.accel.distributed.strategies.base import Gradients, Shard, Upstream
from gpudeck.accel.distributed.tiles import Sight

STRATEGIES = {"gather": gather, "ulysses": ulysses}


def whole(tokens: int, heads: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    return [
        torch.randn(2, h, tokens, 8, generator=draw) for h in (2 * heads, heads, heads, 2 * heads)
    ]


def on_rank(folder: str, name: str, sizes: list[tuple[int, int]]) -> list[list[Tensor]]:
    strategy = STRATEGIES[name]
    found = []
    with pytest.MonkeyPatch.context() as patch:
        play(patch, folder)
        patch.setattr(pieces, "PIECE_BYTES", 1)
        patch.setattr(direct, "SHORT_BYTES", 8192)  # the longer sequences have a slot fewer
        group = dist.distributed_c10d._get_default_group()
        cpu = torch.device("cpu")
        exchange = Direct(group, group, cpu)
        for tokens, heads in sizes:
            ranks, me = dist.get_world_size(), dist.get_rank()
            rules = Rules(8**-0.5, backend="math")
            spans = spans_of("zigzag", tokens, ranks)
            problem = Problem(spans, tuple(range(ranks)), me, Sight(right=0), rules)
            q, k, v, dout = (shard(t, problem.mine, 2) for t in whole(tokens, heads))
            k = k.transpose(1, 2).contiguous().transpose(1, 2)  # as models have it
            x = Shard(q, k, v)
            answer, grads = x.new_answer(), Gradients.room(x)
            strategy.forward(problem, x, exchange, answer)
            strategy.backward(problem, x, Upstream(answer, dout), exchange, grads)
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


class Recording:
    """A graph that runs what was recorded."""

    work: Callable[[], None]
    runs = 0


def record(self: Direct, graph: Recording, pool: object, work: Callable[[], None]) -> list[int]:
    graph.work = work
    return [0, 0]  # the rounds are counted when they run


def replay(self: Direct, graph: Recording, rounds: list[int]) -> None:
    Recording.runs += 1
    graph.work()


def replays_on_rank(folder: str) -> tuple[list[Tensor], int]:
    """Compute one problem again and again, on the first rank by graphs, with new tensors at the
    end."""
    with pytest.MonkeyPatch.context() as patch:
        play(patch, folder)
        patch.setattr(torch.cuda, "CUDAGraph", Recording)
        patch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        patch.setattr(Direct, "record", record)
        patch.setattr(Direct, "replay", replay)
        group = dist.distributed_c10d._get_default_group()
        exchange, graphs, me = (
            Direct(group, group, torch.device("cpu")),
            Replays(),
            dist.get_rank(),
        )
        spans = spans_of("zigzag", 29, 2)
        problem = Problem(spans, (0, 1), me, Sight(right=0), Rules(8**-0.5, backend="math"))
        found = []
        first = Shard(*(shard(t, problem.mine, 2) for t in whole(29, 6)[:3]))
        second = Shard(*(t.clone() for t in first[:3]))
        answer = first.new_answer()
        for x in (*[first] * 8, second):
            answer.out.fill_(torch.nan)

            def work(x: Shard = x) -> None:
                gather.forward(problem, x, exchange, answer)

            if me == 0:
                graphs.run(problem, [*x[:3], *answer], exchange, work)
            else:
                work()
            found.append(answer.out.clone())
        return found, Recording.runs


def test_one_rank_may_replay_graphs_while_the_other_queues_anew(tmp_path):
    (ours, runs), (theirs, none) = results(2, replays_on_rank, str(tmp_path))
    # the first call, and the one with new tensors, have seen their addresses never before
    assert (runs, none) == (7, 0)
    q, k, v, _ = whole(29, 6)
    expected = attention(q, k, v, causal=True, backend="math")
    for pair in zip(ours, theirs, strict=True):
        torch.testing.assert_close(unshard(pair, spans_of("zigzag", 29, 2), 2), expected)


def test_every_tile_has_our_kernel_on_a_hopper_gpu():
    # late queries of a long sequence, whose speed the tables of whole sequences do not tell
    tile = LocalProblem(
        1, 32, 8, 16384, 65536, 128, torch.bfloat16, torch.device("cuda"), (9, 0), 0.1, right=0
    )
    assert local._backend(tile, Rules(0.1), "forward") == "hopper"
    assert local._backend(tile, Rules(0.1, backend="flash"), "backward") == "flash"
