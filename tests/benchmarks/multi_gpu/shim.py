"""Offer our attention under the names of flash_attn, which other packages have as their kernel."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any

from torch import Tensor

from gpudeck.accel.attention import passes
from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.dispatch import choose
from gpudeck.accel.attention.inputs import Inputs, problem_of
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged

_CHOSEN: dict[object, Any] = {}


def _chosen(x: Inputs, scale: float, causal: bool, direction: str) -> tuple[Any, str]:
    """Return the problem and the backend, found once for each shape."""
    longest = (x.ragged.longest_q, x.ragged.longest_k) if x.ragged is not None else None
    key = (x.q.shape, x.k.shape, x.q.dtype, longest, scale, causal, direction)
    if key not in _CHOSEN:
        problem = problem_of(x, Rules(None, 0 if causal else None, scale, 0.0), False)
        _CHOSEN[key] = problem, choose(problem, "auto", direction).backend  # type: ignore[arg-type]
    found: tuple[Any, str] = _CHOSEN[key]
    return found


def _dense(q: Tensor, k: Tensor, v: Tensor) -> Inputs:
    return Inputs(*(t.transpose(1, 2) for t in (q, k, v)))


def _ragged(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Tensor, cu_k: Tensor, mq: int, mk: int
) -> Inputs:
    wide = (t.transpose(0, 1).unsqueeze(0) for t in (q, k, v))
    return Inputs(*wide, ragged=Ragged(cu_q, cu_k, int(mq), int(mk)))


def _flash_attn_forward(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: float, causal: bool,
    window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Any = None, return_softmax: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    x = _dense(q, k, v)
    out, lse = passes.forward(x, *_chosen(x, softmax_scale, causal, "forward"))
    return out.transpose(1, 2), lse, None, None


def _flash_attn_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
    dq: Tensor, dk: Tensor, dv: Tensor, dropout_p: float, softmax_scale: float, causal: bool,
    window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Any = None, deterministic: bool = False, rng_state: Any = None,
) -> None:  # fmt: skip
    x = _dense(q, k, v)
    problem, backend = _chosen(x, softmax_scale, causal, "backward")
    found = passes.backward(
        dout.transpose(1, 2), x, out.transpose(1, 2), softmax_lse, problem, backend
    )
    for target, grad in zip((dq, dk, dv), found[:3], strict=True):
        target.copy_(grad.transpose(1, 2))


def _flash_attn_varlen_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float,
    causal: bool = False, window_size_left: int = -1, window_size_right: int = -1,
    softcap: float = 0.0, alibi_slopes: Any = None, return_softmax: bool = False,
    block_table: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    x = _ragged(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    out, lse = passes.forward(x, *_chosen(x, softmax_scale, causal, "forward"))
    return out[0].transpose(0, 1), lse[0], None, None


def _flash_attn_varlen_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
    dq: Tensor, dk: Tensor, dv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float, causal: bool,
    window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Any = None, deterministic: bool = False, rng_state: Any = None,
) -> None:  # fmt: skip
    x = _ragged(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    problem, backend = _chosen(x, softmax_scale, causal, "backward")
    wide = [t.transpose(0, 1).unsqueeze(0) for t in (dout, out)]
    found = passes.backward(wide[0], x, wide[1], softmax_lse[None], problem, backend)
    for target, grad in zip((dq, dk, dv), found[:3], strict=True):
        target.copy_(grad[0].transpose(0, 1))


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, return_attn_probs: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Compute attention with gradients; shapes [B,S,H,D]."""
    out, lse = attention(
        *(t.transpose(1, 2) for t in (q, k, v)), causal=causal, scale=softmax_scale, return_lse=True
    )
    out = out.transpose(1, 2)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False, **_: Any,
) -> Tensor:  # fmt: skip
    """Compute attention of documents, with gradients; shapes [T,H,D]."""
    ragged = Ragged(cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k))
    out: Tensor = attention(q, k, v, causal=causal, scale=softmax_scale, seqlens=ragged)  # type: ignore[assignment]
    return out


def install() -> None:
    """Make `flash_attn` importable, unless it is installed; and transformers find it."""
    package = types.ModuleType("flash_attn")
    inner = types.ModuleType("flash_attn.flash_attn_interface")
    for name in (
        "_flash_attn_forward", "_flash_attn_backward", "_flash_attn_varlen_forward",
        "_flash_attn_varlen_backward", "flash_attn_func", "flash_attn_varlen_func",
    ):  # fmt: skip
        found = globals()[name]
        found.__module__ = inner.__name__
        setattr(inner, name, found)
        setattr(package, name, found)
    package.__version__ = "2.8.3"  # type: ignore[attr-defined]
    package.__spec__ = ModuleSpec("flash_attn", None)
    package.flash_attn_interface = inner  # type: ignore[attr-defined]
    sys.modules |= {"flash_attn": package, "flash_attn.flash_attn_interface": inner}


def show_to_transformers() -> None:
    """Let transformers take the kernels from here, and offer a name that ring-flash-attn asks for
    and newer versions lack."""
    from transformers import modeling_flash_attention_utils as utilities

    every = (flash_attn_func, flash_attn_varlen_func, None, None)
    utilities._lazy_imports = lambda *_, **__: every
    if not hasattr(utilities, "is_flash_attn_greater_or_equal_2_10"):
        utilities.is_flash_attn_greater_or_equal_2_10 = lambda: True
