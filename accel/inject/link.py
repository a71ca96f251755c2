"""Hold what rewritten code calls in place of the first product of attention.

Each function takes what the function of the same name takes. `matmul`, `bmm`, `einsum` and
`baddbmm` return delayed scores (see `accel.inject.scores`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from accel.attention.api import attention
from accel.inject import record
from accel.inject.equation import of_einsum, of_matmul
from accel.inject.scores import Scores, product, transformed


def matmul(a: Any, b: Any) -> Any:
    """Multiply queries with transposed keys."""
    return product(torch.matmul, a, b, of_matmul(*_axes(a, b)))


def attend(a: Any, b: Any) -> Any:
    """Multiply weights with values, of which one may be delayed."""
    return torch.matmul(a, b)


def bmm(a: Any, b: Any) -> Any:
    """Multiply batches of queries with transposed keys."""
    return product(torch.bmm, a, b, of_matmul(3, 3) if _axes(a, b) == (3, 3) else None)


def einsum(text: str, *operands: Any) -> Any:
    """Multiply queries with keys as torch.einsum does."""
    listed = operands[0] if len(operands) == 1 else operands
    if len(listed) != 2:
        return torch.einsum(text, *operands)
    a, b = listed
    return product(_einsum(text), a, b, of_einsum(text, *_axes(a, b)))


def baddbmm(input: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    """Compute beta x input + alpha x a b; an input with beta 0 is not read."""

    def compute(a: Any, b: Any) -> Any:
        return torch.baddbmm(input, a, b, beta=beta, alpha=alpha)

    bias = None if beta == 0 else input if beta == 1 else input * beta
    by = of_matmul(3, 3) if _axes(a, b) == (3, 3) else None
    return product(compute, a, b, by, scale=alpha, bias=bias)


def _axes(a: Any, b: Any) -> tuple[int, int]:
    return getattr(a, "ndim", 0), getattr(b, "ndim", 0)


def _einsum(text: str) -> Any:
    def compute(a: Any, b: Any) -> Any:
        return torch.einsum(text, a, b)

    return compute


def rearrange(tensor: Any, pattern: str, **sizes: int) -> Any:
    """Rearrange as einops does; patterns that only reorder axes keep scores delayed."""
    before, _, after = (side.split() for side in pattern.partition("->"))
    named = not sizes and all(axis.isidentifier() for axis in before)
    if type(tensor) is Scores and named and sorted(before) == sorted(after):
        return tensor.permute([before.index(axis) for axis in after])
    import einops

    return einops.rearrange(tensor.tensor() if type(tensor) is Scores else tensor, pattern, **sizes)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute what torch's function of this name computes, by our attention if it can."""
    try:
        why = _unfit(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        if why is None:
            if attn_mask is not None:
                attn_mask = attn_mask.reshape(*[1] * (4 - attn_mask.ndim), *attn_mask.shape)
            out = attention(query, key, value, causal=is_causal, scale=scale, bias=attn_mask)
            record.ran("linked")
            return out
    except ValueError as e:
        why = str(e)
    record.ran(f"computed as written: {why}")
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _unfit(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, grouped: bool
) -> str | None:
    """Return why torch's own function computes a call, or None."""
    if type(q) is Scores or any(map(transformed, (q, k, v))):
        return "the tensors are traced or transformed"
    if dropout:
        return "dropout is active"
    if q.ndim != 4 or k.ndim != 4 or q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3]:
        return "the tensors are not [batch, heads, sequence, features]"
    if v.shape[-1] != q.shape[-1]:
        return "values have other features than queries"
    if q.shape[1] != k.shape[1] and not grouped:
        return "heads are broadcast"
    if torch.is_autocast_enabled(q.device.type):
        return "autocast chooses the precision"
    # is_causal aligns the first query with the first key, ours the last ones
    if causal and (q.shape[2] != k.shape[2] or mask is not None):
        return "causal attention over another number of keys"
    if mask is not None and (mask.ndim > 4 or mask.dtype not in (torch.bool, q.dtype)):
        return "the mask is of another precision or has more than four axes"
    return None
