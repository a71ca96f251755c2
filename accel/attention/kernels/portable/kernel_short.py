"""Compute the forward pass of many sequences with few keys: a tile has all keys of a head.

A program takes several sequences one after the other, and the copies of the next ones are on their
way meanwhile. What a bias, a mask or a window adds to the scores is the same for all of them, so it
stays in registers. Rows of different heads never share a tile: whatever its height, the tiles that
rows end to end would fill hold no fewer scores (tests/benchmarks/LOG.md).
"""

from __future__ import annotations

import triton
import triton.language as tl

from accel.attention.kernels.portable.kernel_forward import UNSPECIALISED, biased, hide, wide
from accel.primitives.tiles.memory import load_vectors
from accel.primitives.tiles.softmax import anchor, softmax_end


@triton.jit(do_not_specialize=(*UNSPECIALISED, "sequences", "each"))
def attention_short(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, bias_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od, stride_bh, stride_bm, stride_bn,
    tiles, heads, group, sequences, each, seq_q, seq_k, left, right, qk_scale,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, BIAS: tl.constexpr, BIAS_STEP: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head in each of `each` sequences; BLOCK_N is at least seq_k.

    The grid is tiles * heads * parts of the sequences, the tile fastest.
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, first = (unit % heads).to(tl.int64), unit // heads * each
    kv_head = head // group
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    cols, dims = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    added = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if BIAS is not None:
        bias = bias_ptr + wide(head * stride_bh, BIAS_STEP)
        added = biased(
            added, bias, rows[:, None], cols[None, :], stride_bm, stride_bn, seq_q, seq_k, BIAS,
            BIAS_STEP, False,
        )  # fmt: skip
    added = hide(
        added, rows[:, None], cols[None, :], seq_k - seq_q, left, right, seq_k, LEFT, RIGHT, False
    )
    queries = rows.to(tl.int64)
    q_row = q_ptr + wide(head * stride_qh + queries * stride_qm, UNIT)
    k_row = k_ptr + wide(kv_head * stride_kh + cols * stride_kn, UNIT)
    v_row = v_ptr + wide(kv_head * stride_vh + cols * stride_vn, UNIT)
    out_row = out_ptr + wide(head * stride_oh + queries * stride_om, UNIT)
    q_at = q_row[:, None] + dims[None, :] * stride_qd
    k_at = k_row[:, None] + dims[None, :] * stride_kd
    v_at = v_row[:, None] + dims[None, :] * stride_vd
    out_at = out_row[:, None] + dims[None, :] * stride_od
    stored = (rows < seq_q)[:, None] & (dims < HEAD_DIM)[None, :]
    for number in range(first, tl.minimum(first + each, sequences)):
        place = tl.cast(number, tl.int64)
        q = load_vectors(
            q_at + wide(place * stride_qb, UNIT), rows, seq_q, HEAD_DIM, BLOCK_D, False
        )
        k = load_vectors(
            k_at + wide(place * stride_kb, UNIT), cols, seq_k, HEAD_DIM, BLOCK_D, False
        )
        scores = tl.dot(q, tl.trans(k)) * qk_scale + added
        m = tl.max(scores, 1)
        p = tl.exp2(scores - anchor(m, BIAS is not None or LEFT or RIGHT)[:, None])
        v = load_vectors(
            v_at + wide(place * stride_vb, UNIT), cols, seq_k, HEAD_DIM, BLOCK_D, False
        )
        acc, lse = softmax_end(tl.dot(p.to(v.dtype), v), m, tl.sum(p, 1))
        tl.store(out_at + wide(place * stride_ob, UNIT), acc.to(out_ptr.dtype.element_ty), stored)
        tl.store(lse_ptr + (place * heads + head) * seq_q + queries, lse, rows < seq_q)
