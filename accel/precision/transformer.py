"""A transformer layer whose products are in FP8 and whose attention is `accel.attention`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from accel.attention.api import attention
from accel.precision.conversion import convert
from accel.precision.linear import Recipe


class TransformerLayer(nn.Module):
    """A pre-norm layer: x + attention(norm(x)), then x + mlp(norm(x)).

    Its linear layers are plain until `convert` replaces them.
    """

    def __init__(
        self, width: int, heads: int, hidden: int, *, causal: bool = True, bias: bool = False
    ) -> None:
        """Make a layer with random parameters.

        Args:
            width: the features of a token, a multiple of `heads`.
            heads: the heads of attention.
            hidden: the features inside the MLP.
            causal: whether a token sees only those before it.
            bias: whether linear layers have one.
        """
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads must divide the width, {width}")
        self.heads, self.causal = heads, causal
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias)
        self.out = nn.Linear(width, width, bias)
        self.up = nn.Linear(width, hidden, bias)
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x [batch, tokens, width]."""
        batch, tokens, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = qkv.unbind(2)
        seen = attention(q, k, v, causal=self.causal, layout="bshd")
        x = x + self.out(seen.reshape(batch, tokens, width))
        hidden = functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh")
        out: Tensor = x + self.down(hidden)
        return out


def transformer_engine_layer(
    width: int,
    heads: int,
    hidden: int | None = None,
    *,
    recipe: Recipe | None = "row",
    causal: bool = True,
    bias: bool = False,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> nn.Module:
    """Return a transformer layer with its four linear layers in FP8.

    Norms, attention, activations and residuals are computed in `dtype`; torch.compile fuses them.

    Args:
        width: the features of a token.
        heads: the heads of attention.
        hidden: the features inside the MLP, 4 times the width by default.
        recipe: that of the linear layers; None leaves them in `dtype`.
        causal: whether a token sees only those before it.
        bias: whether linear layers have one.
        device, dtype: of the parameters.
    """
    layer = TransformerLayer(width, heads, hidden or 4 * width, causal=causal, bias=bias)
    layer = layer.to(device=device, dtype=dtype)
    return layer if recipe is None else convert(layer, recipe)
