"""Compute the recurrence token by token in float64: what every backend is checked against."""

from __future__ import annotations

import torch
from torch import Tensor

from gpudeck.accel.primitives.linear_attention.problem import Operands


def reference(x: Operands) -> tuple[Tensor, Tensor]:
    """Return the output [B,T,H,Dv] and the final states [N,H,Dk,Dv], both float64."""
    return recurrence(x.to(torch.float64))


def recurrence(x: Operands) -> tuple[Tensor, Tensor]:
    """Compute the definition in the operands' own dtype; differentiable, O(T) steps."""
    x = x.spell_out()
    heads, keys, values = x.v.shape[2], x.q.shape[3], x.v.shape[3]
    tokens = [_tokens(t, heads) for t in (x.q, x.k, x.v, x.a, x.b)]
    decay = x.decay.reshape(-1, heads, x.decay.shape[3] if x.decay.dim() == 4 else 1)
    decay = decay.clamp(min=x.rule.strongest)
    outputs, states = [], []
    for n, (begin, end) in enumerate(x.bounds):
        state = (
            x.q.new_zeros(heads, keys, values, dtype=x.decay.dtype)
            if x.state is None
            else x.state[n]
        )
        for t in range(begin, end):
            q, k, v, a, b = (None if rows is None else rows[t] for rows in tokens)
            state = _step(x, state, decay[t], k, v, a, b)
            assert q is not None
            outputs.append(x.scale * torch.einsum("hk,hkv->hv", q.to(state.dtype), state))
        states.append(state)
    shape = (*x.q.shape[:2], heads, values)
    out = torch.stack(outputs) if outputs else x.v.new_zeros(0, heads, values)
    return out.reshape(shape), torch.stack(states)


def _step(
    x: Operands,
    state: Tensor,
    decay: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    a: Tensor | None,
    b: Tensor | None,
) -> Tensor:
    """Return S_t of S_{t-1} [H,Dk,Dv] and one token's vectors [H,D]."""
    assert v is not None
    before, state = state, decay.exp().unsqueeze(-1) * state
    new = state
    if a is not None and b is not None:
        erased = torch.einsum(
            "hk,hkv->hv", a.to(state.dtype), before if x.rule.exclusive else state
        )
        u = erased if x.rule.plain else v - erased
        new = new + b.unsqueeze(-1) * u.unsqueeze(-2)
    if k is not None and x.rule.plain:
        new = new + k.unsqueeze(-1) * v.unsqueeze(-2)
    return new


def _tokens(x: Tensor | None, heads: int) -> Tensor | None:
    """Return [B,T,h,D] as [B*T,heads,D], with the heads that are shared repeated."""
    if x is None:
        return None
    return x.flatten(0, 1).repeat_interleave(heads // x.shape[2], dim=1)
