"""Every strategy gives the answer and the gradients of one device, on 2, 3, 4 and 8 ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from ranks import results
from torch import Tensor

from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.distributed.api import distributed_attention
from gpudeck.accel.distributed.operation import problem_over
from gpudeck.accel.distributed.problem import Problem, Rules
from gpudeck.accel.distributed.sharding import Span, Spans, shard, spans_of, unshard
from gpudeck.accel.distributed.strategies.heads import Moved, head_exchange
from gpudeck.accel.distributed.tiles import Sight


class Case(NamedTuple):
    """One problem, and how it is divided."""

    strategy: str
    layout: str | tuple[Spans, ...] = "zigzag"
    tokens: int = 52
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 8
    value_dim: int = 8
    batch: int = 1
    causal: bool = True
    window: tuple[int | None, int | None] = (None, None)
    documents: tuple[int, ...] = ()
    softcap: float = 0.0
    sink: bool = False
    backward: str = ""

    def spans(self, ranks: int) -> tuple[Spans, ...]:
        if isinstance(self.layout, str):
            return spans_of(self.layout, self.tokens, ranks)
        return self.layout


def tensors(case: Case) -> tuple[list[Tensor], Tensor, Tensor, Tensor | None]:
    draw = torch.Generator().manual_seed(7)
    shapes = [(case.heads, case.head_dim), (case.kv_heads, case.head_dim)]
    shapes += [(case.kv_heads, case.value_dim), (case.heads, case.value_dim)]
    q, k, v, dout = (
        torch.randn(case.batch, h, case.tokens, d, generator=draw, dtype=torch.float64)
        for h, d in shapes
    )
    dlse = torch.randn(case.batch, case.heads, case.tokens, generator=draw, dtype=torch.float64)
    sink = torch.randn(case.heads, generator=draw, dtype=torch.float64) if case.sink else None
    return [q, k, v], dout, dlse, sink


def options(case: Case) -> dict[str, Any]:
    return {"causal": case.causal, "window": case.window, "softcap": case.softcap}


def expected(case: Case) -> list[Tensor]:
    """Return out, lse and the gradients of q, k, v and the sink by the formula on one device."""
    qkv, dout, dlse, sink = tensors(case)
    leaves = [t.requires_grad_() for t in (*qkv, *([] if sink is None else [sink]))]
    ragged = Ragged.of(case.documents, device="cpu") if case.documents else None
    rows = []
    for b in range(case.batch):
        one = [t[b : b + 1] for t in qkv]
        rows.append(reference(*one, **options(case), sink=sink, ragged=ragged, return_lse=True))
    out, lse = (torch.cat(part) for part in zip(*rows, strict=True))
    seen = ~lse.isinf()
    loss = (out * dout).sum() + (lse.masked_fill(~seen, 0.0) * dlse * seen).sum()
    return [out.detach(), lse.detach(), *torch.autograd.grad(loss, leaves)]


def on_rank(cases: list[Case]) -> list[list[Tensor]]:
    import torch.distributed as dist

    found, groups = [], set[int]()
    for case in cases:
        spans = case.spans(dist.get_world_size())
        mine = spans[dist.get_rank()]
        qkv, dout, dlse, sink = tensors(case)
        leaves = [shard(t, mine, 2).requires_grad_() for t in qkv]
        if sink is not None:
            leaves.append(sink.requires_grad_())
        given = {
            **options(case), "sink": sink, "layout": case.layout, "tokens": case.tokens,
            "seqlens": case.documents or None, "strategy": case.strategy, "backend": "math",
            "backward_strategy": case.backward or case.strategy,
        }  # fmt: skip
        out, lse = distributed_attention(*leaves[:3], return_lse=True, **given)
        seen = ~lse.isinf()
        loss = (out * shard(dout, mine, 2)).sum()
        loss = loss + (lse.masked_fill(~seen, 0.0) * shard(dlse, mine, 2) * seen).sum()
        grads = torch.autograd.grad(loss, leaves)
        found.append([out.detach(), lse.detach(), *grads])
        groups.add(len(dist.distributed_c10d._world.pg_map))
    assert len(groups) == 1, "later calls use the connections of the first one"
    return found


def close(found: Tensor, wanted: Tensor, what: str) -> None:
    torch.testing.assert_close(
        found.double(), wanted.double(), rtol=1e-5, atol=1e-5, msg=lambda m: f"{what}: {m}"
    )


def compare(ranks: int, cases: list[Case]) -> None:
    every = results(ranks, on_rank, cases)
    for number, case in enumerate(cases):
        spans = case.spans(ranks)
        wanted = expected(case)
        for i, name in enumerate(("out", "lse", "dq", "dk", "dv")):
            whole = unshard([answers[number][i] for answers in every], spans, 2)
            close(whole, wanted[i], f"{name} of {case} on {ranks}")
        if case.sink:
            close(sum(a[number][5] for a in every), wanted[5], f"sink of {case}")


UNEVEN = (((0, 3), (20, 41)), (), ((3, 20), (41, 52)))
DOCUMENTS = (5, 1, 20, 0, 9, 17)


def spread(ranks: int) -> tuple[Spans, ...]:
    """Return shards of very different sizes, of which one is empty."""
    every = [tuple(Span(*pair) for pair in mine) for mine in UNEVEN]
    return tuple(every[:3] + [()] * (ranks - 3)) if ranks >= 3 else (every[0], every[2])


def cases(ranks: int) -> list[Case]:
    heads = 2 * ranks
    return [
        Case("gather", heads=4, kv_heads=2),
        Case("gather", "contiguous", causal=False, batch=2),
        Case("gather", tokens=ranks, sink=True),
        Case("gather", window=(9, 2), causal=False, kv_heads=1),
        Case("gather", documents=DOCUMENTS, batch=2, value_dim=4, backward="ring"),
        Case("gather", spread(ranks), sink=True),
        Case("gather", documents=DOCUMENTS, causal=False, window=(4, None)),
        Case("ulysses", heads=2 * heads, kv_heads=heads, value_dim=4),
        Case("ulysses", "striped", heads=heads, kv_heads=heads, sink=True, documents=DOCUMENTS),
        Case("ulysses", spread(ranks), heads=heads, kv_heads=heads, causal=False, softcap=2.0),
        Case("ring", "striped", tokens=37, sink=True),
        Case("ring", "striped", window=(6, 0), documents=DOCUMENTS),
        Case("ring", "contiguous", causal=False, heads=4, kv_heads=1, batch=2),
        Case("ring", spread(ranks), window=(11, 3), causal=False, sink=True),
        Case("mesh", heads=8, kv_heads=8, documents=DOCUMENTS),
        Case("mesh", "striped", tokens=3, heads=1, kv_heads=1, sink=True),
    ] + (
        [Case("hybrid", kv_heads=2, sink=True), Case("hybrid", "striped", documents=DOCUMENTS)]
        if ranks % 2 == 0
        else []
    )


def test_two_ranks_give_the_answer_of_one_device():
    compare(2, [case for case in cases(2) if case.sink])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_strategies_are_exact(ranks):
    compare(ranks, cases(ranks))


def test_members_of_a_group_have_room_for_the_tokens_of_the_group_alone():
    """In a strategy of two stages, neighbours exchange heads of their own tokens."""
    spans = ((Span(0, 4), Span(60, 64)), (Span(4, 8), Span(56, 60)))
    problem = Problem(spans, (0, 1), 0, Sight(), Rules(1.0))
    kinds = (Moved(1, 1, 8, torch.float32),)
    (landing,) = head_exchange(problem, 2, False).inbound(kinds, 0, 1).buffers
    assert landing == ((1, 1, 16, 8), torch.float32)


def test_a_layout_covers_every_position_from_the_first_one_on():
    def problem(*spans):
        flat = tuple(number for rank, pair in enumerate(spans) for number in (rank, *pair, 1))
        return problem_over(2, 0, 4, "", flat, 8, (), (-1, -1), Rules(1.0))

    assert problem((0, 4), (4, 8)).tokens == 8
    for spans in (((1, 5), (5, 9)), ((0, 4), (5, 9)), ((0, 4), (3, 7))):
        with pytest.raises(ValueError, match="every position once, from 0 on"):
            problem(*spans)
