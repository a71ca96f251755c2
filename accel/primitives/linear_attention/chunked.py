"""Compute the recurrence in chunks of tokens with matrix products, in torch and on any device.

Within a chunk, with G_t the sum of its log decays up to token t, the state is

    S_t = e^{G_t} S_0 + sum_{s<=t} e^{G_t - G_s} (k_s v_s^T + b_s u_s^T),

so the u solve a unit lower triangular system whose right side is linear in S_0. All chunks are
computed at once but for the products that pass the state on. Gradients are autograd's.

Source: the WY form of Bischof and Van Loan as Yang et al. use it, arXiv 2406.06484.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.primitives.linear_attention.problem import Operands

_LONG, _SHORT = 64, 16
"""Tokens of a chunk. With a decay for each channel the factors e^{G} stand beside the keys, and 16
of the strongest decays are what float32 can hold around the chunk's middle."""


def chunked(x: Operands) -> tuple[Tensor, Tensor]:
    """Return the output [B,T,H,Dv] in the dtype of v and the final states [N,H,Dk,Dv] float32.

    Sums are float32, or float64 for float64 operands. Memory is O(T).
    """
    x = x.spell_out()
    if x.starts is None:
        out, state = _sequences(x)
        return out.to(x.v.dtype), state
    outs, states = [], []
    for n, (begin, end) in enumerate(x.bounds):
        out, state = _sequences(_cut(x, n, begin, end))
        outs.append(out)
        states.append(state)
    return torch.cat(outs, 1).to(x.v.dtype), torch.cat(states)


def _cut(x: Operands, n: int, begin: int, end: int) -> Operands:
    """Return the operands of one sequence of a ragged batch."""
    q, k, v, a, b, decay = (
        None if t is None else t[:, begin:end] for t in (x.q, x.k, x.v, x.a, x.b, x.decay)
    )
    assert q is not None and v is not None and decay is not None
    state = None if x.state is None else x.state[n : n + 1]
    return Operands(q, v, decay, x.scale, x.rule, k, a, b, state=state)


class _Chunks(NamedTuple):
    """Hold what does not depend on the state, for all chunks: [B,H,N,C,·]."""

    reads: Tensor
    """q e^{G} scale."""
    scores: Tensor
    """Of the values, or with a delta rule of the corrections."""
    values: Tensor | None
    keys: Tensor | None
    """k e^{G_C - G}."""
    erases: Tensor | None
    """T a e^{G}: corrections are erases S_0 + constants."""
    constants: Tensor | None
    gains: Tensor | None
    """b e^{G_C - G}."""
    gain_scores: Tensor | None
    last: Tensor
    """e^{G_C}, [B,H,N,D or 1]."""


def _sequences(x: Operands) -> tuple[Tensor, Tensor]:
    """Compute sequences of equal length."""
    batch, length, heads, values = x.v.shape
    chunks = _prepare(x)
    kept = chunks.reads.dtype
    state = (
        torch.zeros(batch, heads, x.q.shape[3], values, dtype=kept, device=x.v.device)
        if x.state is None
        else x.state.to(kept)
    )
    outputs = []
    for n in range(chunks.reads.shape[2]):
        out = chunks.reads[:, :, n] @ state
        new = chunks.last[:, :, n].unsqueeze(-1) * state
        if chunks.values is not None and chunks.keys is not None:
            out = out + chunks.scores[:, :, n] @ chunks.values[:, :, n]
            new = new + chunks.keys[:, :, n].mT @ chunks.values[:, :, n]
        if (
            chunks.erases is not None
            and chunks.constants is not None
            and chunks.gains is not None
            and chunks.gain_scores is not None
        ):
            u = chunks.erases[:, :, n] @ state + chunks.constants[:, :, n]
            out = out + chunks.gain_scores[:, :, n] @ u
            new = new + chunks.gains[:, :, n].mT @ u
        outputs.append(out)
        state = new
    if not outputs:
        return x.v.new_zeros(x.v.shape), state
    out = torch.stack(outputs, 2).flatten(2, 3)[:, :, :length]
    return out.transpose(1, 2), state


def _prepare(x: Operands) -> _Chunks:
    """Compute the parts of every chunk that do not depend on the state."""
    channel = x.decay.dim() == 4
    size = _SHORT if channel and not x.rule.gentle else _LONG
    q, k, v, a, b = (_split(t, x.v.shape[2], size) for t in (x.q, x.k, x.v, x.a, x.b))
    decay = _split(x.decay if channel else x.decay.unsqueeze(-1), x.v.shape[2], size)
    assert q is not None and v is not None and decay is not None
    decay = decay.clamp(min=x.rule.strongest)
    sums = decay.cumsum(3)
    last = sums[..., -1:, :]
    middle = sums[..., size // 2, :].unsqueeze(-2)
    before = sums - decay if x.rule.exclusive else sums
    seen = torch.ones(size, size, dtype=torch.bool, device=v.device).tril()

    def scores(rows: Tensor, row_sums: Tensor, columns: Tensor, mask: Tensor) -> Tensor:
        """Return rows · columns e^{row_sums - sums} where the mask lets a row see a column."""
        if channel:
            product = (rows * (row_sums - middle).exp()) @ (columns * (middle - sums).exp()).mT
            return product.masked_fill(~mask, 0.0)
        factor = (row_sums - sums.mT).masked_fill(~mask, -torch.inf).exp()
        return (rows @ columns.mT) * factor

    q = q * x.scale
    strict = seen.tril(-1)
    erases = constants = gains = gain_scores = None
    if a is not None and b is not None:
        a = a * x.rule.sign
        unit = torch.eye(size, dtype=v.dtype, device=v.device)
        system = unit - scores(a, before, b, strict)
        right = v
        if x.rule.plain and k is not None:
            right = scores(a, before, k, strict) @ v
        both = torch.cat((a * before.exp(), right), -1)
        solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
        erases, constants = solved.split((a.shape[-1], v.shape[-1]), -1)
        gains = b * (last - sums).exp()
        gain_scores = scores(q, sums, b, seen)
    plain = k if x.rule.plain else None
    return _Chunks(
        q * sums.exp(),
        v if plain is None else scores(q, sums, plain, seen),
        None if plain is None else v,
        None if plain is None else plain * (last - sums).exp(),
        erases,
        constants,
        gains,
        gain_scores,
        last.squeeze(-2).exp(),
    )


def _split(x: Tensor | None, heads: int, size: int) -> Tensor | None:
    """Return [B,T,h,D] as [B,H,N,size,D] in the dtype of sums; the end is filled with zeros."""
    if x is None:
        return None
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    x = functional.pad(x.transpose(1, 2), (0, 0, 0, -x.shape[1] % size))
    batch, shared, length, width = x.shape
    x = x.reshape(batch, shared, length // size, size, width)
    return x.repeat_interleave(heads // shared, dim=1)
