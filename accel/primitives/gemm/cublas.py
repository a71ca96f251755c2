"""Compute products with NVIDIA's library cuBLAS, through torch."""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.plain import activate
from gpudeck.accel.primitives.gemm.problem import BLOCK, FP8, Problem
from gpudeck.language.text import Text, phrase

_MULTIPLE = 16
_SCALES = 4


def refusal(p: Problem) -> Text | None:
    """Return why cuBLAS cannot compute a problem, or None."""
    if p.capability is None:
        return phrase("needs a CUDA GPU")
    if p.dtype not in FP8:
        return None
    if p.capability < (8, 9):
        return phrase("needs compute capability {version} for FP8", version="8.9")
    if p.k % _MULTIPLE or p.n % _MULTIPLE or 0 in (p.m, p.n, p.k):
        return phrase(
            "needs n and k to be multiples of {limit} for FP8; got {n} and {k}",
            limit=_MULTIPLE,
            n=p.n,
            k=p.k,
        )
    if not (p.a_along and p.b_along and p.boxes):
        return phrase("needs rows of a, and columns of b, that lie side by side for FP8")
    if p.dtype == torch.float8_e5m2:
        return phrase("takes FP8 as E4M3 here")
    if p.scaling == "block" and p.capability[0] != 9:
        return phrase("has scales of blocks on Hopper only")
    row = p.scaling == "outer" and 1 in p.steps
    if row and (p.steps != (1, 1) or p.out_dtype != torch.bfloat16):
        return phrase("takes scales of rows for both operands, and gives bfloat16 then")
    if p.scaling == "block" and p.m % 4:
        return phrase("needs m to be a multiple of 4 for scales of tiles; got {n}", n=p.m)
    if p.scaling == "block" and BLOCK in p.steps and -(-p.k // BLOCK) % _SCALES:
        # it reads these scales in lines of a multiple of 4 (cuBLAS documentation, "128x128 2D block
        # scaling"), so that NaN behind them came into results; torch refuses longer lines
        return phrase(
            "needs k of a multiple of {limit} for scales of 128x128 blocks; got {n}",
            limit=_SCALES * BLOCK,
            n=p.k,
        )
    if p.scaling == "block" and (p.steps == (128, 128) or 0 in p.steps):
        return phrase("takes scales of 1x128 tiles, or of 128x128 blocks for one operand")
    return None


def cublas(x: Operands) -> Tensor:
    """Return the result [batch, m, n]."""
    p = x.problem
    if p.dtype in FP8:
        assert x.scale_a is not None and x.scale_b is not None
        out = multiply_scaled(x.a[0], x.b[0], x.scale_a, x.scale_b, x.bias, p).unsqueeze(0)
        return activate(out, p.activation)
    if p.bias and p.batch == 1 and p.out_dtype == p.dtype:
        assert x.bias is not None
        return activate(torch.addmm(x.bias.to(p.dtype), x.a[0], x.b[0]).unsqueeze(0), p.activation)
    out = torch.matmul(x.a, x.b).to(p.out_dtype)
    if x.bias is not None:
        out = out + x.bias.to(out.dtype)
    return activate(out, p.activation)


def multiply_scaled(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, p: Problem
) -> Tensor:
    """Return the product of matrices in FP8 [m, n], and the bias added, without an activation."""
    if p.scaling == "block":
        # cuBLAS wants the scales of tiles of 1x128 with neighbouring rows side by side, and
        # those of blocks with neighbouring blocks of k side by side
        scale_a = _along(scale_a, 0 if p.steps.a == 1 else 1)
        scale_b = _along(scale_b, 1 if p.steps.b == 1 else 0)
    elif 1 in p.steps:
        scale_a, scale_b = scale_a.contiguous(), scale_b.contiguous()
    else:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    outer = p.scaling == "outer"
    fused = bias is not None and bias.dtype == p.out_dtype and outer
    out = torch._scaled_mm(
        a, b, scale_a, scale_b, bias if fused else None, out_dtype=p.out_dtype,
        use_fast_accum=outer,
    )  # fmt: skip
    return out if fused or bias is None else out + bias.to(out.dtype)


def _along(scales: Tensor, dim: int) -> Tensor:
    """Return scales whose neighbours along `dim` lie side by side."""
    if scales.stride(dim) == 1 and scales.stride(1 - dim) >= scales.shape[dim]:
        return scales
    return scales.contiguous() if dim == 1 else scales.t().contiguous().t()
