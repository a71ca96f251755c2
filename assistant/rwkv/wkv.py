"""The recurrence of RWKV-7, a generalised delta rule (Peng et al., arXiv 2503.14456), in two forms that give the same values.

    S_t = S_{t-1} (diag(w_t) + a_t^T b_t) + v_t^T k_t,    y_t = S_t r_t

S is a matrix of values by keys; a = -kk is the normalised key that is erased, b = kk * (in-context learning rate) what is erased of it.
`sequential` is the definition, token after token. `chunked` takes many tokens with a few matrix products; both are differentiable.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LONGEST = 64
"""Tokens of a chunk: a decay is at least exp(-exp(-1/2)) = 0.545, so that over 64 tokens its product, and one over it, fit in fp32."""


def sequential(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """r, w, k, v, a, b [B, T, H, 64], state [B, H, 64, 64] -> y [B, T, H, 64] and the state after."""
    y = []
    for r_t, w_t, k_t, v_t, a_t, b_t in zip(*(x.unbind(1) for x in (r, w, k, v, a, b)), strict=True):
        erased = state @ a_t.unsqueeze(-1)  # [B, H, 64, 1]
        state = state * w_t.unsqueeze(-2) + erased * b_t.unsqueeze(-2) + v_t.unsqueeze(-1) * k_t.unsqueeze(-2)
        y.append((state @ r_t.unsqueeze(-1)).squeeze(-1))
    return torch.stack(y, dim=1), state


def chunked(r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor, chunk: int = LONGEST) -> tuple[Tensor, Tensor]:
    """As `sequential`, `chunk` tokens at once: O(T) memory, and a sequential depth of T / chunk."""
    ys = []
    for start in range(0, r.shape[1], chunk):
        y, state = _one([x[:, start : start + chunk].transpose(1, 2) for x in (r, w, k, v, a, b)], state)
        ys.append(y)
    return torch.cat(ys, dim=2).transpose(1, 2), state


def _one(rows: Sequence[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
    """r, w, k, v, a, b [B, H, T, 64] -> y and the state after.

    With W_t the product of the decays up to t, S_t = (S_0 + sum_{s<=t} (u_s^T b_s + v_s^T k_s) / W_s) W_t, where u_t = S_{t-1} a_t. So
    the u solve a unit lower triangular system, and the rest is products of matrices.
    """
    r, w, k, v, a, b = rows
    decay = w.log().cumsum(dim=2)
    after, before = decay.exp(), (decay - w.log()).exp()
    reads, erases, keys, gains = r * after, a * before, k / after, b / after  # what meets what was written before: never above 1
    length = r.shape[2]
    seen = torch.ones(length, length, dtype=torch.bool, device=r.device).tril()
    past = seen.tril(-1)
    system = torch.eye(length, dtype=r.dtype, device=r.device) - (erases @ gains.mT).masked_fill(~past, 0)
    known = erases @ state.mT + (erases @ keys.mT).masked_fill(~past, 0) @ v
    u = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    y = reads @ state.mT + (reads @ gains.mT).masked_fill(~seen, 0) @ u + (reads @ keys.mT).masked_fill(~seen, 0) @ v
    last = after[:, :, -1:]
    return y, state * last + u.mT @ (gains * last) + v.mT @ (keys * last)
