"""Attention in FP8 over several ranks: by heads the answer of one device to the bit, by keys within
FP8's own error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import results
from torch import Tensor

from gpudeck.accel.attention.fp8 import fp8_attention
from gpudeck.accel.attention.reference import reference
from gpudeck.accel.distributed import distributed_attention, shard, spans_of, unshard

TOKENS = 512
STRATEGIES = ("gather", "ulysses", "ring")
FP8: dict[str, Any] = {"causal": True, "precision": "fp8", "backend": "emulation"}


def whole() -> list[Tensor]:
    draw = torch.Generator().manual_seed(5)
    return [torch.randn(1, h, TOKENS, 64, generator=draw).bfloat16() for h in (4, 2, 2)]


def on_rank() -> list[Tensor]:
    mine = spans_of("zigzag", TOKENS, 2)[dist.get_rank()]
    given = [shard(t, mine, 2) for t in whole()]
    found = []
    for strategy in STRATEGIES:
        out = distributed_attention(*given, strategy=strategy, **FP8)
        assert isinstance(out, Tensor)
        found.append(out)
    for wrong, what in (
        ({"precision": "fp4"}, "precision is None"),
        ({"backend": "auto"}, "needs a CUDA GPU"),
        ({"backend": "flash"}, "no backend for FP8"),
    ):
        with pytest.raises(ValueError, match=what):
            distributed_attention(*given, **{**FP8, **wrong})
    with pytest.raises(ValueError, match="has no gradients"):
        distributed_attention(given[0].requires_grad_(), *given[1:], **FP8)
    return found


def test_it_is_as_near_as_on_one_device():
    q, k, v = whole()
    one = fp8_attention(q, k, v, causal=True, backend="emulation")
    exact = reference(q, k, v, causal=True)

    def error(out: Tensor) -> float:
        return float((out.double() - exact).norm() / exact.norm())

    every = results(2, on_rank)
    spans = spans_of("zigzag", TOKENS, 2)
    for strategy, *shards in zip(STRATEGIES, *every, strict=True):
        out = unshard(shards, spans, 2)
        assert 1e-3 < error(out) < 1.1 * error(one), strategy
        if strategy == "ulysses":
            assert torch.equal(out, one)
