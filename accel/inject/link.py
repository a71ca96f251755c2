"""Hold what rewritten code calls in place of the products of attention.

`scores` and `attend` stand for the operator `@`; every other function takes what the one of torch
with its name takes. All but `attend` return delayed scores (see `gpudeck.accel.inject.scores`).
Where another library has replaced a function of torch, that one is called.
"""

from __future__ import annotations

from types import BuiltinFunctionType, MethodDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gpudeck.accel.attention.api import attention
from gpudeck.accel.inject import record
from gpudeck.accel.inject.causal import adds_to_later_keys, hides_later_keys
from gpudeck.accel.inject.equation import of_einsum, of_matmul
from gpudeck.accel.inject.scores import SMALL, TOO_SMALL, Scores, product, too_small, transformed
from gpudeck.accel.inject.speedup import LEAST

FUSED = LEAST["sdpa"] // LEAST["by hand"]
"""How many times as many scores torch's fused function computes in the time of code by hand."""


def scores(a: Any, b: Any) -> Any:
    """Multiply queries with transposed keys as `a @ b` does."""
    by = of_matmul(*_axes(a, b))
    if not torch.compiler.is_compiling() and (
        too_small(a, b, by) or not _torch_s(Tensor.__matmul__) or transformed(a) or transformed(b)
    ):
        return a @ b
    return product(torch.matmul, a, b, by)


def attend(a: Any, b: Any) -> Any:
    """Multiply weights with values as `a @ b` does; one of them may be delayed."""
    if torch.compiler.is_compiling() or type(a) is Scores or type(b) is Scores:
        return torch.matmul(a, b)
    return a @ b


def matmul(a: Any, b: Any) -> Any:
    """Multiply queries with transposed keys."""
    by = of_matmul(*_axes(a, b)) if _torch_s(torch.matmul, Tensor.matmul) else None
    return product(torch.matmul, a, b, by)


def bmm(a: Any, b: Any) -> Any:
    """Multiply batches of queries with transposed keys."""
    folded = _axes(a, b) == (3, 3) and _torch_s(torch.bmm, Tensor.bmm)
    return product(torch.bmm, a, b, of_matmul(3, 3) if folded else None)


def einsum(text: str, *operands: Any) -> Any:
    """Multiply queries with keys as torch.einsum does."""
    listed = operands[0] if len(operands) == 1 else operands
    if len(listed) != 2 or torch.einsum is not torch.functional.einsum:
        return torch.einsum(text, *operands)
    a, b = listed
    return product(_einsum(text), a, b, of_einsum(text, *_axes(a, b)))


def baddbmm(input: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:  # noqa: A002
    """Compute beta x input + alpha x a b; an input with beta 0 is not read."""

    def compute(a: Any, b: Any) -> Any:
        return torch.baddbmm(input, a, b, beta=beta, alpha=alpha)

    bias = None if beta == 0 else input if beta == 1 else input * beta
    folded = _axes(a, b) == (3, 3) and _torch_s(torch.baddbmm)
    by = of_matmul(3, 3) if folded else None
    return product(compute, a, b, by, scale=alpha, bias=bias)


def _torch_s(*functions: Any) -> bool:
    """Return True if these are torch's own functions, and not what another library put there."""
    return torch.compiler.is_compiling() or all(
        isinstance(f, (BuiltinFunctionType, MethodDescriptorType)) for f in functions
    )


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
    if (
        type(tensor) is Scores
        and named
        and len(before) == tensor.ndim
        and sorted(before) == sorted(after)
    ):
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
            bias, causal = attn_mask, is_causal
            if bias is not None and (
                hides_later_keys(~bias) if bias.dtype == torch.bool else adds_to_later_keys(bias)
            ):
                bias, causal = None, True
            if bias is not None:
                bias = bias.reshape(*[1] * (4 - bias.ndim), *bias.shape)
            out = attention(query, key, value, causal=causal, scale=scale, bias=bias)
            # of grouped heads, those of the queries count
            record.count_link(query, key[:, :1], causal)
            return out
    except ValueError as e:
        why = str(e)
    record.count(f"computed as written: {why}")
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _unfit(
    q: Any, k: Any, v: Any, mask: Any, dropout: float, causal: bool, grouped: bool
) -> str | None:
    """Return why torch's own function computes a call, or None."""
    if not _torch_s(functional.scaled_dot_product_attention):
        return "another library has replaced torch's function"
    if type(q) is Scores or any(map(transformed, (q, k, v))):
        return "the tensors are traced or transformed"
    if dropout:
        return "dropout is active"
    most = SMALL.get(q.device.type, 0) * FUSED
    if not torch.compiler.is_compiling() and q.shape[:-1].numel() * k.shape[-2] <= most:
        return TOO_SMALL
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
