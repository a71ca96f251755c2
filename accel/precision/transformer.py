"""A transformer layer whose products are in FP8 and whose attention is `accel.attention`.

Where a linear layer is in FP8, the norm or the activation before it is computed while its result is
rounded: that result is neither written nor read in 16 bits. Biases are added by the products.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.attention.api import attention
from gpudeck.accel.precision.conversion import convert
from gpudeck.accel.precision.layers import Fp8Linear
from gpudeck.accel.precision.linear import Recipe
from gpudeck.accel.primitives.quantize.before import Before

Activation = Literal["gelu", "swiglu"]
Norm = Literal["layer", "rms"]
_NORMS: dict[str, type[nn.LayerNorm] | type[nn.RMSNorm]] = {
    "layer": nn.LayerNorm, "rms": nn.RMSNorm
}  # fmt: skip


class TransformerLayer(nn.Module):
    """A pre-norm layer: x + attention(norm(x)), then x + mlp(norm(x)).

    Its linear layers are plain until `convert` replaces them.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        *,
        causal: bool = True,
        bias: bool = False,
        norm: Norm = "layer",
        activation: Activation = "gelu",
        kv_heads: int | None = None,
    ) -> None:
        """Make a layer with random parameters.

        Args:
            width: the features of a token, a multiple of `heads`.
            heads: the heads of attention.
            hidden: the features inside the MLP.
            causal: whether a token sees only those before it.
            bias: whether linear layers have one.
            norm: `layer` or `rms`.
            activation: `gelu` (tanh's approximation), or `swiglu`: silu of one half of `up` times
                the other.
            kv_heads: the heads of keys and values, which divide `heads`; as many by default.
        """
        super().__init__()
        if width % heads:
            raise ValueError(f"{heads} heads must divide the width, {width}")
        kv_heads = heads if kv_heads is None else kv_heads
        if heads % kv_heads:
            raise ValueError(f"{kv_heads} heads of keys must divide the {heads} of queries")
        if norm not in _NORMS or activation not in ("gelu", "swiglu"):
            raise ValueError(
                f"norm is layer or rms, activation gelu or swiglu; got {norm!r}, {activation!r}"
            )
        self.causal, self.activation = causal, activation
        self.heads = (heads, kv_heads, kv_heads)
        self.attention_norm, self.mlp_norm = (_NORMS[norm](width, eps=1e-5) for _ in range(2))
        self.qkv = nn.Linear(width, width // heads * sum(self.heads), bias)
        self.out = nn.Linear(width, width, bias)
        self.up = nn.Linear(width, 2 * hidden if activation == "swiglu" else hidden, bias)
        self.down = nn.Linear(hidden, width, bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x [batch, tokens, width]."""
        batch, tokens, width = x.shape
        made = _after_norm(self.attention_norm, self.qkv, x)
        made = made.view(batch, tokens, sum(self.heads), -1)
        q, k, v = made.split_with_sizes(self.heads, 2)
        seen = attention(q, k, v, causal=self.causal, layout="bshd")
        x = x + self.out(seen.reshape(batch, tokens, width))
        hidden = _after_norm(self.mlp_norm, self.up, x)
        return x + _after_activation(self.activation, self.down, hidden)


def _after_norm(norm: nn.LayerNorm | nn.RMSNorm, layer: nn.Linear, x: Tensor) -> Tensor:
    """Return what the linear layer makes of the norm of x."""
    if not _fuses(layer, x):
        out: Tensor = layer(norm(x))
        return out
    if isinstance(norm, nn.LayerNorm):
        made: Tensor = layer(x, Before("layer", norm.weight, norm.bias, norm.eps))
    else:
        made = layer(x, Before("rms", norm.weight, None, norm.eps or 0.0))
    return made


def _after_activation(activation: Activation, layer: nn.Linear, x: Tensor) -> Tensor:
    """Return what the linear layer makes of the activation of x."""
    if _fuses(layer, x):
        made: Tensor = layer(x, Before(activation))
        return made
    if activation == "gelu":
        hidden = functional.gelu(x, approximate="tanh")
    else:
        gate, up = x.chunk(2, -1)
        hidden = functional.silu(gate) * up
    out: Tensor = layer(hidden)
    return out


def _fuses(layer: nn.Linear, x: Tensor) -> bool:
    """Return True if a layer takes what comes before it.

    Autocast would round x to 16 bits first, where norms are to be computed of what x is.
    """
    kind = x.device.type
    wide = torch.is_autocast_enabled(kind) and x.dtype != torch.get_autocast_dtype(kind)
    return isinstance(layer, Fp8Linear) and not wide


def transformer_engine_layer(
    width: int,
    heads: int,
    hidden: int | None = None,
    *,
    recipe: Recipe | None = "row",
    causal: bool = True,
    bias: bool = False,
    norm: Norm = "layer",
    activation: Activation = "gelu",
    kv_heads: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> nn.Module:
    """Return a transformer layer with its four linear layers in FP8.

    Norms and activations are computed where their results are rounded to FP8; attention and
    residuals are computed in `dtype`.

    Args:
        width: the features of a token.
        heads: the heads of attention.
        hidden: the features inside the MLP, 4 times the width by default.
        recipe: that of the linear layers; None leaves them in `dtype`.
        causal: whether a token sees only those before it.
        bias: whether linear layers have one.
        norm, activation, kv_heads: as for TransformerLayer.
        device, dtype: of the parameters.
    """
    layer = TransformerLayer(
        width, heads, hidden or 4 * width, causal=causal, bias=bias, norm=norm,
        activation=activation, kv_heads=kv_heads,
    )  # fmt: skip
    layer = layer.to(device=device, dtype=dtype)
    return layer if recipe is None else convert(layer, recipe)
