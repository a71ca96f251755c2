"""Describe attention as tasks of the search: the forward pass, its gradients, and decoding.

The batch is part of the heads here, or is called sequences: each has keys of its own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 8
"""The queries of a decoding step that share keys: heads of one token."""


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return causal attention of each head, step by step; all are [heads, tokens, width]."""
    return _probabilities(q, k) @ v


def torch_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the same by torch's operator."""
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]


def attention_gradients(q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> Tensor:
    """Return the gradients of q, k and v of causal attention, [heads, 3, tokens * width].

    The gradient of a head is one row, so that its error counts as a whole.
    """
    p = _probabilities(q, k)
    dp = dout @ v.mT
    ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    return torch.stack([ds @ k, ds.mT @ q, p.mT @ dout], 1).flatten(2)


def torch_attention_gradients(q: Tensor, k: Tensor, v: Tensor, dout: Tensor) -> Tensor:
    """Return the same by torch's operator and its gradients."""
    with torch.enable_grad():
        q, k, v = (x.detach()[None].requires_grad_() for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    found = torch.autograd.grad(out, (q, k, v), dout[None])
    return torch.stack([x[0] for x in found], 1).flatten(2)


def decoding(k: Tensor, v: Tensor, q: Tensor) -> Tensor:
    """Return attention of a few queries of each sequence over all of its keys.

    Shapes: k and v are [sequences, keys, width], q is [sequences, 8, width].
    """
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def torch_decoding(k: Tensor, v: Tensor, q: Tensor) -> Tensor:
    """Return the same by torch's operator: the queries are heads that share keys."""
    out = F.scaled_dot_product_attention(q[:, :, None], k[:, None], v[:, None], enable_gqa=True)
    return out[:, :, 0]


def _probabilities(q: Tensor, k: Tensor) -> Tensor:
    scores = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(scores.masked_fill(later, -torch.inf), -1)
