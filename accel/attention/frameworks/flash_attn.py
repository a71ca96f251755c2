"""Offer functions with the signatures of the package flash-attn, rows first: [B,S,H,D]."""

from __future__ import annotations

from torch import Tensor

from gpudeck.accel.attention.api import attention
from gpudeck.accel.attention.inputs import Window
from gpudeck.accel.attention.ragged import Ragged

Answer = Tensor | tuple[Tensor, Tensor, None]


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """Compute attention of q [B,Sq,H,D] over k and v [B,Sk,Hkv,D], returning [B,Sq,H,D].

    A negative side of `window_size`, such as -1, means no limit, as in flash-attn 2. With
    `return_attn_probs` lse, float32 [B,H,Sq], is returned, too, and None instead of the
    probabilities, which exist with dropout only.

    Raises:
        ValueError: for dropout, which is not offered, and ALiBi where queries see later keys.
    """
    _refuse(dropout_p, alibi_slopes, causal or window_size[1] == 0)
    out, lse = attention(
        q,
        k,
        v,
        causal=causal,
        window=_window(window_size),
        scale=softmax_scale,
        softcap=softcap,
        layout="bshd",
        deterministic=deterministic,
        alibi=alibi_slopes,
        return_lse=True,
    )
    return (out, lse, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Answer:
    """Compute attention of sequences that lie end to end.

    Shapes: q [Tq,H,D], k and v [Tk,Hkv,D], their starts int32 [N+1]; returns [Tq,H,D], and lse as
    [H,Tq].
    """
    _refuse(dropout_p, alibi_slopes, causal or window_size[1] == 0)
    out, lse = attention(
        q,
        k,
        v,
        causal=causal,
        window=_window(window_size),
        scale=softmax_scale,
        softcap=softcap,
        seqlens=Ragged(cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)),
        deterministic=deterministic,
        alibi=alibi_slopes,
        return_lse=True,
    )
    return (out, lse, None) if return_attn_probs else out


def _window(size: tuple[int, int]) -> Window:
    left, right = (None if side < 0 else side for side in size)
    return left, right


def _refuse(dropout_p: float, alibi_slopes: Tensor | None, backwards: bool) -> None:
    if dropout_p:
        raise ValueError(
            f"attention here has no dropout; got dropout_p={dropout_p}. Pass 0, or drop out"
            " elsewhere in the model"
        )
    if alibi_slopes is not None and not backwards:
        raise ValueError(
            "attention here takes alibi_slopes only with causal=True, as flash-attn lowers the"
            " scores of later keys, too; give the bias -slope x |key - query| to accel.attention"
        )
