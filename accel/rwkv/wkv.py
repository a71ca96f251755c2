"""Compute the recurrence of RWKV-7, a generalised delta rule, in two equal forms.

    S_t = S_{t-1} (diag(w_t) + a_t^T b_t) + v_t^T k_t,    y_t = S_t r_t

S is a matrix of values by keys. a = -kk is the normalised key that is erased, and
b = kk * (in-context learning rate) decides how much of it. `sequential` is the definition, token
after token. `chunked` takes many tokens with a few matrix products. Both are differentiable.

Source: Peng et al., arXiv 2503.14456.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

LONGEST = 64
"""The tokens of a chunk. A decay is at least exp(-exp(-1/2)) = 0.545, so that the product of 64
decays and its inverse fit in fp32.
"""


def sequential(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the recurrence token by token.

    Shapes:
        r, w, k, v, a, b: [B, T, H, 64].
        state: [B, H, 64, 64].

    Returns:
        y [B, T, H, 64] and the new state.
    """
    y = []
    for r_t, w_t, k_t, v_t, a_t, b_t in zip(
        *(x.unbind(1) for x in (r, w, k, v, a, b)), strict=True
    ):
        erased = state @ a_t.unsqueeze(-1)  # [B, H, 64, 1]
        state = (
            state * w_t.unsqueeze(-2)
            + erased * b_t.unsqueeze(-2)
            + v_t.unsqueeze(-1) * k_t.unsqueeze(-2)
        )
        y.append((state @ r_t.unsqueeze(-1)).squeeze(-1))
    return torch.stack(y, dim=1), state


def chunked(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    state: Tensor,
    chunk: int = LONGEST,
) -> tuple[Tensor, Tensor]:
    """Compute `sequential` in chunks, in O(T) memory.

    All chunks are computed at once, except for one matrix product a chunk that passes the state on.
    Within a chunk, with W_t the product of its decays up to t,

    S_t = (S_0 + sum_{s<=t} (u_s^T b_s + v_s^T k_s) / W_s) W_t,    u_t = S_{t-1} a_t.

    So the u solve a unit lower triangular system whose right side is linear in S_0, and so are y
    and the new state.
    """
    length = r.shape[1]
    if length == 1:
        return sequential(r, w, k, v, a, b, state)
    r, w, k, v, a, b = (
        _cut(x, chunk, fill)
        for x, fill in zip((r, w, k, v, a, b), (0.0, 1.0, 0.0, 0.0, 0.0, 0.0), strict=True)
    )
    decay = w.log().cumsum(dim=3)
    after, before = decay.exp(), (decay - w.log()).exp()
    reads, erases, keys, gains = (
        r * after,
        a * before,
        k / after,
        b / after,
    )  # factors that meet earlier writes: never above 1
    seen = torch.ones(r.shape[3], r.shape[3], dtype=torch.bool, device=r.device).tril()
    past = seen.tril(-1)
    system = torch.eye(r.shape[3], dtype=r.dtype, device=r.device) - (
        erases @ gains.mT
    ).masked_fill(~past, 0)
    right = torch.cat((erases, (erases @ keys.mT).masked_fill(~past, 0) @ v), dim=-1)
    by_state, own = torch.linalg.solve_triangular(
        system, right, upper=False, unitriangular=True
    ).chunk(2, dim=-1)  # u = S by_state + own
    of_u = (reads @ gains.mT).masked_fill(~seen, 0)
    last = after[..., -1:, :]
    kept, added = gains * last, keys * last
    turn = torch.diag_embed(last.squeeze(-2)) + by_state.mT @ kept
    new = own.mT @ kept + v.mT @ added
    states = []
    for i in range(r.shape[2]):
        states.append(state)
        state = state @ turn[:, :, i] + new[:, :, i]
    y = (
        (reads + of_u @ by_state) @ torch.stack(states, dim=2).mT
        + of_u @ own
        + (reads @ keys.mT).masked_fill(~seen, 0) @ v
    )
    return y.flatten(2, 3)[:, :, :length].transpose(1, 2), state


def _cut(x: Tensor, chunk: int, fill: float) -> Tensor:
    """Cut [B, T, H, 64] into [B, H, chunks, at most `chunk`, 64]; the padding changes no state."""
    batch, length, heads, width = x.shape
    size = min(chunk, length)
    x = functional.pad(x, (0, 0, 0, 0, 0, -length % size), value=fill)
    return x.transpose(1, 2).reshape(batch, heads, -1, size, width)
