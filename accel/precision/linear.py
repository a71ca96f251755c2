"""Compute x Wᵀ + b and its gradients with all three products in FP8.

Each operand is rounded along the dimension that its product sums over, so x, W and the gradient of
the output are needed along both of their dimensions; one reading gives both. A norm or an
activation f that x passes through first is computed where x is rounded.

Sources: tensor and row: Micikevicius et al., arXiv 2209.05433; block: DeepSeek-V3, arXiv
2412.19437, section 3.3.2 (activations and gradients in tiles of 1x128, weights in blocks of
128x128, everything in E4M3).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from gpudeck.accel.precision.products import E4M3, product, rounded
from gpudeck.accel.primitives.quantize.before import NOTHING, Before, gradients, with_statistics
from gpudeck.accel.primitives.quantize.fp8 import Fp8, Granularity
from gpudeck.accel.runtime.named import is_traced

Recipe = Literal["delayed", "tensor", "row", "block"]
RECIPES: tuple[str, ...] = get_args(Recipe)
_OF_X: dict[str, Granularity] = {
    "delayed": "tensor", "tensor": "tensor", "row": "row", "block": "tile"
}  # fmt: skip
_OF_W: dict[str, Granularity] = {**_OF_X, "block": "block"}


class Kept(NamedTuple):
    """Hold what a forward pass leaves: the output, and what the backward pass needs.

    Tensors that were not wanted are empty.
    """

    out: Tensor
    """[m,n]"""
    x: Tensor
    """xᵀ [k,m] in FP8."""
    x_scales: Tensor
    weight: Tensor
    """Wᵀ [k,n] in FP8."""
    weight_scales: Tensor
    most: Tensor
    """The largest magnitudes of x and of W by the recipe `delayed`, float32 [2]."""
    mean: Tensor
    rstd: Tensor
    """Of the rows of x, if a norm comes before."""


def fp8_linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    recipe: str,
    training: bool,
    before: Before = NOTHING,
    most: Tensor | None = None,
) -> Tensor:
    """Return f(x) Wᵀ + b; see `_forward`.

    While torch compiles it is an operator, whose kernels and products become part of the graph.
    Otherwise it is a function of autograd's: on an H200 the wrappers of operators took 1.4 of 1.6
    ms of a step's host time.

    Args:
        most: float32 [2], raised to the largest magnitudes of f(x) and of W by the recipe
            `delayed`.
    """
    given = (
        x, weight, bias, scale_x, scale_w, before.gain, before.shift, recipe, training,
        before.kind, before.eps,
    )  # fmt: skip
    if not torch.compiler.is_compiling():
        made: Tensor = _Eager.apply(*given, most)  # type: ignore[no-untyped-call]
        return made
    found = Kept(*forward_op(*given))
    if most is not None:
        with torch.no_grad():
            most.copy_(torch.maximum(most, found.most))
    return found.out


def _forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    gain: Tensor | None,
    shift: Tensor | None,
    recipe: str,
    training: bool,
    before: str,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return f(x) [m,k] times weight [n,k] transposed, and what the backward pass needs.

    Args:
        scale_x, scale_w: scales that are known before (delayed), or None.
        gain, shift, before, eps: f, as `gpudeck.accel.primitives.quantize.before` has it.
        recipe: a name in RECIPES.
        training: whether gradients will be wanted.

    Returns:
        The fields of Kept.
    """
    most = x.new_zeros(2, dtype=torch.float32) if recipe == "delayed" else None
    first = Before(before, gain, shift, eps)
    return _computed(x, weight, bias, scale_x, scale_w, first, recipe, training, most)


def _computed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scale_x: Tensor | None,
    scale_w: Tensor | None,
    before: Before,
    recipe: str,
    training: bool,
    most: Tensor | None,
) -> Kept:
    """Compute what `_forward` returns, and raise `most`."""
    most_x, most_w = (None, None) if most is None else (most[:1], most[1:])
    first = with_statistics(before, x)
    x_along, x_across = rounded(x, _OF_X[recipe], scale_x, training, most_x, first)
    w_along, w_across = rounded(weight, _OF_W[recipe], scale_w, training, most_w)
    out = product(x_along, w_along.t, bias, x.dtype)
    none = x.new_empty(0, dtype=torch.float32)
    mean, rstd = (none if t is None else t for t in (first.mean, first.rstd))
    most = none if most is None else most
    return Kept(out, *_parts(x_across, x), *_parts(w_across, x), most, mean, rstd)


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
    """Return the gradients of f(x) [m,k] and of the weight [n,k], empty where they are not wanted.

    Args:
        dout: the gradient of the output, [m,n].
        x, x_scales: f(x)ᵀ [k,m] in FP8.
        weight, weight_scales: Wᵀ [k,n] in FP8.
        recipe: a name in RECIPES.
        dtype: of the weight's gradient.
        wants_x, wants_weight: which gradients are wanted.
    """
    kind = _OF_X[recipe]
    along, across = rounded(dout.contiguous(), kind, None, wants_weight, None)
    dx, dw = dout.new_empty(0), dout.new_empty(0, dtype=dtype)
    if wants_x:
        dx = product(along, Fp8(weight, weight_scales, _OF_W[recipe]).t, None, dout.dtype)
    if wants_weight:
        assert across is not None
        dw = product(across, Fp8(x, x_scales, kind).t, None, dtype)
    return dx, dw


def _through(
    dout: Tensor,
    x: Tensor,
    gain: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    before: str,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, of the gain and of the shift from that of f(x)."""
    first = Before(before, gain, shift, eps, mean if before == "layer" else None, rstd)
    return gradients(first, dout, x)


forward_op = torch.library.triton_op("gpudeck::fp8_linear", mutates_args=())(_forward)
backward_op = torch.library.triton_op("gpudeck::fp8_linear_backward", mutates_args=())(_gradients)
through_op = torch.library.triton_op("gpudeck::fp8_linear_before", mutates_args=())(_through)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _, _, gain, shift, recipe, _, before, eps = inputs
    kept = Kept(*output)
    given = () if before == "none" else (x, gain, shift, kept.mean, kept.rstd)
    ctx.save_for_backward(kept.x, kept.x_scales, kept.weight, kept.weight_scales, *given)
    ctx.set_materialize_grads(False)  # of what is kept, which has none
    ctx.recipe, ctx.dtype, ctx.before = recipe, weight.dtype, (before, eps)
    ctx.bias = None if bias is None else bias.dtype


def _backward(ctx: Any, dout: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    return _all_gradients(ctx, dout, backward_op, through_op)


def _all_gradients(
    ctx: Any, dout: Tensor | None, products: Any, through: Any
) -> tuple[Tensor | None, ...]:
    """Return the gradients of all arguments.

    `products` computes those of f(x) and of the weight, `through` that of x.
    """
    wants = ctx.needs_input_grad
    if dout is None:
        return (None,) * 11
    saved = ctx.saved_tensors  # only once: a checkpoint computes them again for each asking
    kept, given = saved[:4], saved[4:]
    wants_x, wants_gain, wants_shift = wants[0], wants[5], wants[6]
    wants_inner = wants_x or wants_gain or wants_shift
    dx = dw = db = dgain = dshift = None
    if wants_inner or wants[1]:
        dx, dw = products(dout, *kept, ctx.recipe, ctx.dtype, wants_inner, wants[1])
    if wants[2]:
        db = dout.sum(0, dtype=torch.float32).to(ctx.bias)
    if given and wants_inner:
        dx, dgain, dshift = through(dx, *given, *ctx.before)
    return (
        dx if wants_x else None, dw if wants[1] else None, db, None, None,
        dgain if wants_gain else None, dshift if wants_shift else None, None, None, None, None,
    )  # fmt: skip


forward_op.register_autograd(_backward, setup_context=_setup)


class _Eager(torch.autograd.Function):
    """Compute what the operators compute, without their wrappers."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        """Return out, and raise the largest magnitudes."""
        x, weight, bias, scale_x, scale_w, gain, shift, recipe, training, kind, eps, most = given
        first = Before(kind, gain, shift, eps) if kind != "none" else NOTHING
        found = _computed(x, weight, bias, scale_x, scale_w, first, recipe, training, most)
        _setup(ctx, given[:-1], found)
        return found.out

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of all arguments."""
        return (*_all_gradients(ctx, dout, _gradients, _through), None)


def _parts(x: Fp8 | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and scales, empty ones for None."""
    if x is None:
        return like.new_empty(0, dtype=E4M3), like.new_empty(0, dtype=torch.float32)
    # what an operator returns shares no memory with what else it returns, or takes
    return x.values.contiguous(), x.scales.clone() if is_traced(x.values) else x.scales
