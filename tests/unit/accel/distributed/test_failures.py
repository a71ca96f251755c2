"""Whatever one rank does wrong, every rank gets an error, and none hangs."""

from __future__ import annotations

import os
import time

import pytest
import torch
import torch.distributed as dist
from ranks import Failed, on_ranks, results

from gpudeck.accel.distributed import distributed_attention, explain


def refused(different: dict) -> str:
    x = torch.randn(1, 2, 8, 4)
    options = {"causal": True, **(different if dist.get_rank() == 1 else {})}
    shape = options.pop("shape", None)
    try:
        distributed_attention(*([torch.randn(shape)] * 3 if shape else [x] * 3), **options)
    except ValueError as e:
        return str(e)
    return ""


@pytest.mark.slow
def test_ranks_that_ask_for_different_things_are_all_told():
    for different in (
        {"causal": False}, {"shape": (1, 2, 9, 4)}, {"shape": (1, 2, 8)}, {"layout": "spiral"},
        {"strategy": "magic"}, {"scale": 0.25},
    ):  # fmt: skip
        for message in results(3, refused, different):
            assert "rank 0:" in message, different
            assert "rank 1:" in message


def lost(strategy: str) -> float:
    x = torch.randn(1, 3, 8, 4)
    distributed_attention(x, x, x, strategy=strategy)  # they have agreed, and know each other
    if dist.get_rank() == 2:
        os._exit(1)
    began = time.monotonic()
    try:
        for _ in range(3):
            distributed_attention(x, x, x, strategy=strategy)
    except RuntimeError:
        return time.monotonic() - began
    raise AssertionError("the lost rank was not missed")


@pytest.mark.slow
def test_a_lost_rank_is_an_error_on_all_others():
    for strategy in ("gather", "ulysses", "ring"):
        found = on_ranks(3, lost, strategy, patience=70.0)
        for answer in found[:2]:
            assert not isinstance(answer, Failed), answer
            assert answer < 60.0


def choices() -> list[str]:
    x = torch.randn(1, 3, 8, 4)
    forward, backward = explain(x, x, x, causal=True, strategy="ring")
    return [forward.strategy, backward.strategy, forward.exchange, str(forward)]


def test_the_strategy_that_runs_is_named():
    forward, backward, exchange, text = results(2, choices)[0]
    assert forward == "ring"
    assert backward in ("gather", "ring", "mesh")
    assert exchange == "messages of gloo"
    assert "ulysses  no: it needs key heads that 2 ranks divide" in text
