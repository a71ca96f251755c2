"""Compute attention in the precision that this GPU gains from, and say which that was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.dispatch import choose as choose_half
from gpudeck.accel.attention.fp8 import choose as choose_fp8
from gpudeck.accel.attention.fp8 import refusal
from gpudeck.accel.attention.inputs import describe
from gpudeck.accel.attention.problem import Problem

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
PRECISIONS = ("auto", "fp8", *HALVES)
GAINS_FROM = 8192
"""The queries, and the keys, from which FP8 with its rounding is expected to be faster than 16
bits, for heads of more than 128 elements. It is an estimate from separate runs of both on an H200
(tests/benchmarks/log/attention_fp8.md)."""
_WIDE_HEAD = 128


@dataclass(frozen=True)
class PrecisionChoice:
    """Say in which precision attention ran, by which backend, and why."""

    precision: str
    backend: str
    reason: str

    def __str__(self) -> str:
        return f"{self.precision} by {self.backend} ({self.reason})"


def mixed_precision_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    precision: str = "auto",
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    layout: str = "bhsd",
    backend: str = "auto",
    return_choice: bool = False,
) -> Any:
    """Compute attention in FP8 or 16 bits; the output has the dtype of q.

    Shapes: those of `accel.attention.attention`, with q, k and v of float16, bfloat16 or float32.

    Args:
        precision: `fp8` (no gradients; `gpudeck.accel.attention.fp8.error_of` tells its error),
        `bf16`,
            `fp16`, or `auto`: FP8 where this GPU has a kernel for it that is expected to be faster
            and no gradient is needed, otherwise the 16 bits of q, or bfloat16.
        causal, scale, softcap, layout, backend: as for `accel.attention.attention`.
        return_choice: whether to return a PrecisionChoice beside the output.

    Raises:
        ValueError: if the precision is none of these, or cannot compute this here.
    """
    if precision not in PRECISIONS:
        fp4 = "; no GPU runs attention in FP4 with a kernel of ours" if precision == "fp4" else ""
        raise ValueError(f"precision is one of {', '.join(PRECISIONS)}; got {precision!r}{fp4}")
    own = q.dtype if q.dtype in HALVES.values() else torch.bfloat16
    dtype = HALVES.get(precision, own)
    q_cast, k, v = (t.to(dtype) for t in (q, k, v))
    rules: dict[str, Any] = {"causal": causal, "scale": scale, "softcap": softcap, "layout": layout}
    problem = describe(q_cast, k, v, **rules)
    reason = "named by the caller"
    if precision == "auto":
        why = _no_gain(problem)
        precision = "fp8" if why is None else _name(own)
        reason = f"auto: FP8 {why}" if why else "auto: FP8 is expected to be faster at such sizes"
    asked = {**rules, "backend": backend}
    if precision == "fp8":
        ran = choose_fp8(problem, backend).backend
        out = attention(q_cast, k, v, precision="fp8", **asked)
    else:
        ran = choose_half(problem, backend).backend
        out = attention(q_cast, k, v, **asked)
    out = out.to(q.dtype)
    return (out, PrecisionChoice(precision, ran, reason)) if return_choice else out


def _no_gain(p: Problem) -> str | None:
    """Return why FP8 is not taken, or None."""
    if (why := refusal(p)) is not None:
        return str(why)
    if p.head_dim <= _WIDE_HEAD or min(p.seq_q, p.seq_k) < GAINS_FROM:
        return f"gains only with {GAINS_FROM} tokens and heads of more than {_WIDE_HEAD} elements"
    return None


def _name(dtype: torch.dtype) -> str:
    return next(name for name, known in HALVES.items() if known == dtype)
