"""Matrix products whose weights are kept in float32 or in four bits; the compilation of layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.precision.linear import Recipe, fp8_linear
from gpudeck.accel.primitives.quantize.int4 import Int4, int4_quantize

_GROUP = 64
"""The columns that share a scale in four bits, as in QLoRA."""
_HELD = ("packed", "scales", "zeros")


class Projection(nn.Linear):
    """Multiply by a matrix that is rounded to the dtype of the input."""

    recipe: Recipe | None = None
    """How the product is rounded to FP8; None: not at all."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ, plus a bias where the model has one."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return _multiply(x, self.weight.to(x.dtype), bias, self.recipe)


class Quantized(nn.Module):
    """Multiply by a frozen matrix that is held in four bits, and has its values for a product only.

    Source: Dettmers et al., QLoRA, arXiv 2305.14314; here the 16 values of a group are evenly
    spaced between its ends (`int4_quantize`).
    """

    def __init__(self, base: Projection, device: torch.device) -> None:
        super().__init__()
        self.in_features, self.out_features = base.in_features, base.out_features
        self.bias = base.bias
        held = int4_quantize(base.weight.detach().to(device), _GROUP)
        for name in _HELD:
            self.register_buffer(name, getattr(held, name), persistent=False)

    @property
    def weight(self) -> Tensor:
        """Return the matrix in float32."""
        return Int4(*self._held()).dequantize()

    def _held(self) -> list[Tensor]:
        return [self.get_buffer(name) for name in _HELD]

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ, plus a bias where the model has one."""
        out: Tensor = _ByInt4.apply(x, *self._held())  # type: ignore[no-untyped-call]
        return out if self.bias is None else out + self.bias.to(x.dtype)


class _ByInt4(torch.autograd.Function):
    """Multiply by a matrix that is made anew in the backward pass; only its bits are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        ctx.save_for_backward(packed, scales, zeros)
        return functional.linear(x, Int4(packed, scales, zeros).dequantize(x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return gradient @ Int4(*ctx.saved_tensors).dequantize(gradient.dtype), None, None, None


def project(x: Tensor, *layers: nn.Module) -> tuple[Tensor, ...]:
    """Return what several projections make of x, by one product if nothing stands beside them.

    So x and its gradient are read and written once. The first one says whether it is in FP8.
    """
    if not all(type(layer) is Projection for layer in layers):
        return tuple(layer(x) for layer in layers)
    plain = [layer for layer in layers if isinstance(layer, Projection)]
    weight = torch.cat([layer.weight.to(x.dtype) for layer in plain])
    biases = [layer.bias.to(x.dtype) for layer in plain if layer.bias is not None]
    out = _multiply(x, weight, torch.cat(biases) if biases else None, plain[0].recipe)
    return torch.split(out, [layer.out_features for layer in plain], -1)


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None, recipe: Recipe | None) -> Tensor:
    if recipe is None:
        return functional.linear(x, weight, bias)
    rows, training = x.reshape(-1, x.shape[-1]), torch.is_grad_enabled()
    out = fp8_linear(rows, weight, bias, None, None, recipe, training)
    return out.reshape(*x.shape[:-1], len(weight))


def compile_forward(layers: nn.ModuleList) -> None:
    """Have torch.compile make the forward pass of layers.

    Layers whose sizes are equal share one program, so that this takes as long for many layers as
    for one. Hooks of the layers stay outside.
    """
    for layer in layers:
        layer.forward = torch.compile(layer.forward)
