"""Measure attention whose sequence is divided among several processes.

Run `python -P -m gpudeck.accel.workloads.distributed --ranks=2 ...`. On GPUs each process has one
of its own; on a CPU they exchange messages by gloo. A call includes dividing the tensors among the
processes and putting the answer together.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gpudeck.accel.result import Cell, Check, not_finite
from gpudeck.accel.workloads.harness import main, require
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.task import Task
from gpudeck.language.text import join_texts, phrase

if TYPE_CHECKING:
    from torch import Tensor

    from gpudeck.accel.runtime.capability import ComputeDevice

SLICE = 64
"""The queries at the beginning and at the end that are compared with float64."""


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Start the processes, and compute the forward pass of one sequence."""
    import torch

    from gpudeck.accel.distributed.pool import pool_of

    ranks, tokens, heads, kv_heads, size = (
        values.integer(name) for name in ("ranks", "seq", "heads", "key_heads", "head_dim")
    )
    dtype, causal = getattr(torch, values.text("dtype")), values.flag("causal")
    if heads % kv_heads:
        raise ValueError(f"key_heads must divide heads; got {kv_heads} for {heads}")
    elements = float(tokens * size * (2 * heads + 2 * kv_heads))
    require(device, 4 * elements * dtype.itemsize)
    q, k, v = (
        torch.randn(1, h, tokens, size, device=device.torch_device, dtype=dtype)
        for h in (heads, kv_heads, kv_heads)
    )
    options: dict[str, Any] = {"causal": causal, "strategy": values.text("strategy")}
    pool = pool_of(ranks, device.torch_device.type)
    try:
        choice = pool.explain(q, k, v, options)
    except RuntimeError as e:  # a rank says why it cannot
        raise ValueError(str(e)) from e

    def call() -> Tensor:
        return pool.forward(q, k, v, options)[0]

    pairs = tokens * (tokens + 1) / 2 if causal else float(tokens) ** 2
    cell = Cell(
        1, heads, kv_heads, tokens, size, causal=causal, dtype=values.text("dtype"),
        direction="forward", contender=values.text("strategy"), flops=4.0 * heads * pairs * size,
        moved=elements * dtype.itemsize, operation="distributed",
        sizes=phrase(
            "{n} processes, {tokens} tokens, {heads} over {kv_heads} heads of {size}",
            n=ranks, tokens=tokens, heads=heads, kv_heads=kv_heads, size=size,
        ),
        form=f"{ranks} processes",
    )  # fmt: skip
    return Task(
        choice.strategy, join_texts((choice.reason, choice.exchange)), call,
        lambda: compare(call(), q, k, v, causal), cell.flops, cell=cell,
        detail=lambda: ", ".join(f"rank {r} {1e3 * s:.3g} ms" for r, s in enumerate(pool.seconds)),
    )  # fmt: skip


def compare(out: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Check, ...]:
    """Check all of the answer against one device, and its ends against float64.

    The bounds are twice the error that the plain computation in the inputs' dtype has on the same
    slices, and 1e-4.
    """
    import torch

    from gpudeck.accel.attention.api import attention
    from gpudeck.accel.attention.reference import reference

    if broken := int((~torch.isfinite(out)).sum()):
        return (not_finite(broken / out.numel()),)
    n = min(SLICE, q.shape[2])
    keys = slice(0, n) if causal else slice(None)
    ends = (
        (phrase("the first {n} queries: error", n=n),
         (q[:, :, :n], k[:, :, keys], v[:, :, keys], out[:, :, :n])),
        (phrase("the last {n} queries: error", n=n), (q[:, :, -n:], k, v, out[:, :, -n:])),
    )  # fmt: skip
    checks, allowed = [], 1e-4
    for name, (queries, some, values, got) in ends:
        exact = reference(queries, some, values, causal=causal)
        plain = reference(queries, some, values, causal=causal, dtype=q.dtype)
        bound = max(1e-4, 2 * _error(plain.double(), exact))
        allowed = max(allowed, bound)
        checks.append(Check(name, _error(got.double(), exact), bound))
    one = attention(q, k, v, causal=causal)
    checks.append(
        Check(phrase("against one device: error"), _error(out.double(), one.double()), allowed)
    )
    return tuple(checks)


def _error(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).norm() / wanted.norm().clamp(min=1e-30))


if __name__ == "__main__":
    sys.exit(main("distributed", prepare))
