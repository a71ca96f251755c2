"""Measure a square matrix product: `python -P -m accel.workloads.gemm --size=8192 ...`."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from accel.result import Cell, Check
from accel.workloads.harness import main, require
from accel.workloads.options import Values
from accel.workloads.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from accel.runtime.capability import ComputeDevice

SAMPLED_ROWS = 64
COLUMNS_AT_ONCE = 1024


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Multiply random standard normal matrices, C = A B, by a backend of `accel.gemm`."""
    import torch

    from accel.primitives.gemm.api import run
    from accel.primitives.gemm.dispatch import choose
    from accel.primitives.gemm.operands import arrange

    n, dtype = values.integer("size"), getattr(torch, values.text("dtype"))
    require(device, 3.0 * n * n * dtype.itemsize)
    a, b = (torch.randn(n, n, dtype=dtype, device=device.torch_device) for _ in range(2))
    # the columns of b lie side by side, as those of a weight do
    x = arrange(a, b.t(), None, None, None, None, None)
    choice = choose(x.problem, values.text("backend"))

    def call() -> Tensor:
        return run(x, choice.backend)

    reason = choice.reason
    if dtype == torch.float32:
        reason += f"; float32 precision is set to {torch.get_float32_matmul_precision()}"
    cell = Cell(
        1, 1, 1, n, 0, causal=False, dtype=values.text("dtype"), direction="forward",
        contender=values.text("backend"), flops=x.problem.flops, moved=x.problem.moved,
        operation="gemm", sizes=f"{n} x {n} x {n}",
    )  # fmt: skip
    return Task(
        choice.backend, reason, call, lambda: compare(call(), a, b.t()), cell.flops, cell=cell
    )


def compare(c: Tensor, a: Tensor, b: Tensor) -> tuple[Check, ...]:
    """Check sampled rows of C [n,n] against the float64 product.

    The bound on the relative error is one unit in the last place of the dtype, for rounding the
    answer (and partial sums, which some algorithms round to it), plus sqrt(n) units of float32 for
    sums of n products. TF32 instead of float32 would exceed it.
    """
    import torch

    n = a.shape[0]
    rows = torch.randint(n, (min(n, SAMPLED_ROWS),), device=a.device)
    left, got = a[rows].double(), c[rows].double()
    # A few columns at a time: all of B in float64 would take up to eight times its memory.
    exact = torch.cat(
        [left @ b[:, i : i + COLUMNS_AT_ONCE].double() for i in range(0, n, COLUMNS_AT_ONCE)], 1
    )
    bound = torch.finfo(c.dtype).eps + math.sqrt(n) * torch.finfo(torch.float32).eps
    if broken := int((~torch.isfinite(got)).sum()):
        return (
            Check(
                f"share of elements that are not finite, {len(rows)} rows",
                broken / got.numel(),
                0.0,
            ),
        )
    size, difference = (float(torch.linalg.vector_norm(x)) for x in (exact, got - exact))
    return (Check(f"relative error, {len(rows)} rows", difference / size, bound),)


if __name__ == "__main__":
    sys.exit(main("gemm", prepare))
