"""RWKV-7 "Goose" in plain torch: tokens and a state in, logits and a new state out (Peng et al., arXiv 2503.14456).

The state is a value: `forward` never writes into the one it is given, so keeping a state is a snapshot, and going back to
it gives bit-identical logits. Rewinding, branching and a prepared system prompt are a matter of which state one passes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from assistant import weights
from assistant.weights import HEAD

_DECAY = math.exp(-0.5)
_GROUP_EPS = 64e-5
_TURNED = ("receptance.weight", "key.weight", "value.weight", "output.weight", "head.weight")
CHUNK = 128
"""Tokens of a prompt taken at once; between two chunks a caller may stop."""


class LayerState(NamedTuple):
    """What one layer remembers of all tokens so far."""

    att_x: Tensor
    """[C] the last token's input of the time mix."""
    wkv: Tensor
    """[H, 64, 64] fp32, the matrix-valued state: values by keys."""
    ffn_x: Tensor
    """[C] the last token's input of the channel mix."""


State = tuple[LayerState, ...]


class _TimeMix:
    """Time mixing: token shift, low-rank decay / in-context learning rate / gate, and the recurrence."""

    def __init__(self, w: dict[str, Tensor], prefix: str) -> None:
        self.first = prefix == "blocks.0.att."
        self.mixes = torch.stack([w[prefix + mix] for mix in weights.MIXES]).unsqueeze(1)  # [6, 1, C]
        self.w0, self.w1, self.w2 = w[prefix + "w0"], w[prefix + "w1"], w[prefix + "w2"]
        self.a0, self.a1, self.a2 = w[prefix + "a0"], w[prefix + "a1"], w[prefix + "a2"]
        self.g1, self.g2 = w[prefix + "g1"], w[prefix + "g2"]
        if not self.first:
            self.v0, self.v1, self.v2 = w[prefix + "v0"], w[prefix + "v1"], w[prefix + "v2"]
        self.k_k, self.k_a, self.r_k = w[prefix + "k_k"], w[prefix + "k_a"], w[prefix + "r_k"]
        self.receptance, self.key = _turned(w, prefix + "receptance"), _turned(w, prefix + "key")
        self.value, self.output = _turned(w, prefix + "value"), _turned(w, prefix + "output")
        self.norm_weight, self.norm_bias = w[prefix + "ln_x.weight"], w[prefix + "ln_x.bias"]

    def __call__(self, x: Tensor, last: Tensor, wkv: Tensor, v_first: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """x [T, C], last [C], wkv [H, 64, 64], v_first [T, C] (None in the first layer) -> output [T, C], wkv, v_first."""
        heads = (-1, self.r_k.shape[0], HEAD)
        x_r, x_w, x_k, x_v, x_a, x_g = (x + (_shifted(x, last) - x) * self.mixes).unbind()
        r, k, v = x_r.mm(self.receptance), x_k.mm(self.key), x_v.mm(self.value)
        decay = torch.exp(-_DECAY * torch.sigmoid(torch.addmm(self.w0, torch.tanh(x_w.mm(self.w1)), self.w2).float()))
        rate = torch.sigmoid(torch.addmm(self.a0, x_a.mm(self.a1), self.a2))
        gate = torch.sigmoid(x_g.mm(self.g1)).mm(self.g2)
        if v_first is None:
            v_first = v
        else:
            v = torch.lerp(v, v_first, torch.sigmoid(torch.addmm(self.v0, x_v.mm(self.v1), self.v2)))
        removal = functional.normalize((k * self.k_k).view(heads), dim=-1)
        k = k * (1 + (rate - 1) * self.k_a)

        r, k, v, rate = r.view(heads), k.view(heads), v.view(heads), rate.view(heads)
        y, wkv = recurrence(wkv, r=r, decay=decay.view(heads), k=k, v=v, removal=removal, rate=rate)
        y = functional.group_norm(y.to(x.dtype).flatten(1), heads[1], self.norm_weight, self.norm_bias, eps=_GROUP_EPS)
        bonus = (r * k * self.r_k).sum(dim=-1, keepdim=True) * v
        return ((y + bonus.flatten(1)) * gate).mm(self.output), wkv, v_first


def recurrence(wkv: Tensor, *, r: Tensor, decay: Tensor, k: Tensor, v: Tensor, removal: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """The generalised delta rule of the paper, token after token; wkv [H, 64, 64] fp32, the others [T, H, 64] -> y [T, H, 64], wkv.

    S_t = S_{t-1} (diag(w_t) - kk_t^T (a_t * kk_t)) + v_t^T k_t,   y_t = S_t r_t

    with `removal` the normalised key kk that is erased and `rate` the in-context learning rate a.
    """
    # Rows times the transposed state rather than the state times columns: several times faster on a CPU.
    r, v, erased = (row.float().unsqueeze(-2) for row in (r, v, -removal))
    keys = torch.stack((removal * rate, k), dim=-2).float()  # [T, H, 2, 64]: both rank-one updates in one product
    y = torch.empty_like(r)
    for t, (r_t, v_t, erased_t, keys_t, decay_t) in enumerate(zip(r, v, erased, keys, decay.unsqueeze(-2), strict=True)):
        values = torch.cat((torch.bmm(erased_t, wkv.mT), v_t), dim=-2)  # [H, 2, 64]: what was under the key, what shall be
        wkv = (wkv * decay_t).baddbmm_(values.mT, keys_t)
        torch.bmm(r_t, wkv.mT, out=y[t])
    return y.squeeze(-2), wkv


class _ChannelMix:
    """Channel mixing: a two-layer perceptron with squared ReLU on the shifted input."""

    def __init__(self, w: dict[str, Tensor], prefix: str) -> None:
        self.mix, self.key, self.value = w[prefix + "x_k"], _turned(w, prefix + "key"), _turned(w, prefix + "value")

    def __call__(self, x: Tensor, last: Tensor) -> Tensor:
        """x [T, C], last [C] -> [T, C]."""
        k = (x + (_shifted(x, last) - x) * self.mix).mm(self.key)
        return torch.relu(k).square().mm(self.value)


def _shifted(x: Tensor, last: Tensor) -> Tensor:
    """The token before each: x [T, C], last [C] -> [T, C]."""
    return torch.cat((last.unsqueeze(0), x[:-1]))


class _Norm(NamedTuple):
    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class RWKV7:
    """An RWKV-7 model. Uses as many CPU threads as torch is set to: one is best for models below 200 million parameters."""

    def __init__(self, tensors: dict[str, Tensor], device: str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        """`tensors`: canonical weights (see `assistant.weights`)."""
        # What is turned below is copied there; the rest is copied here, as nothing may depend on the file once it is loaded.
        w = {name: tensor.to(device=device, dtype=dtype, copy=not name.endswith(_TURNED)) for name, tensor in tensors.items()}
        count = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("blocks."))
        self.vocabulary, self.channels = w["emb.weight"].shape
        self.parameters = sum(tensor.numel() for tensor in w.values())
        # The first normalisation sees nothing but embeddings: done once for all of them.
        self._embeddings = _Norm(w["blocks.0.ln0.weight"], w["blocks.0.ln0.bias"])(w.pop("emb.weight"))
        self._layers = [
            (_norm(w, f"blocks.{i}.ln1"), _TimeMix(w, f"blocks.{i}.att."), _norm(w, f"blocks.{i}.ln2"), _ChannelMix(w, f"blocks.{i}.ffn."))
            for i in range(count)
        ]
        self._norm, self._head = _norm(w, "ln_out"), _turned(w, "head")

    @classmethod
    def load(cls, path: str | Path, device: str = "cpu", dtype: torch.dtype = torch.float32) -> RWKV7:
        """The model in `path`: a folder of .safetensors, or a .pth. Raises UserError (see `assistant.weights.load`)."""
        return cls(weights.load(path), device, dtype)

    def fresh(self) -> State:
        """The state before the first token."""
        zero = self._embeddings.new_zeros(self.channels)
        matrix = zero.new_zeros(self.channels // HEAD, HEAD, HEAD, dtype=torch.float32)
        return tuple(LayerState(zero, matrix, zero) for _ in self._layers)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], state: State | None = None) -> tuple[Tensor, State]:
        """Take in `tokens` (T >= 1) after `state` (None: the beginning) -> logits [V] after the last one, and the new state.

        Raises ValueError for no token, and for one that the model does not have.
        """
        if not tokens:
            raise ValueError("forward needs at least one token")
        if not 0 <= min(tokens) <= max(tokens) < self.vocabulary:
            raise ValueError(f"tokens are from 0 to {self.vocabulary - 1}; got {min(tokens)} to {max(tokens)}")
        x = self._embeddings[torch.tensor(tokens, device=self._embeddings.device)]
        v_first: Tensor | None = None
        after = []
        for (norm_att, time_mix, norm_ffn, channel_mix), before in zip(self._layers, state or self.fresh(), strict=True):
            att_in = norm_att(x)
            out, wkv, v_first = time_mix(att_in, before.att_x, before.wkv, v_first)
            x = x + out
            ffn_in = norm_ffn(x)
            x = x + channel_mix(ffn_in, before.ffn_x)
            after.append(LayerState(att_in[-1], wkv, ffn_in[-1]))
        return self._norm(x[-1:]).mm(self._head)[0], tuple(after)

    def prefill(self, tokens: Sequence[int], state: State | None = None) -> Iterator[tuple[Tensor, State]]:
        """`forward` over a long prompt, chunk by chunk; yields after each, so that the caller can stop. The last one counts."""
        for start in range(0, len(tokens), CHUNK):
            logits, state = self.forward(tokens[start : start + CHUNK], state)
            yield logits, state


def _turned(w: dict[str, Tensor], name: str) -> Tensor:
    """A matrix as [in, out], so that it is applied with one operation."""
    return w.pop(name + ".weight").T.contiguous()


def _norm(w: dict[str, Tensor], name: str) -> _Norm:
    return _Norm(w[name + ".weight"], w[name + ".bias"])
