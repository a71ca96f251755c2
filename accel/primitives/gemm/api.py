"""Compute matrix products: validate, choose a backend, run it, with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.dispatch import GemmChoice, choose
from gpudeck.accel.primitives.gemm.lessons import choose_learning
from gpudeck.accel.primitives.gemm.operands import Operands, arrange, check_rules
from gpudeck.accel.primitives.gemm.plain import activate
from gpudeck.accel.runtime.given import in_order, require_tensors

Scales = tuple[Tensor, Tensor]


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    out_dtype: torch.dtype | None = None,
    scales: Scales | None = None,
    tile_size: int | None = None,
    backend: str = "auto",
) -> Tensor:
    """Compute activation(a b + bias), with sums in float32.

    Shapes: a is [..., m, k], b is [..., k, n], and their batches are broadcast as in torch.matmul.
    Both have one type of 16, 32 or 64 bits and any strides, or are FP8 matrices with `scales`.

    Args:
        bias: [n], added before the activation.
        activation: `relu`, `silu` or `gelu` (exact).
        out_dtype: of the result; that of a by default, bfloat16 for FP8.
        scales: for FP8, the scales of a and of b, float32. One each ([1,1]); [m,1] and [1,n]; or
            [m, k/128] or [m/128, k/128] and [k/128, n/128] or [k/128, n], rounded up: then each
            block of k is multiplied by its scales and added in float32. Scales of tensors and rows
            are applied at the end of sums that the tensor cores round to fewer bits.
        tile_size: the rows and columns of a tile of the result, a power of two from 16 to 256, for
            the backend `triton`, which `auto` then chooses on a GPU.
        backend: `auto` or a name in BACKENDS. See `explain_gemm` for what `auto` chooses.

    Returns:
        [..., m, n]. Gradients flow to a, b and bias, except with scales: see accel.precision.

    Raises:
        ValueError: if the inputs do not fit together, or the named backend cannot compute them.
        TypeError: if what must be a tensor is none.
    """
    require_tensors(a=a, b=b, bias=a if bias is None else bias)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (a, b, bias)):
        if scales is not None:
            raise ValueError(
                "a product with scales has no gradients; accel.precision.convert makes layers that"
                " have"
            )
        out = _Product.apply(a, b, tile_size, backend)  # type: ignore[no-untyped-call]
        check_rules(bias, activation, out_dtype or a.dtype, out.shape[-1], out.device)
        if bias is not None:
            out = out + bias
        return activate(out, activation or "none").to(out_dtype or a.dtype)
    x = arrange(a, b, bias, activation, out_dtype, scales, tile_size)
    return multiply(x, backend)


def explain_gemm(a: Tensor, b: Tensor, *, backend: str = "auto", **rules: Any) -> GemmChoice:
    """Return what `gemm` would run on these tensors, and why."""
    names = ("bias", "activation", "out_dtype", "scales", "tile_size")
    return choose(arrange(a, b, *in_order(names, rules)).problem, backend)


def multiply(x: Operands, backend: str = "auto") -> Tensor:
    """Compute a product of operands that were arranged before; without gradients."""
    p = x.problem
    choice = choose_learning(p, lambda: x) if backend == "auto" else choose(p, backend)
    return run(x, choice.backend)


def run(x: Operands, backend: str) -> Tensor:
    """Compute a product by a backend that can; without gradients."""
    return BACKENDS[backend].run(x).reshape(x.shape)


class _Product(torch.autograd.Function):
    """Give the plain product gradients, which are two more products."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, tile: int | None, backend: str) -> Tensor:
        """Compute a b."""
        ctx.save_for_backward(a, b)
        ctx.how = {"tile_size": tile, "backend": backend}
        return gemm(a, b, **ctx.how)

    @staticmethod
    def backward(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients that are wanted."""
        a, b = ctx.saved_tensors
        da = db = None
        if ctx.needs_input_grad[0]:
            da = gemm(dout, b.mT, **ctx.how).sum_to_size(a.shape)
        if ctx.needs_input_grad[1]:
            if b.dim() == 2:
                rows, grads = a.reshape(-1, a.shape[-1]), dout.reshape(-1, dout.shape[-1])
                db = gemm(rows.mT, grads, **ctx.how)
            else:
                db = gemm(a.mT, dout, **ctx.how).sum_to_size(b.shape)
        return da, db, None, None
