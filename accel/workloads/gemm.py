"""Measure a square matrix product: `python -P -m gpudeck.accel.workloads.gemm --size=8192 ...`."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from gpudeck.accel.result import Cell, Check, not_finite
from gpudeck.accel.workloads.harness import main, require
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.task import Task
from gpudeck.language.text import Message, join_texts, phrase

if TYPE_CHECKING:
    from torch import Tensor

    from gpudeck.accel.primitives.gemm.operands import Operands
    from gpudeck.accel.runtime.capability import ComputeDevice

SAMPLED_ROWS = 64
COLUMNS_AT_ONCE = 1024
SHORT_SUMS = 2.0**-14
"""The unit of sums of FP8 in the tensor cores of Hopper (DeepSeek-V3, arXiv 2412.19437, 3.3.2)."""


def prepare(values: Values, device: ComputeDevice) -> Task:
    """Multiply random standard normal matrices, C = A B, by a backend of `accel.gemm`."""
    import torch

    from gpudeck.accel.primitives.gemm.api import run
    from gpudeck.accel.primitives.gemm.dispatch import choose

    n, dtype = values.integer("size"), values.text("dtype")
    require(device, 3.0 * n * n * (4 if dtype == "float32" else 2))
    x = posed(n, dtype, device)
    choice = choose(x.problem, values.text("backend"))

    def call() -> Tensor:
        return run(x, choice.backend)

    reason = choice.reason
    if dtype == "float32":
        set_to = torch.get_float32_matmul_precision()
        precision = phrase("float32 precision is set to {quote}", quote=set_to)
        reason = join_texts((reason, precision))
    kind, _, recipe = dtype.partition("-")
    cell = Cell(
        1, 1, 1, n, 0, causal=False, dtype=kind, direction="forward",
        contender=values.text("backend"), flops=x.problem.flops, moved=x.problem.moved,
        operation="gemm", sizes=_shape(n, recipe),
        form=dtype,
    )  # fmt: skip
    return Task(choice.backend, reason, call, lambda: compare(call(), x), cell.flops, cell=cell)


def posed(n: int, dtype: str, device: ComputeDevice) -> Operands:
    """Draw both operands; in FP8 they are rounded here, once."""
    import torch

    from gpudeck.accel.primitives.gemm.low_precision import OF_A, OF_B
    from gpudeck.accel.primitives.gemm.operands import arrange
    from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize

    kind, _, recipe = dtype.partition("-")
    held = torch.bfloat16 if kind == "fp8" else getattr(torch, kind)
    # the columns of b lie side by side, as those of a weight do
    a, b = (torch.randn(n, n, dtype=held, device=device.torch_device) for _ in range(2))
    if kind != "fp8":
        return arrange(a, b.t(), None, None, None, None, None)
    left, right = fp8_quantize(a, OF_A[recipe]), fp8_quantize(b, OF_B[recipe]).t
    scales = (left.scales, right.scales)
    return arrange(left.values, right.values, None, None, None, scales, None)


def compare(c: Tensor, x: Operands) -> tuple[Check, ...]:
    """Check sampled rows of C [n,n] against the float64 product of the operands, as rounded.

    The bound on the relative error is one unit in the last place of the dtype, for rounding the
    answer (and partial sums, which some algorithms round to it), plus sqrt(n) units of float32 for
    sums of n products. TF32 instead of float32 would exceed it. The sums of FP8 with scales at
    their end have fewer bits: tensor cores keep 14.
    """
    import torch

    from gpudeck.accel.primitives.gemm.reference import reference

    p, n = x.problem, x.problem.n
    rows = torch.randint(n, (min(n, SAMPLED_ROWS),), device=c.device)
    part = replace(x, a=x.a[:, rows], scale_a=_of_rows(x.scale_a, rows))
    got = c[rows].double()
    # A few columns at a time: all of B in float64 would take up to eight times its memory.
    exact = torch.cat(
        [reference(_columns(part, i, COLUMNS_AT_ONCE))[0] for i in range(0, n, COLUMNS_AT_ONCE)], 1
    )
    unit = SHORT_SUMS if p.scaling == "outer" else torch.finfo(torch.float32).eps
    bound = torch.finfo(c.dtype).eps + math.sqrt(n) * unit
    if broken := int((~torch.isfinite(got)).sum()):
        return (not_finite(broken / got.numel()),)
    size, difference = (float(torch.linalg.vector_norm(t)) for t in (exact, got - exact))
    name = phrase("relative error, {n} rows", n=len(rows))
    return (Check(name, difference / size, bound),)


def _shape(n: int, recipe: str) -> Message:
    shape = f"{n} x {n} x {n}"
    return phrase("{shape}, scales by {recipe}", shape=shape, recipe=recipe) if recipe else shape


def _of_rows(scales: Tensor | None, rows: Tensor) -> Tensor | None:
    """Return the scales of some rows of A, where each has its own."""
    return scales if scales is None or len(scales) == 1 else scales[rows]


def _columns(x: Operands, first: int, count: int) -> Operands:
    """Return the product of the columns of B from `first` on, a multiple of all blocks' sizes."""
    scales = x.scale_b
    if scales is not None and scales.shape[1] > 1:
        step = x.problem.steps.b
        scales = scales[:, first // step : -(-(first + count) // step)]
    return replace(x, b=x.b[:, :, first : first + count], scale_b=scales)


if __name__ == "__main__":
    sys.exit(main("gemm", prepare))
