"""Compute attention by its formula in float64: the reference for all backends.

It is slow, but never holds S² scores at once.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict, Unpack, overload

import torch
from torch import Tensor

from gpudeck.accel.attention.problem import Rules, default_scale
from gpudeck.accel.attention.ragged import Ragged

SCORES_AT_ONCE = 1 << 22


class Options(TypedDict, total=False):
    """The arguments of `reference` that do not change what it returns."""

    causal: bool
    window: tuple[int | None, int | None]
    scale: float | None
    softcap: float
    bias: Tensor | None
    ragged: Ragged | None
    sink: Tensor | None
    alibi: Tensor | None
    dtype: torch.dtype


class Head(NamedTuple):
    """The tensors of one head: q [Sq,D], k and v [Sk,D], all in one dtype."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    """[Sq,Sk]"""
    sink: Tensor | None
    """One more score for every row, [1]."""
    slope: Tensor | None
    """The slope of ALiBi, [1]."""


@overload
def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    return_lse: Literal[False] = ...,
    **options: Unpack[Options],
) -> Tensor: ...
@overload
def reference(
    q: Tensor, k: Tensor, v: Tensor, *, return_lse: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...
def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] = (None, None),
    scale: float | None = None,
    softcap: float = 0.0,
    bias: Tensor | None = None,
    ragged: Ragged | None = None,
    sink: Tensor | None = None,
    alibi: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    return_lse: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Compute softmax(cap(q kᵀ · scale) + bias) v over the visible keys, with every step in
    `dtype`.

    Shapes: q [B,H,Sq,D], k and v [B,Hkv,Sk,D] with Hkv dividing H (the heads of
    v may be smaller), bias broadcastable to
    [B,H,Sq,Sk]; with `ragged` [1,H,Tq,D] and [1,Hkv,Tk,D]. Positions are aligned bottom-right; a
    query that sees no key gives zeros, and -inf. `sink` [H] is one more score of each row, which
    has no value; `alibi` [H] or [B,H] times (key - position of the query) is added to the scores.
    With the dtype of the inputs this is the plain computation that a fused kernel is compared with.

    Returns:
        The output [B,H,Sq,D] in `dtype`, differentiable; with `return_lse` also the logarithm of
        the sum of exponentials of each row, [B,H,Sq].
    """
    left, right = window
    if causal:
        right = 0 if right is None else min(right, 0)
    scale = default_scale(q.shape[3]) if scale is None else scale
    rules = Rules(left, right, scale, softcap)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    sink, alibi = (None if x is None else x.to(dtype) for x in (sink, alibi))
    bias = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
    if ragged is None:
        out, lse = _dense(q, k, v, bias, rules, sink, alibi)
    else:
        out, lse = _sequences(q, k, v, ragged, rules, sink, alibi)
    return (out, lse) if return_lse else out


def _dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    rules: Rules,
    sink: Tensor | None,
    alibi: Tensor | None,
) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    slopes = None if alibi is None else alibi.expand(q.shape[:2])
    every = [
        _solve(
            Head(
                q[b, h],
                k[b, h // group],
                v[b, h // group],
                None if bias is None else bias[b, h],
                None if sink is None else sink[h : h + 1],
                None if slopes is None else slopes[b, h],
            ),
            rules,
        )
        for b in range(q.shape[0])
        for h in range(q.shape[1])
    ]
    if not every:
        return q[..., : v.shape[3]], q.new_empty(q.shape[:3])
    out, lse = (torch.stack(x) for x in zip(*every, strict=True))
    return out.view(*q.shape[:3], v.shape[3]), lse.view(q.shape[:3])


def _sequences(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    ragged: Ragged,
    rules: Rules,
    sink: Tensor | None,
    alibi: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Compute one sequence after the other; tokens outside all sequences give zeros."""
    out = q.new_zeros((*q.shape[:3], v.shape[3]))
    lse = q.new_full(q.shape[:3], -torch.inf)
    starts_q, starts_k = ragged.starts_q.tolist(), ragged.starts_k.tolist()
    for i in range(ragged.sequences):
        queries, keys = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        part = (q[:, :, queries], k[:, :, keys], v[:, :, keys])
        one, one_lse = _dense(*part, None, rules, sink, alibi)
        out = torch.cat([out[:, :, : queries.start], one, out[:, :, queries.stop :]], 2)
        lse = torch.cat([lse[:, :, : queries.start], one_lse, lse[:, :, queries.stop :]], 2)
    return out, lse


def _solve(head: Head, rules: Rules) -> tuple[Tensor, Tensor]:
    """Compute one head, some of its queries at a time: [Sq,D] and [Sq]."""
    queries, keys = len(head.q), len(head.k)
    places = torch.arange(queries, device=head.q.device) + (keys - queries)
    block = max(1, SCORES_AT_ONCE // max(1, keys))
    answers = [
        _attend(
            head._replace(q=head.q[part], bias=None if head.bias is None else head.bias[part]),
            places[part],
            rules,
        )
        for part in (slice(i, i + block) for i in range(0, queries, block))
    ]
    if not answers:
        return head.q[:, : head.v.shape[1]], head.q.new_empty(0)
    out, lse = (torch.cat(x) for x in zip(*answers, strict=True))
    return out, lse


def _attend(head: Head, places: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Attend with queries [n,D] at the positions int64 [n]."""
    q, k, v, bias, sink, slope = head
    scores = q @ k.T * rules.scale
    if rules.softcap:
        scores = rules.softcap * torch.tanh(scores / rules.softcap)
    if slope is not None:
        at = torch.arange(k.shape[0], device=k.device)
        scores = scores + slope * (at - places[:, None])
    if bias is not None and bias.dtype != torch.bool:
        scores = scores + bias.to(scores.dtype)
    hidden = _hide(places, k.shape[0], rules, bias)
    if sink is not None:
        return _attend_with_sink(scores, v, hidden, sink)
    if hidden is None and k.shape[0]:
        return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
    hidden = torch.zeros_like(scores, dtype=torch.bool) if hidden is None else hidden
    # The lowest finite number is used instead of -inf: a row without keys would become NaN, here
    # and in the gradient. The second fill makes it 0.
    low = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    weights = torch.softmax(low, -1).masked_fill(hidden, 0.0)
    lse = torch.logsumexp(scores.masked_fill(hidden, -torch.inf), -1)
    return weights @ v, lse.masked_fill(hidden.all(-1), -torch.inf)


def _attend_with_sink(
    scores: Tensor, v: Tensor, hidden: Tensor | None, sink: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend with one more column of scores, which belongs to no value."""
    scores = scores if hidden is None else scores.masked_fill(hidden, -torch.inf)
    whole = torch.cat([scores, sink.expand(len(scores), 1)], 1)
    nothing = torch.isneginf(whole)
    low = whole.masked_fill(nothing, torch.finfo(whole.dtype).min)
    weights = torch.softmax(low, -1).masked_fill(nothing, 0.0)
    return weights[:, :-1] @ v, torch.logsumexp(whole, -1)


def _hide(places: Tensor, keys: int, rules: Rules, bias: Tensor | None) -> Tensor | None:
    """Return a bool mask [n, keys] of hidden keys, or None if all are visible."""
    at = torch.arange(keys, device=places.device)
    masks = [] if rules.right is None else [at > places[:, None] + rules.right]
    masks += [] if rules.left is None else [at < places[:, None] - rules.left]
    masks += [~bias] if bias is not None and bias.dtype == torch.bool else []
    # A bias of -inf hides a key like a mask.
    masks += [torch.isneginf(bias)] if bias is not None and bias.dtype != torch.bool else []
    return torch.stack(masks).any(0) if masks else None
