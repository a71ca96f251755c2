"""Compute the output of attention from a form, or say why that is not possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.inject.causal import adds_to_later_keys, hides_later_keys
from gpudeck.accel.inject.form import ABSORBS, HIDES, Form


class Unfit(Exception):
    """Says why attention is computed as the program wrote it."""


def attend(form: Form, v: Tensor) -> tuple[Tensor, bool]:
    """Return softmax(scores) v, [batch..., queries, features], and whether it is causal attention.

    Where every score of a row has the same finite fill the weights are equal, as in the program; a
    row that is hidden by -inf gives NaN.

    Shapes: v is [batch..., keys, features] in the canonical order; batch axes may be 1.

    Raises:
        Unfit: if our attention does not compute it.
    """
    if not form.normalised:
        raise Unfit("the weights were not normalised")
    out_dtype = v.dtype
    if v.dtype != torch.float64 and torch.is_autocast_enabled(v.device.type):
        out_dtype = torch.get_autocast_dtype(v.device.type)
        v = v.to(out_dtype)
    elif form.dtype != v.dtype:
        raise Unfit(f"weights of {form.dtype} are multiplied with values of {v.dtype}")
    if v.shape[-1] != form.q.shape[-1]:
        raise Unfit(f"values have {v.shape[-1]} features and queries {form.q.shape[-1]}")
    if v.device != form.q.device or v.device.type not in ("cpu", "cuda"):
        raise Unfit(f"the tensors are on {form.q.device} and {v.device}")
    dtype = torch.promote_types(form.q.dtype, v.dtype)
    q, k, v, scale = form.q.to(dtype), form.k.to(dtype), v.to(dtype), form.scale
    for factor in form.factors:
        q = (q * factor).to(dtype)
    if form.cap is not None:
        scale *= form.cap
    if scale < 0:
        q, scale = -q, -scale
    masks = _masks(form, dtype)
    q = q if masks.equal is None else q.masked_fill(masks.equal, 0.0)
    bias = masks.bias
    if masks.hidden is not None:
        bias = ~masks.hidden if bias is None else bias.masked_fill(masks.hidden, -math.inf)
    out = _run(q, k, v, bias, scale, form.cap or 0.0, masks.causal).to(out_dtype)
    if masks.broken is not None:
        out = out.masked_fill(masks.broken, 0.0 if form.blind_is_zero else math.nan)
    return out, masks.causal


class _Masks(NamedTuple):
    """Hold what hides keys, as it is passed on."""

    hidden: Tensor | None
    bias: Tensor | None
    equal: Tensor | None = None
    """Rows whose weights are equal, [batch..., queries, 1]."""
    broken: Tensor | None = None
    """Rows that are NaN."""
    causal: bool = False


def _masks(form: Form, dtype: torch.dtype) -> _Masks:
    hidden = _hidden(form)
    if hidden is None:
        # beside a finite one, another low bias might leave the later keys as the best of a row
        alone = len(form.biases) == 1
        biases = [b for b in form.biases if not adds_to_later_keys(b, infinite=not alone)]
        bias, infinite = _bias(biases, dtype)
        broken = None if infinite is None else infinite.all(-1, keepdim=True)
        return _Masks(None, bias, broken=broken, causal=len(biases) < len(form.biases))
    finite = not math.isinf(form.hidden[0][1])
    bias, infinite = _bias(form.biases, dtype)
    broken = None
    if bias is not None and infinite is not None:
        if finite:
            _refuse_mixed(hidden, bias <= HIDES)
        broken = (infinite if finite else infinite | hidden).all(-1, keepdim=True)
    if hides_later_keys(hidden):
        return _Masks(None, bias, broken=broken, causal=True)
    blind = hidden.all(-1, keepdim=True)
    if not finite:
        return _Masks(hidden, bias, broken=blind if broken is None else broken)
    if bias is not None:
        bias = bias.masked_fill(blind, 0.0)
    return _Masks(hidden & ~blind, bias, equal=blind, broken=broken)


def _refuse_mixed(hidden: Tensor, off: Tensor) -> None:
    """Raise Unfit if a row is hidden in part by a finite fill and in part by a bias.

    Which of its keys then has the largest score depends on the order in which both were applied.
    """
    if torch.compiler.is_compiling():
        raise Unfit("compiled code has a finite fill value and a bias")
    if bool(((hidden | off).all(-1) & off.any(-1)).any()):
        raise Unfit("a row is hidden by a mask and a bias together")


def _hidden(form: Form) -> Tensor | None:
    """Return which scores are hidden."""
    if not form.hidden:
        return None
    fills = {fill for _, fill in form.hidden}
    if len(fills) > 1:
        raise Unfit("keys are hidden by several fill values")
    if form.biases and next(iter(fills)) > ABSORBS:
        raise Unfit("a bias meets a fill value that does not absorb it")
    hidden = form.hidden[0][0]
    for mask, _ in form.hidden[1:]:
        hidden = hidden | mask
    return hidden


def _bias(biases: Sequence[Tensor], dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
    """Return the sum of all biases, and where it is -inf."""
    if not biases:
        return None, None
    bias = sum(biases[1:], biases[0])
    if torch.promote_types(bias.dtype, dtype) != dtype and not torch.is_autocast_enabled(
        bias.device.type
    ):
        raise Unfit(f"a bias of {bias.dtype} is added to scores of {dtype}")
    infinite = bias == -math.inf
    # Kernels multiply a bias by log2(e), which must not overflow where it is the least number.
    least = torch.finfo(dtype).min / (1 if dtype == torch.float16 else 4)
    return bias.to(dtype).clamp(min=least), infinite


def _run(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, cap: float, causal: bool
) -> Tensor:
    shapes = (q.shape[:-2], k.shape[:-2], v.shape[:-2])
    batch = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    heads = math.prod(batch[-1:]) if len(batch) > 1 else 1
    shared = heads > 1 and k.shape[-3] == v.shape[-3] == 1
    of_q, of_k, of_v = (_four(t, batch, s) for t, s in ((q, False), (k, shared), (v, shared)))
    if bias is not None:
        bias = _flat(bias, batch)
    try:
        out = attention(of_q, of_k, of_v, causal=causal, scale=scale, softcap=cap, bias=bias)
    except ValueError as e:
        raise Unfit(str(e)) from e
    return out.reshape(*batch, *out.shape[-2:])


def _four(t: Tensor, batch: tuple[int, ...], shared: bool) -> Tensor:
    """Return [B,H,S,D], or [B,1,S,D] for heads that share keys."""
    wanted = (*batch[:-1], 1) if shared else batch
    t = t.expand(*wanted, *t.shape[-2:])
    heads = wanted[-1] if len(batch) > 1 else 1
    return t.reshape(math.prod(wanted) // heads if heads else 0, heads, *t.shape[-2:])


def _flat(t: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Return a mask as [B or 1, H or 1, queries or 1, keys or 1]."""
    if len(batch) < 2:
        return t.reshape(-1 if batch else 1, 1, *t.shape[-2:])
    if any(size != 1 for size in t.shape[:-3]):
        t = t.expand(*batch[:-1], *t.shape[-3:])
    return t.reshape(-1, *t.shape[-3:])
