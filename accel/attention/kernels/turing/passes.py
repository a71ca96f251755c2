"""Run attention's two passes by the kernels for compute capability 7.5."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.attention.kernels.turing.arguments import Arguments, LaidOut
from gpudeck.accel.attention.kernels.turing.builds import (
    ROWS,
    Kind,
    delta_build,
    forward_build,
    keys_build,
    load,
    queries_build,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged

_UNLIMITED = 1 << 30
"""A window that no length exceeds, and that cannot overflow when a position is added."""


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    *,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    slopes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute softmax(scale * q kᵀ) v and its log-sum-exp with float32 sums.

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D] with Hkv dividing H, in float16; D is a
    multiple of 8 up to 256, heads are contiguous, and rows begin at multiples of 16 bytes. With
    `ragged` the sequences lie end to end in q [1,H,Tq,D], and in k and v.

    Args:
        rules: which keys are seen, and how scores are made.
        ragged: the position of each sequence.
        bias: [B,H,Sq,Sk], expanded where broadcast; float16, added to the scores, or bool, True
            where a query sees a key.
        slopes: float32 [H] or [B,H]; slope x (key - position of the query) is added to the scores.

    Returns:
        The output like torch.empty_like(q), and the natural log-sum-exp, float32 [B,H,Sq]. A query
        that sees no key gets 0 and -inf.
    """
    kind, given = _describe(q, k, v, rules, ragged, bias, slopes)
    # tokens between or after ragged sequences are nobody's
    out = torch.empty_like(q) if ragged is None else torch.zeros_like(q)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    if ragged is not None:
        lse.fill_(-torch.inf)
    given.out, given.lse = _lay_out(out), lse.data_ptr()
    build = forward_build(kind)
    load(build, q.device)(_blocks(given.longest_q, build.rows, q, ragged), given)
    return out, lse


def backward(
    dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    rules: Rules,
    *,
    ragged: Ragged | None = None,
    bias: Tensor | None = None,
    bias_grad: bool = False,
    slopes: Tensor | None = None,
    dlse: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return dq, dk, dv and dbias from the gradient of the output.

    Every sum is taken in one order, so that results are always the same. D is at most 128. The
    other arguments are those of `forward`, and out and lse its results.

    Args:
        dout: the gradient of out, laid out as q has to be.
        bias_grad: return the gradient of the expanded bias, float32 [B,H,Sq,Sk].
        dlse: the gradient of lse, contiguous; 0 where lse is -inf.
    """
    kind, given = _describe(q, k, v, rules, ragged, bias, slopes)
    kind = kind._replace(bias_grad=bias_grad)
    new = torch.empty_like if ragged is None else torch.zeros_like
    dq, dk, dv = new(q), new(k), new(v)
    delta = torch.empty_like(lse)
    dbias = None
    if bias_grad:
        dbias = q.new_zeros((*q.shape[:3], k.shape[2]), dtype=torch.float32)
        given.dbias = dbias.data_ptr()
    for name, x in {"out": out, "dout": dout, "dq": dq, "dk": dk, "dv": dv}.items():
        setattr(given, name, _lay_out(x))
    given.lse, given.delta = lse.data_ptr(), delta.data_ptr()
    given.dlse = None if dlse is None else dlse.data_ptr()
    build = delta_build(kind)
    rows = lse.numel()
    load(build, q.device)(-(-rows // (build.rows // ROWS)), given)
    build = keys_build(kind)
    load(build, q.device)(_blocks(given.longest_k, build.rows, k, ragged), given)
    build = queries_build(kind)
    load(build, q.device)(_blocks(given.longest_q, build.rows, q, ragged), given)
    return dq, dk, dv, dbias


def _blocks(longest: int, rows: int, x: Tensor, ragged: Ragged | None) -> int:
    """Return the blocks of a launch: tiles, heads and sequences."""
    sequences = x.shape[0] if ragged is None else ragged.sequences
    return -(-longest // rows) * x.shape[1] * sequences


def _describe(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    ragged: Ragged | None,
    bias: Tensor | None,
    slopes: Tensor | None,
) -> tuple[Kind, Arguments]:
    left, right, scale, softcap = rules
    kind = Kind(
        q.shape[3],
        left is not None,
        right is not None,
        bool(softcap),
        "none" if bias is None else "bool" if bias.dtype == torch.bool else "float",
        slopes is not None,
        ragged is not None,
    )
    numbers: dict[str, Any] = {
        "batch": q.shape[0], "heads": q.shape[1], "group": q.shape[1] // k.shape[1],
        "seq_q": q.shape[2], "seq_k": k.shape[2], "longest_q": q.shape[2], "longest_k": k.shape[2],
        "left": _bound(left), "right": _bound(right),
        "scale": scale, "factor": rules.factor, "softcap": softcap,
    }  # fmt: skip
    given = Arguments(q=_lay_out(q), k=_lay_out(k), v=_lay_out(v), **numbers)
    if ragged is not None:
        given.starts_q, given.starts_k = ragged.starts_q.data_ptr(), ragged.starts_k.data_ptr()
        given.longest_q, given.longest_k = ragged.longest_q, ragged.longest_k
    if bias is not None:
        given.bias, given.bias_element = _lay_out(bias), bias.stride(3)
    if slopes is not None:
        given.slopes = slopes.data_ptr()
        given.slopes_batch = slopes.stride(0) if slopes.dim() == 2 else 0
    return kind, given


def _lay_out(x: Tensor) -> LaidOut:
    return LaidOut(x.data_ptr(), *x.stride()[:3])


def _bound(limit: int | None) -> int:
    return _UNLIMITED if limit is None else max(-_UNLIMITED, min(limit, _UNLIMITED))
