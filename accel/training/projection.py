"""Matrix products whose weights are kept in float32; the compilation of layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.precision.linear import Recipe, fp8_linear


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
