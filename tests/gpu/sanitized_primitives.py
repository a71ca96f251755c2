"""Small calls of products, of rounding and of linear attention, for a tool that watches kernels.

As in `tests.gpu.sanitized`, tensors are drawn, and answers compared with float64, on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.api import gemm
from gpudeck.accel.primitives.gemm.grouped import grouped_gemm
from gpudeck.accel.primitives.linear_attention.kinds import KINDS
from gpudeck.accel.primitives.quantize.before import Before, apply, with_statistics
from gpudeck.accel.primitives.quantize.fp8 import Granularity, fp8_quantize
from gpudeck.accel.primitives.quantize.fused import quantize_both_ways
from tests.unit.accel.test_linear_attention import STARTS, drawn, gradients, largest_error

E4M3 = torch.float8_e4m3fn
M, N, K = 200, 328, 272
"""No multiples of tiles, but of the 16 bytes that a copy engine wants."""
ROUNDED: tuple[tuple[Granularity, str], ...] = (
    ("tensor", "layer"), ("row", "rms"), ("tile", "swiglu"), ("block", "none")
)  # fmt: skip
"""What shares a scale, and what comes before."""


def _error(found: Tensor, exact: Tensor) -> float:
    return float((found.detach().cpu().double() - exact).norm() / exact.norm())


def _product(backend: str) -> float:
    a, b, bias = torch.randn(M, K).bfloat16(), torch.randn(K, N).bfloat16(), torch.randn(N)
    exact = (a.double() @ b.double() + bias.bfloat16().double()).relu()
    given = bias.bfloat16().cuda()
    return _error(gemm(a.cuda(), b.cuda(), bias=given, activation="relu", backend=backend), exact)


def _scaled(backend: str, of_a: Granularity, of_b: Granularity) -> float:
    a, b = torch.randn(M, K).bfloat16(), torch.randn(N, K).bfloat16()
    x, y = fp8_quantize(a.cuda(), of_a), fp8_quantize(b.cuda(), of_b).t
    scales = (x.scales, y.scales)
    return _error(
        gemm(x.values, y.values, scales=scales, backend=backend), a.double() @ b.double().t()
    )


def _experts() -> float:
    a, b = torch.randn(M, K).bfloat16(), torch.randn(3, K, N).bfloat16()
    starts = [0, 77, 77, M]
    exact = torch.cat(
        [a[i:j].double() @ b[e].double() for e, (i, j) in enumerate(pairwise(starts))]
    )
    found = grouped_gemm(a.cuda(), b.cuda(), torch.tensor(starts).cuda(), backend="hopper")
    return _error(found, exact)


def _rounded(granularity: Granularity, kind: str) -> float:
    x, (gain, shift) = torch.randn(M, K).bfloat16(), torch.randn(2, K).bfloat16()
    parameters = {"layer": (gain, shift), "rms": (gain, None)}.get(kind, (None, None))
    first = Before(kind, *parameters, 1e-5)
    exact = apply(with_statistics(first, x), x).double()
    known = with_statistics(
        Before(kind, *(t if t is None else t.cuda() for t in parameters), 1e-5), x.cuda()
    )
    made = quantize_both_ways(x.cuda(), granularity, E4M3, before=known)
    assert made.across is not None
    return max(_error(made.along.dequantize(), exact), _error(made.across.dequantize().t(), exact))


def _linear(kind: str) -> float:
    x = drawn(kind, 1, STARTS[-1], 64, 64, strength=0.6, sequences=len(STARTS) - 1)
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("recurrence", kind, x, torch.float64, STARTS)
    there = {n: t.cuda() for n, t in x.items()}
    found = gradients("fused", kind, there, torch.bfloat16, STARTS)
    return largest_error({n: t.cpu() for n, t in found.items()}, exact)


def _one_pass() -> float:
    """Compute decays that are the same for all tokens, without shared keys, by one pass."""
    x = drawn("retention", 1, STARTS[-1], 64, 64, sequences=len(STARTS) - 1)
    x = {n: t.repeat(1, 1, 2, 1) if n in "qk" else t for n, t in x.items()}
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("recurrence", "retention", x, torch.float64, STARTS)
    there = {n: t.cuda() for n, t in x.items()}
    found = gradients("fused", "retention", there, torch.bfloat16, STARTS)
    return largest_error({n: t.cpu() for n, t in found.items()}, exact)


def _parts() -> float:
    """Compute a sequence that is so long that it is cut into parts."""
    x = drawn("gdn", 1, 4096, 64, 64, strength=0.002)
    x = {n: t.bfloat16().double() for n, t in x.items()}
    exact = gradients("chunked", "gdn", x, torch.float64)
    found = gradients("fused", "gdn", {n: t.cuda() for n, t in x.items()}, torch.bfloat16)
    return largest_error({n: t.cpu() for n, t in found.items()}, exact)


CALLS: dict[str, Callable[[], float]] = {
    **{f"linear {kind}": partial(_linear, kind) for kind in KINDS},
    "linear in one pass": _one_pass,
    "linear in parts": _parts,
    **{f"product {backend}": partial(_product, backend) for backend in ("hopper", "triton")},
    "product of experts": _experts,
    "fp8 product of rows": partial(_scaled, "hopper", "row", "row"),
    "fp8 product of blocks": partial(_scaled, "hopper", "tile", "block"),
    "fp8 product of blocks by triton": partial(_scaled, "triton", "tile", "block"),
    **{f"fp8 rounding, {kind}, a scale a {granularity}": partial(_rounded, granularity, kind)
       for granularity, kind in ROUNDED},
}  # fmt: skip
