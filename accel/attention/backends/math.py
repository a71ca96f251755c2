"""Compute attention by plain tensor operations on any device.

This backend accepts every problem and holds all scores in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from gpudeck.accel.attention.backends.base import Backend, Gradients
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.problem import Problem


class Math(Backend):
    """Attention in float32 (float64 for float64 inputs) for any dtype, also under autocast."""

    variants = frozenset({"lse_grad", "alibi", "blocks"})
    adds_sink = True

    def takes_narrow(self, p: Problem) -> bool:
        """Return True: products take any sizes."""
        return True

    def forward(self, x: Inputs, problem: Problem) -> tuple[Tensor, Tensor]:
        """Run the forward pass, holding scores of heads x queries x keys."""
        out = torch.zeros_like(x.like_out)
        lse = x.q.new_full(x.q.shape[:3], -torch.inf, dtype=torch.float32)
        with torch.autocast(x.q.device.type, enabled=False):
            self._solve(x, problem, out, lse)
        return out, lse

    def _solve(self, x: Inputs, problem: Problem, out: Tensor, lse: Tensor) -> None:
        for rows, part in _sequences(x.with_mask()):
            weights, part_lse, _ = _weights(part, problem)
            out[:, :, rows] = (weights @ _per_query_head(part.v, problem, weights.dtype)).to(
                out.dtype
            )
            lse[:, :, rows] = part_lse.to(lse.dtype)

    def backward(
        self,
        dout: Tensor,
        x: Inputs,
        out: Tensor,
        lse: Tensor,
        problem: Problem,
        dlse: Tensor | None = None,
    ) -> Gradients:
        """Recompute the scores and return the gradients.

        dS = P (dP - sum(dO O) + dlse); source: FlashAttention (arXiv 2205.14135), section B.2.
        """
        with torch.autocast(x.q.device.type, enabled=False):
            return self._differentiate(dout, x, out, problem, dlse)

    def _differentiate(
        self, dout: Tensor, x: Inputs, out: Tensor, problem: Problem, dlse: Tensor | None
    ) -> Gradients:
        grads = [torch.zeros_like(t) for t in (x.q, x.k, x.v)]
        dbias = None
        x = x.with_mask()
        for (rows, part), (keys, _) in zip(_sequences(x), _sequences(x, of_keys=True), strict=True):
            weights, _, slope = _weights(part, problem)
            d, o = (t[:, :, rows].to(weights.dtype) for t in (dout, out))
            q, k, v = (
                part.q.to(weights.dtype),
                *(_per_query_head(t, problem, weights.dtype) for t in (part.k, part.v)),
            )
            delta = (d * o).sum(-1, keepdim=True)
            if dlse is not None:
                delta = delta - dlse[:, :, rows, None].to(delta.dtype)
            dscores = weights * (d @ v.mT - delta)
            if problem.bias_grad and x.bias is not None:
                dbias = dscores.sum_to_size(x.bias.shape).to(x.q.dtype)
            dscores = dscores * slope * problem.scale
            grads[0][:, :, rows] = (dscores @ k).to(x.q.dtype)
            grads[1][:, :, keys] = _per_kv_head(dscores.mT @ q, problem).to(x.q.dtype)
            grads[2][:, :, keys] = _per_kv_head(weights.mT @ d, problem).to(x.q.dtype)
        return Gradients(grads[0], grads[1], grads[2], dbias)


def _sequences(x: Inputs, of_keys: bool = False) -> Iterator[tuple[slice, Inputs]]:
    """Yield each sequence of a ragged batch with its slice of the queries (or keys); a dense
    batch is one."""
    if x.ragged is None:
        yield slice(None), x
        return
    starts_q, starts_k = x.ragged.starts_q.tolist(), x.ragged.starts_k.tolist()
    for i in range(x.ragged.sequences):
        queries, keys = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        yield (
            keys if of_keys else queries,
            x._replace(
                q=x.q[:, :, queries], k=x.k[:, :, keys], v=x.v[:, :, keys], bias=None, ragged=None
            ),
        )


def _weights(x: Inputs, p: Problem) -> tuple[Tensor, Tensor, Tensor | float]:
    """Return the softmax [B,H,Sq,Sk], the rows' lse [B,H,Sq], and the slope of the softcap."""
    dtype = torch.float64 if p.dtype == torch.float64 else torch.float32
    scores = x.q.to(dtype) @ _per_query_head(x.k, p, dtype).mT * p.scale
    slope: Tensor | float = 1.0
    if p.softcap:
        bent = torch.tanh(scores / p.softcap)
        scores, slope = p.softcap * bent, 1 - bent * bent
    if x.slopes is not None:
        scores = scores + x.slopes.to(dtype)[..., None, None] * _distances(scores)
    if x.bias is not None:
        scores = (
            scores.masked_fill(~x.bias, -torch.inf)
            if x.bias.dtype == torch.bool
            else scores + x.bias
        )
    hidden = _hidden(scores, p)
    scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    lse = (
        torch.logsumexp(scores, -1)
        if scores.shape[-1]
        else scores.new_full(scores.shape[:-1], -torch.inf)
    )
    # Not exp(scores - lse): where all biases of a row are -1e9, lse cannot hold the number of keys.
    # A row that sees no key would be NaN and is 0.
    weights = torch.softmax(scores, -1).masked_fill(torch.isneginf(lse)[..., None], 0.0)
    if x.sink is not None:
        keys, lse = lse, torch.logaddexp(lse, x.sink.to(dtype)[:, None])
        weights = weights * torch.exp(keys - lse).masked_fill(torch.isneginf(keys), 0.0)[..., None]
    return weights, lse, slope


def _distances(scores: Tensor) -> Tensor:
    """Return key - position of the query, int64 [Sq,Sk]."""
    seq_q, seq_k = scores.shape[-2:]
    rows, keys = (torch.arange(n, device=scores.device) for n in (seq_q, seq_k))
    return keys - (rows + seq_k - seq_q)[:, None]


def _hidden(scores: Tensor, p: Problem) -> Tensor | None:
    """Return a bool mask [Sq,Sk] of what causality and window hide."""
    if p.left is None and p.right is None:
        return None
    seq_q, seq_k = scores.shape[-2:]
    shift = seq_k - seq_q
    every = torch.ones(seq_q, seq_k, dtype=torch.bool, device=scores.device)
    seen = every if p.right is None else every.tril(shift + p.right)
    return ~(seen if p.left is None else seen.triu(shift - p.left))


def _per_query_head(x: Tensor, p: Problem, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).repeat_interleave(p.heads // p.kv_heads, 1)


def _per_kv_head(x: Tensor, p: Problem) -> Tensor:
    """Sum over the query heads that share a key/value head."""
    return x.view(x.shape[0], p.kv_heads, p.heads // p.kv_heads, *x.shape[2:]).sum(2)
