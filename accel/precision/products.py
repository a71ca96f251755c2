"""Round the operands of FP8 layers and multiply them, with little time on the host."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm import cublas
from gpudeck.accel.primitives.gemm.api import gemm, run
from gpudeck.accel.primitives.gemm.lessons import choose_learning
from gpudeck.accel.primitives.gemm.operands import Operands, arrange
from gpudeck.accel.primitives.gemm.problem import Problem
from gpudeck.accel.primitives.quantize.before import NOTHING, Before, apply
from gpudeck.accel.primitives.quantize.fp8 import Fp8, Granularity, by_kernels, emulate, magnitudes
from gpudeck.accel.runtime.named import is_traced

E4M3 = torch.float8_e4m3fn


def rounded(
    x: Tensor,
    kind: Granularity,
    scale: Tensor | None,
    across: bool,
    most: Tensor | None,
    before: Before = NOTHING,
) -> tuple[Fp8, Fp8 | None]:
    """Return f(x) in FP8 and, if wanted, its transpose; `most` is raised to its largest
    magnitude."""
    if by_kernels(x):
        from gpudeck.accel.primitives.quantize.fused import quantize_both_ways

        made = quantize_both_ways(x, kind, E4M3, scale, across=across, most=most, before=before)
        return made.along, made.across
    x = apply(before, x)
    if most is not None and x.numel():
        most.copy_(torch.maximum(most, magnitudes(x).amax()))
    turned = emulate(x.t(), kind, E4M3, scale) if across else None
    return emulate(x, kind, E4M3, scale), turned


@torch.library.custom_op("gpudeck::fp8_product", mutates_args=())
def product_op(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Multiply by a kernel that torch.compile does not know."""
    return gemm(a, b, scales=(scale_a, scale_b), bias=bias, out_dtype=dtype)


@product_op.register_fake
def _(a: Tensor, b: Tensor, *given: Any) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1], dtype=given[3])


_PROBLEMS: dict[object, Problem] = {}
"""Of products in layers, by all that differs between them: they are made of new tensors."""


def product(a: Fp8, b: Fp8, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the product of two FP8 matrices.

    In a compiled graph it is cuBLAS's where that can: the compiler calls it without a wrapper.
    """
    given = (a.values, b.values, a.scales, b.scales, bias)
    if is_traced(a.values):
        problem = _problem(a, b, bias, dtype)
        if cublas.refusal(problem) is None:
            return cublas.multiply_scaled(*given, problem)
        made: Tensor = product_op(*given, dtype)
        return made
    key = (
        a.values.shape, b.values.shape, a.granularity, b.granularity, dtype, bias is None,
        a.values.device, torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    found = _PROBLEMS.get(key)
    if found is None:
        found = _PROBLEMS[key] = _problem(a, b, bias, dtype)
    problem = found

    def operands() -> Operands:
        shape = (problem.m, problem.n)
        return Operands(a.values[None], b.values[None], a.scales, b.scales, bias, problem, shape)

    backend = choose_learning(problem, operands).backend
    if backend == "cublas":  # without the views that its other callers need
        return cublas.multiply_scaled(*given, problem)
    return run(operands(), backend)


def _problem(a: Fp8, b: Fp8, bias: Tensor | None, dtype: torch.dtype) -> Problem:
    return arrange(a.values, b.values, bias, None, dtype, (a.scales, b.scales), None).problem
