"""A linear layer whose products are computed in FP8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gpudeck.accel.precision.linear import RECIPES, Recipe, fp8_linear
from gpudeck.accel.primitives.quantize.before import NOTHING, Before
from gpudeck.accel.primitives.quantize.fp8 import scale_of

HISTORY = 16
"""The steps whose largest magnitudes decide a delayed scale."""
_WIDE = ("history", "pending", "scale_x", "scale_w")
"""The buffers of the recipe `delayed`."""


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
            made.register_buffer("scale_x", torch.ones(1, device=device), False)
            made.register_buffer("scale_w", torch.ones(1, device=device), False)
            made.started = False
        return made

    started: bool = False
    """Whether the history has a step."""
    history: Tensor
    """The largest magnitudes of x and of the weight in each step, float32 [2, HISTORY]."""
    pending: Tensor
    """Those since the last step, float32 [2]."""
    scale_x: Tensor
    scale_w: Tensor
    """Of the history, float32 [1]."""

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
        most = self.pending if self.recipe == "delayed" and self.training else None
        made = fp8_linear(
            rows, weight, bias, scale_x, scale_w, self.recipe, torch.is_grad_enabled(), before, most
        )
        out: Tensor = made.reshape(*x.shape[:-1], self.out_features)
        return out

    def scales(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """Return the delayed scales of x and of the weight, if there are any."""
        if not self.started:
            return None, None
        return self.scale_x, self.scale_w

    def renew_scales(self) -> None:
        """Compute the delayed scales from the history."""
        both = scale_of(self.history.amax(1), torch.float8_e4m3fn)
        self.scale_x.copy_(both[:1])
        self.scale_w.copy_(both[1:])
        self.started = True

    def _apply(self, fn: Any, recurse: bool = True) -> Fp8Linear:
        """Move, but keep in float32, what scales are computed from when the layer gets another
        dtype."""
        wide = {name: getattr(self, name) for name in _WIDE if self.recipe == "delayed"}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, x in wide.items():
            moved = getattr(self, name)
            if moved.dtype != torch.float32:
                setattr(self, name, x.to(moved.device))
        return self

    def extra_repr(self) -> str:
        """Return what print() shows of the layer."""
        return f"{super().extra_repr()}, recipe={self.recipe}"
