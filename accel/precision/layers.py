"""A linear layer whose products are computed in FP8."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accel.precision.linear import RECIPES, Recipe, fp8_linear
from accel.primitives.quantize.before import NOTHING, Before
from accel.primitives.quantize.fp8 import scale_of

HISTORY = 16
"""The steps whose largest magnitudes decide a delayed scale."""


class Fp8Linear(nn.Linear):
    """Compute nn.Linear's result with its three products in FP8 (E4M3), summed in float32.

    Parameters, their names and the state dict are those of nn.Linear. On a CPU, or a GPU before
    compute capability 8.9, the same numbers are EMULATED in float32.

    The recipe `delayed` uses the largest magnitudes of the last HISTORY steps for x and the weight,
    once `update_scales` was called after the first step; until then it uses those of the tensors
    themselves, as it always does for gradients.
    """

    recipe: Recipe

    @classmethod
    def of(cls, layer: nn.Linear, recipe: Recipe) -> Fp8Linear:
        """Return a layer with the parameters of another, which they share.

        Raises:
            ValueError: if no recipe has this name.
        """
        if recipe not in RECIPES:
            raise ValueError(f"no recipe is called {recipe!r}. There are: {', '.join(RECIPES)}")
        made = cls.__new__(cls)
        nn.Module.__init__(made)
        made.in_features, made.out_features = layer.in_features, layer.out_features
        made.weight, made.bias = layer.weight, layer.bias
        made.training = layer.training
        made.recipe = recipe
        device = layer.weight.device
        if recipe == "delayed":
            # not persistent: the state dict stays that of nn.Linear
            made.register_buffer("history", torch.zeros(2, HISTORY, device=device), False)
            made.register_buffer("pending", torch.zeros(2, device=device), False)
            made.started = False
        return made

    started: bool = False
    """Whether the history has a step."""
    history: Tensor
    """The largest magnitudes of x and of the weight in each step, float32 [2, HISTORY]."""
    pending: Tensor
    """Those since the last step, float32 [2]."""

    def forward(self, x: Tensor, before: Before = NOTHING) -> Tensor:
        """Return f(x) Wᵀ + b for x [..., features]; f is what comes before, by default nothing.

        What f computes is rounded to FP8 where it is computed.
        """
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight = x.to(dtype), weight.to(dtype)
        scale_x, scale_w = self.scales()
        rows = x.reshape(-1, x.shape[-1])
        made, most = fp8_linear(
            rows, weight, bias, scale_x, scale_w, self.recipe, torch.is_grad_enabled(), before
        )
        if self.recipe == "delayed" and self.training:
            with torch.no_grad():
                self.pending.copy_(torch.maximum(self.pending, most))
        out: Tensor = made.reshape(*x.shape[:-1], self.out_features)
        return out

    def scales(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return the delayed scales of x and of the weight, if there are any."""
        if not self.started:
            return None, None
        both = scale_of(self.history.amax(1), torch.float8_e4m3fn)
        return both[:1].clone(), both[1:].clone()

    def extra_repr(self) -> str:
        """Return what print() shows of the layer."""
        return f"{super().extra_repr()}, recipe={self.recipe}"
