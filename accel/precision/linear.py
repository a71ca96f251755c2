"""Compute x Wᵀ + b and its gradients with all three products in FP8.

Each operand is rounded along the dimension that its product sums over, so x, W and the gradient of
the output are needed along both of their dimensions; one reading gives both. torch.compile sees
each of the two operations as one operator.

Sources: tensor and row: Micikevicius et al., arXiv 2209.05433; block: DeepSeek-V3, arXiv
2412.19437, section 3.3.2 (activations and gradients in tiles of 1x128, weights in blocks of
128x128, everything in E4M3).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from accel.primitives.gemm import cublas
from accel.primitives.gemm.api import gemm
from accel.primitives.gemm.operands import arrange
from accel.primitives.quantize.fp8 import Fp8, Granularity, emulated, magnitudes
from accel.runtime.named import traced

Recipe = Literal["delayed", "tensor", "row", "block"]
RECIPES: tuple[str, ...] = get_args(Recipe)
E4M3 = torch.float8_e4m3fn
_OF_X: dict[str, Granularity] = {
    "delayed": "tensor", "tensor": "tensor", "row": "row", "block": "tile"
}  # fmt: skip
_OF_W: dict[str, Granularity] = {**_OF_X, "block": "block"}


def fp8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    recipe: str,
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Return x Wᵀ + b, and the largest magnitudes of x and of W; see `_forward`.

    While torch compiles it is one operator. Otherwise it is a function of autograd's: on an H200
    the wrappers of both operators took 1.4 of 1.6 ms of a step's host time.
    """
    given = (x, weight, bias, scale_x, scale_w, recipe, training)
    if torch.compiler.is_compiling():
        found = forward_op(*given)
        return found[0], found[5]
    out, most = _Eager.apply(*given)  # type: ignore[no-untyped-call]
    return out, most


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    recipe: str,
    training: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return x [m,k] times weight [n,k] transposed, and what the backward pass needs.

    Args:
        scale_x, scale_w: scales that are known before (delayed), or None.
        recipe: a name in RECIPES.
        training: whether gradients will be wanted.

    Returns:
        out [m,n]; xᵀ and Wᵀ in FP8, each followed by its scales (empty without training); and the
        largest magnitudes of x and of W, float32 [2], of the recipe `delayed`.
    """
    delayed = recipe == "delayed"
    most = (x.new_zeros if delayed else x.new_empty)(2, dtype=torch.float32)
    x_along, x_across = _rounded(x, _OF_X[recipe], scale_x, training, most[:1] if delayed else None)
    w_along, w_across = _rounded(
        weight, _OF_W[recipe], scale_w, training, most[1:] if delayed else None
    )
    out = _product(x_along, w_along.t, bias, x.dtype)
    kept = [t for part in (x_across, w_across) for t in _parts(part, x)]
    return out, kept[0], kept[1], kept[2], kept[3], most


def _gradients(
    dout: Tensor,
    x: Tensor,
    x_scales: Tensor,
    weight: Tensor,
    weight_scales: Tensor,
    recipe: str,
    dtype: torch.dtype,
    wants_x: bool,
    wants_weight: bool,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of x [m,k] and of the weight [n,k], empty where they are not wanted.

    Args:
        dout: the gradient of the output, [m,n].
        x, x_scales: xᵀ [k,m] in FP8.
        weight, weight_scales: Wᵀ [k,n] in FP8.
        recipe: a name in RECIPES.
        dtype: of the weight's gradient.
        wants_x, wants_weight: which gradients are wanted.
    """
    kind = _OF_X[recipe]
    along, across = _rounded(dout.contiguous(), kind, None, wants_weight, None)
    dx, dw = dout.new_empty(0), dout.new_empty(0, dtype=dtype)
    if wants_x:
        dx = _product(along, Fp8(weight, weight_scales, _OF_W[recipe]).t, None, dout.dtype)
    if wants_weight:
        assert across is not None
        dw = _product(across, Fp8(x, x_scales, kind).t, None, dtype)
    return dx, dw


def _unshared(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    recipe: str,
    training: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what `_forward` does, in tensors that share no memory, as an operator must."""
    out, x, x_scales, weight, weight_scales, most = _forward(
        x, weight, bias, scale_x, scale_w, recipe, training
    )
    return out, x, x_scales.clone(), weight, weight_scales.clone(), most


forward_op = torch.library.triton_op("gpudeck::fp8_linear", mutates_args=())(_unshared)
backward_op = torch.library.triton_op("gpudeck::fp8_linear_backward", mutates_args=())(_gradients)


@torch.library.custom_op("gpudeck::fp8_product", mutates_args=())
def product_op(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Multiply by a kernel that torch.compile does not know."""
    return gemm(a, b, scales=(scale_a, scale_b), bias=bias, out_dtype=dtype)


@product_op.register_fake
def _(a: Tensor, b: Tensor, *given: Any) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[1], dtype=given[3])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, bias, _, _, recipe, _ = inputs
    ctx.save_for_backward(*output[1:5])
    ctx.set_materialize_grads(False)  # of what is kept, which has none
    ctx.recipe, ctx.dtype = recipe, weight.dtype
    ctx.bias = None if bias is None else bias.dtype


def _backward(ctx: Any, dout: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    return _all_gradients(ctx, dout, backward_op)


def _all_gradients(ctx: Any, dout: Tensor | None, products: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients of all arguments; `products` computes those of x and of the weight."""
    if dout is None:
        return (None,) * 7
    wants_x, wants_weight, wants_bias = ctx.needs_input_grad[:3]
    dx = dw = db = None
    if wants_x or wants_weight:
        dx, dw = products(dout, *ctx.saved_tensors, ctx.recipe, ctx.dtype, wants_x, wants_weight)
    if wants_bias:
        db = dout.sum(0, dtype=torch.float32).to(ctx.bias)
    return dx if wants_x else None, dw if wants_weight else None, db, None, None, None, None


forward_op.register_autograd(_backward, setup_context=_setup)


class _Eager(torch.autograd.Function):
    """Compute what the operators compute, without their wrappers."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Return out and the largest magnitudes."""
        found = _forward(*given)
        _setup(ctx, given, found)
        ctx.mark_non_differentiable(found[5])
        return found[0], found[5]

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments."""
        return _all_gradients(ctx, dout, _gradients)


def _rounded(
    x: Tensor, kind: Granularity, scale: Tensor | None, across: bool, most: Tensor | None
) -> tuple[Fp8, Fp8 | None]:
    """Return a matrix in FP8 and, if wanted, its transpose; `most` gets its largest magnitude."""
    if x.device.type == "cuda" and x.numel():
        from accel.primitives.quantize.fused import amax, both_ways

        if scale is None and most is not None:
            from accel.primitives.quantize.fp8 import scale_of

            most.copy_(amax(x))
            scale, most = scale_of(most, E4M3), None
        made = both_ways(x, kind, E4M3, scale, across=across, most=most)
        assert made.along is not None
        return made.along, made.across
    if most is not None and x.numel():
        most.copy_(magnitudes(x).amax().reshape(1))
    turned = emulated(x.t(), kind, E4M3, scale) if across else None
    return emulated(x, kind, E4M3, scale), turned


def _product(a: Fp8, b: Fp8, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Return the product of two FP8 matrices.

    In a compiled graph it is cuBLAS's where that can: the compiler calls it without a wrapper.
    """
    if traced(a.values):
        scales = (a.scales, b.scales)
        x = arrange(a.values, b.values, bias, None, dtype, scales, None)
        if cublas.refusal(x.problem) is None:
            return cublas.cublas(x).reshape(x.shape)
        return product_op(a.values, b.values, *scales, bias, dtype)
    return gemm(a.values, b.values, scales=(a.scales, b.scales), bias=bias, out_dtype=dtype)


def _parts(x: Fp8 | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and scales, empty ones for None."""
    if x is None:
        return like.new_empty(0, dtype=E4M3), like.new_empty(0, dtype=torch.float32)
    return x.values.contiguous(), x.scales
