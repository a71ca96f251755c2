"""A matrix product whose weights are kept in float32."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Projection(nn.Linear):
    """Multiply by a matrix that is rounded to the dtype of the input."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ, plus a bias where the model has one."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return functional.linear(x, self.weight.to(x.dtype), bias)
