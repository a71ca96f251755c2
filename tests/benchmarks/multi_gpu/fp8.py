"""Time the forward pass in FP8 over all GPUs, beside one GPU with its part of the heads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.distributed import distributed_attention, shard, spans_of
from tests.benchmarks.multi_gpu.cells import (
    CELLS,
    Cell,
    Make,
    Steps,
    Table,
    drawn,
    in_turns,
    on_gpu,
    say,
    shown,
)
from tests.benchmarks.multi_gpu.speed import expected_ms

STRATEGIES = ("gather", "ulysses")
FP8: dict[str, Any] = {"precision": "fp8", "backend": "auto" if on_gpu() else "emulation"}


def run_fp8(table: Table, steps: Steps) -> None:
    """Write the milliseconds of each strategy, and say how near its answer is to one GPU's."""
    for cell in CELLS[:2]:
        with steps.step(f"FP8 {cell}", 40) as go, torch.no_grad():
            if go:
                _measure(table, cell)


def _measure(table: Table, cell: Cell) -> None:
    whole, part = (
        [t.bfloat16() for t in drawn(cell, ranks)[:3]] for ranks in (1, dist.get_world_size())
    )
    options = {"causal": cell.causal, **FP8}
    mine = spans_of("zigzag", cell.tokens, dist.get_world_size())[dist.get_rank()]
    given = [shard(t, mine, 2) for t in whole]
    calls: dict[str, Callable[[], Any]] = {"ideal": partial(attention, *part, **options)}
    for name in STRATEGIES:
        calls[name] = partial(distributed_attention, *given, strategy=name, **options)
        _compare(name, calls[name](), shard(attention(*whole, **options), mine, 2))
    times = in_turns([_as_it_is(call) for call in calls.values()], expected_ms(cell, 0.7))
    for name, ms in zip(calls, times, strict=True):
        names = (
            {"contender": "ideal"} if name == "ideal" else {"contender": "ours", "strategy": name}
        )
        table.add(
            **cell.columns, **names, **{"pass": "forward"}, setting="FP8", ms=round(ms, 3),
            ideal_ms=round(times[0], 3), share=round(times[0] / ms, 3),
        )  # fmt: skip


def _as_it_is(call: Callable[[], object]) -> Make:
    def make(_: ExitStack) -> Callable[[], object]:
        return call

    return make


def _compare(name: str, got: Tensor, one: Tensor) -> None:
    error = float((got.float() - one.float()).norm() / one.float().norm())
    say(f"FP8, {name}: {shown(error)} from one GPU's, equal: {torch.equal(got, one)}")
