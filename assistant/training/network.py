"""Define the model for training: the engine's layers with gradients, and RWKV-7's
initial values.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpudeck.accel.primitives.linear_attention.api import linear_attention
from gpudeck.accel.rwkv import wkv
from gpudeck.accel.rwkv.layers import Memory, advance, norm, project
from gpudeck.accel.rwkv.parameters import MIXES, Layer, Norm, Rank
from gpudeck.accel.rwkv.storage import Matrix
from gpudeck.accel.rwkv.weights import HEAD

RANKS = {"w": 32, "a": 32, "v": 16, "g": 64}


class Network(nn.Module):
    """Hold parameters by their canonical names, with `/` for `.`, so that they are saved as the
    engine loads them.
    """

    def __init__(self, layers: int, channels: int, vocabulary: int) -> None:
        super().__init__()
        self.layers, self.channels = layers, channels
        for name, tensor in _initial(layers, channels, vocabulary).items():
            self.register_parameter(name.replace(".", "/"), nn.Parameter(tensor))

    def canonical(self) -> dict[str, Tensor]:
        """Return the weights as in `gpudeck.accel.rwkv.weights`."""
        return {name.replace("/", "."): parameter for name, parameter in self.named_parameters()}

    def forward(self, tokens: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the logits of the next tokens.

        Shapes:
            tokens: [B, T].
            at: [N] places in the flattened [B, T]; None for all.
            Returns: [B, T, V], or [N, V] with `at`.
        """
        w = self.canonical()
        batch = tokens.shape[0]
        x = norm(
            functional.embedding(tokens, w["emb.weight"]),
            Norm(w["blocks.0.ln0.weight"], w["blocks.0.ln0.bias"]),
        )
        heads = self.channels // HEAD
        zero = Memory(
            x.new_zeros(batch, 2, self.channels),
            x.new_zeros(batch, heads, HEAD, HEAD, dtype=torch.float32),
        )
        v_first: Tensor | None = None
        for i in range(self.layers):
            x, _, v_first = advance(_layer(w, f"blocks.{i}."), x, zero, v_first, _recurrence)
        if at is not None:
            x = x.flatten(0, 1)[at]
        return project(
            norm(x, Norm(w["ln_out.weight"], w["ln_out.bias"])), Matrix(w["head.weight"])
        )

    def groups(self, rate: float, decay: float) -> list[dict[str, object]]:
        """Return parameter groups: weight decay on matrices only, w0 at twice the rate."""
        named = self.canonical()
        fast = [p for name, p in named.items() if name.endswith("att.w0")]
        matrices = [p for name, p in named.items() if name.endswith(".weight") and p.dim() == 2]
        chosen = {id(p) for p in (*fast, *matrices)}
        rest = [p for p in named.values() if id(p) not in chosen]
        kinds = ((fast, 2.0, 0.0), (matrices, 1.0, decay), (rest, 1.0, 0.0))
        return [
            {"params": params, "lr": rate * times, "times": times, "weight_decay": fade}
            for params, times, fade in kinds
        ]


def _recurrence(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the recurrence in fp32 even if the rest is in bf16: memory over many tokens needs more
    than 8 bits.
    """
    run = by_kernels if r.device.type == "cuda" else wkv.chunked
    with torch.autocast(r.device.type, enabled=False):
        return run(r, w, k, v, a, b, state)


def by_kernels(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute `wkv.sequential` by the kernels of linear attention, whose states are transposed."""
    found = linear_attention(r, k, v, kind="rwkv7", decay=w.log(), a=a, b=b, state=state.mT)
    return found.out, found.state.mT


def _layer(w: dict[str, Tensor], block: str) -> Layer:
    att, ffn = block + "att.", block + "ffn."

    def rank(name: str) -> Rank:
        if f"{att}{name}1" not in w:
            nothing = w["emb.weight"].new_zeros(0, 0)
            return Rank(None, nothing, nothing)
        return Rank(w.get(f"{att}{name}0"), w[f"{att}{name}1"].T, w[f"{att}{name}2"])

    def normed(name: str) -> Norm:
        return Norm(w[name + ".weight"], w[name + ".bias"])

    receptance, key, value, output = (
        Matrix(w[f"{att}{name}.weight"]) for name in ("receptance", "key", "value", "output")
    )
    return Layer(
        norm_att=normed(block + "ln1"),
        mixes=torch.stack([w[att + mix] for mix in MIXES]),
        receptance=receptance,
        key=key,
        value=value,
        output=output,
        decay=rank("w"),
        rate=rank("a"),
        residual=rank("v"),
        gate=rank("g"),
        k_k=w[att + "k_k"],
        k_a=w[att + "k_a"],
        r_k=w[att + "r_k"].flatten(),
        norm_wkv=normed(att + "ln_x"),
        norm_ffn=normed(block + "ln2"),
        mix_ffn=w[ffn + "x_k"],
        ffn_key=Matrix(w[ffn + "key.weight"]),
        ffn_value=Matrix(w[ffn + "value.weight"].T),
    )


def _initial(layers: int, channels: int, vocabulary: int) -> dict[str, Tensor]:
    """Return initial values by the recipe of RWKV-7.

    Outputs begin at zero; decays spread over channels, mixes over layers.
    """
    w = {
        "emb.weight": torch.empty(vocabulary, channels).uniform_(-1e-4, 1e-4),
        "head.weight": _orthogonal(
            vocabulary, channels, 0.5 * max(1.0, vocabulary / channels) ** 0.5
        ),
    }
    norms = ["ln_out", "blocks.0.ln0"]
    place = torch.arange(channels) / max(1, channels - 1)
    for i in range(layers):
        att, ffn = f"blocks.{i}.att.", f"blocks.{i}.ffn."
        depth, remaining = i / max(1, layers - 1), 1 - i / layers
        norms += [f"blocks.{i}.ln1", f"blocks.{i}.ln2"]
        for mix, power in {
            "x_r": 0.2,
            "x_w": 0.9,
            "x_k": 0.7,
            "x_v": 0.7,
            "x_a": 0.9,
            "x_g": 0.2,
        }.items():
            w[att + mix] = 1 - place ** (power * remaining)
        for name, size in RANKS.items():
            if name != "v" or i > 0:
                w[f"{att}{name}1"] = torch.zeros(channels, size)
                w[f"{att}{name}2"] = _orthogonal(size, channels, 0.1)
        w[att + "w0"] = -5.5 + 5 * place ** (0.85 + depth**0.5)
        w[att + "a0"] = torch.zeros(channels)
        if i > 0:
            w[att + "v0"] = torch.ones(channels)
        w[att + "k_k"], w[att + "k_a"] = torch.full((channels,), 0.85), torch.ones(channels)
        w[att + "r_k"] = torch.zeros(channels // HEAD, HEAD)
        w[att + "receptance.weight"], w[att + "value.weight"] = (
            _orthogonal(channels, channels, 1.0) for _ in range(2)
        )
        w[att + "key.weight"], w[att + "output.weight"] = (
            _orthogonal(channels, channels, 0.1),
            torch.zeros(channels, channels),
        )
        w[att + "ln_x.weight"] = torch.full((channels,), ((1 + i) / layers) ** 0.7)
        w[att + "ln_x.bias"] = torch.zeros(channels)
        w[ffn + "x_k"] = 1 - place ** (remaining**4)
        w[ffn + "key.weight"], w[ffn + "value.weight"] = (
            _orthogonal(4 * channels, channels, 1.0),
            torch.zeros(channels, 4 * channels),
        )
    for name in norms:
        w[name + ".weight"], w[name + ".bias"] = torch.ones(channels), torch.zeros(channels)
    return w


def _orthogonal(rows: int, columns: int, gain: float) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns), gain=gain)
