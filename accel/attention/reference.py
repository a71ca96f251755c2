"""Attention as its formula says, in float64: the oracle all backends are measured against. Slow, but it never holds S² scores at once."""

from __future__ import annotations

import torch
from torch import Tensor

SCORES_AT_ONCE = 1 << 22


def reference(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, dtype: torch.dtype = torch.float64
) -> Tensor:
    """softmax(q kᵀ · scale + mask) v, with every step in `dtype`.

    q [B,H,Sq,D], k and v [B,Hkv,Sk,D] with Hkv dividing H; returns [B,H,Sq,D] in `dtype`, differentiable. Causal is aligned bottom-right,
    and a query that sees no key gives zeros. With `dtype` that of the inputs it is the plain computation a fused kernel is compared with.
    """
    batch, heads, seq_q = q.shape[:3]
    rows = torch.arange(seq_q, device=q.device)
    every = [
        reference_rows(q, k, v, batch=b, head=h, rows=rows, causal=causal, scale=scale, dtype=dtype)
        for b in range(batch)
        for h in range(heads)
    ]
    return torch.stack(every).view(q.shape) if every else q.to(dtype)


def reference_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    batch: int,
    head: int,
    rows: Tensor,
    causal: bool = False,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """The rows `rows` (int64 [n]) of one head of `reference`'s answer: [n,D] in `dtype`."""
    kv_head = head // (q.shape[1] // k.shape[1])
    keys, values = k[batch, kv_head].to(dtype), v[batch, kv_head].to(dtype)
    scale = q.shape[3] ** -0.5 if scale is None else scale
    last_seen = rows + (k.shape[2] - q.shape[2]) if causal else None
    block = max(1, SCORES_AT_ONCE // max(1, k.shape[2]))
    answers = [
        _attend(q[batch, head, rows[i : i + block]].to(dtype), keys, values, scale, None if last_seen is None else last_seen[i : i + block])
        for i in range(0, len(rows), block)
    ]
    return torch.cat(answers) if answers else q[batch, head, rows].to(dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, scale: float, last_seen: Tensor | None) -> Tensor:
    """q [n,D], k and v [S,D], last_seen int64 [n] (the last key each row sees): [n,D]."""
    scores = q @ k.T * scale
    if last_seen is None:
        return torch.softmax(scores, -1) @ v
    hidden = torch.arange(k.shape[0], device=k.device) > last_seen[:, None]
    # The lowest finite number, not -inf: a row with no key would become NaN, here and in the gradient; the second fill makes it 0.
    weights = torch.softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), -1)
    return weights.masked_fill(hidden, 0.0) @ v
