"""Describe linear attention as tasks of the search: retention, and the recurrence of RWKV-7.

Vectors lie in memory as models have them: tokens first.
"""

from __future__ import annotations

import torch
from torch import Tensor

HEAD = 64
"""The channels of a head of RWKV-7."""
_SLOWEST = 0.606531
"""e^-0.5: the strongest log decay of RWKV-7 is minus this (Peng et al., arXiv 2503.14456)."""


def retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return retention, of which all are [tokens, heads, width], by its quadratic form.

    Source: Sun et al., arXiv 2307.08621, without its norm.
    """
    tokens, heads, width = q.shape
    order = torch.arange(tokens, device=q.device)
    apart = (order[:, None] - order).to(q.dtype)
    decay = log_decays(heads, q.device).to(q.dtype)
    factors = (decay[:, None, None] * apart).exp().masked_fill(apart < 0, 0.0)
    scores = torch.einsum("thd,shd->hts", q, k) * factors * width**-0.5
    return torch.einsum("hts,shd->thd", scores, v)


def log_decays(heads: int, device: torch.device) -> Tensor:
    """Return the log decay of each head of retention, log(1 - 2^(-5-h)), float64."""
    numbers = torch.arange(heads, device=device, dtype=torch.float64)
    return torch.log1p(-torch.exp2(-5.0 - numbers))


def rwkv7(r: Tensor, w: Tensor, k: Tensor, v: Tensor, removal: Tensor, rate: Tensor) -> Tensor:
    """Return the outputs of RWKV-7's recurrence from no state, token by token.

    All are [tokens, heads, 64], before the activations: those of decays, of the removed key, which
    is normalised, and of the rate of its replacement.
    """
    decay, erased, written = activated(w, removal, rate)
    state = r.new_zeros(r.shape[1], HEAD, HEAD)
    outputs = []
    for token in range(len(r)):
        gone = (state * erased[token, :, None, :]).sum(-1)
        state = (
            state * decay[token, :, None, :]
            + gone[:, :, None] * written[token, :, None, :]
            + v[token, :, :, None] * k[token, :, None, :]
        )
        outputs.append((state * r[token, :, None, :]).sum(-1))
    return torch.stack(outputs)


def activated(w: Tensor, removal: Tensor, rate: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the decays of RWKV-7, what is erased, and what is written in its place."""
    decay = torch.exp(-_SLOWEST * torch.sigmoid(w))
    unit = removal / removal.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return decay, -unit, unit * torch.sigmoid(rate)
