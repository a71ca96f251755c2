"""Compare the answers and gradients of a few heads with float64: one GPU's, and those of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.distributed import distributed_attention, shard, spans_of
from gpudeck.accel.distributed.sharding import Spans
from tests.benchmarks.multi_gpu.cells import Cell, Steps, Table, drawn, on_gpu, shown

K = 1024 if on_gpu() else 16
CASES = (
    (Cell(16, 16, 16 * K), ("gather", "ulysses")),
    (Cell(8, 2, 4 * K + 3, causal=False), ("gather", "ulysses", "ring", "mesh", "hybrid")),
    (Cell(32, 8, 64 * K), ("gather", "ulysses")),
)
ROWS = 2048
"""Queries at a time: their weights over all keys take 1 GiB in float64 at 64k tokens."""
NAMES = ("error", "error_dq", "error_dk", "error_dv")


def exact(q: Tensor, k: Tensor, v: Tensor, dout: Tensor, causal: bool) -> list[Tensor]:
    """Return the output and the gradients of q, k and v in float64.

    Shapes: q and dout [H,S,D], whose heads share one key head; k and v [S,D].
    """
    q, k, v, dout = (t.double() for t in (q, k, v, dout))
    out, dq, dk, dv = (torch.zeros_like(t) for t in (q, q, k, v))
    scale, keys = q.shape[2] ** -0.5, torch.arange(k.shape[0], device=k.device)
    for head in range(q.shape[0]):
        for begin in range(0, q.shape[1], ROWS):
            rows = slice(begin, begin + ROWS)
            scores = q[head, rows] @ k.T * scale
            if causal:
                scores.masked_fill_(keys > keys[rows, None], -torch.inf)
            weights = scores.softmax(1)
            found, upstream = weights @ v, dout[head, rows]
            change = weights * (upstream @ v.T - (found * upstream).sum(1, keepdim=True)) * scale
            out[head, rows], dq[head, rows] = found, change @ k
            dk += change.T @ q[head, rows]
            dv += weights.T @ upstream
    return [out, dq, dk, dv]


def run_float64(table: Table, steps: Steps) -> None:
    """Write how far one GPU and each strategy are from float64 in the first key head."""
    for cell, strategies in CASES:
        with steps.step(f"float64 {cell}", 60) as go:
            if go:
                _compare(table, cell, strategies)


def _compare(table: Table, cell: Cell, strategies: Sequence[str]) -> None:
    whole, group = drawn(cell), cell.heads // cell.kv_heads
    q, k, v, dout = (t[0] for t in whole)
    truth = exact(q[:group], k[0], v[0], dout[:group], cell.causal)
    every = spans_of("contiguous", cell.tokens, 1)[0]
    mine = spans_of("zigzag", cell.tokens, dist.get_world_size())[dist.get_rank()]
    options: dict[str, Any] = {"causal": cell.causal, "backend": "hopper" if on_gpu() else "auto"}
    leaves = [t.requires_grad_() for t in whole[:3]]
    _add(table, cell, "one GPU", attention(*leaves, **options), leaves, dout[None], truth, every)
    given = [shard(t.detach(), mine, 2) for t in whole]
    leaves = [t.requires_grad_() for t in given[:3]]
    options["tokens"] = cell.tokens
    for name in strategies:
        out = distributed_attention(*leaves, strategy=name, backward_strategy=name, **options)
        _add(table, cell, name, out, leaves, given[3], truth, mine)


def _add(
    table: Table, cell: Cell, name: str, out: Any, leaves: list[Tensor], dout: Tensor,
    truth: list[Tensor], rows: Spans,
) -> None:  # fmt: skip
    """Write the errors over the rows of all ranks, in the norm of all of them."""
    grads = torch.autograd.grad(out, leaves, dout)
    group = cell.heads // cell.kv_heads
    got = [out[0, :group], grads[0][0, :group], grads[1][0, 0], grads[2][0, 0]]
    wanted = [shard(t, rows, -2) for t in truth]
    pairs = zip(got, wanted, strict=True)
    squares = torch.stack(
        [torch.stack([(g.double() - w).square().sum(), w.square().sum()]) for g, w in pairs]
    )
    dist.all_reduce(squares)
    errors = squares[:, 0].div(squares[:, 1]).sqrt().tolist()
    row = dict(zip(NAMES, map(shown, errors), strict=True))
    table.add(check="float64", strategy=name, **cell.columns, **row)
