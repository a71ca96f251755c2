"""Compute the forward pass of many sequences with few keys: a tile has all keys of a head.

A program takes several sequences one after the other, and the copies of the next ones are on their
way meanwhile. What a bias, a mask or a window adds to the scores is the same for all of them, so it
stays in registers. Rows of different heads never share a tile: whatever its height, the tiles that
rows end to end would fill hold no fewer scores (tests/benchmarks/LOG.md).
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.attention.kernels.portable.kernel_backward import in_base_2
from gpudeck.accel.attention.kernels.portable.kernel_forward import (
    UNSPECIALISED,
    add_bias,
    hide,
    hint,
)
from gpudeck.accel.primitives.tiles.memory import load_vectors
from gpudeck.accel.primitives.tiles.softmax import anchor, softmax_end


@triton.jit
def addition(
    zeros, bias_ptr, strides, head, rows, cols, seq_q, seq_k, window, FORM: tl.constexpr
):  # fmt: skip
    """Return what is added to scores in base 2: a head's bias, and -inf for hidden keys.

    The queries `rows` and the keys `cols` broadcast to the tile `zeros`.
    """
    if FORM.bias is not None:
        bias = bias_ptr + hint(head * strides.head, FORM.bias_step)
        zeros = add_bias(zeros, bias, strides, rows, cols, (seq_q, seq_k), FORM, False)
    bounds = (seq_q, seq_k, seq_k - seq_q, window[0], window[1])
    return hide(zeros, rows, cols, bounds, FORM, False)


@triton.jit
def vectors_of(ptr, strides, head, vectors, dims, UNIT: tl.constexpr):
    """Return the addresses of a tile of vectors of one head, in the first sequence."""
    rows = ptr + hint(head * strides.head + vectors * strides.row, UNIT)
    return rows[:, None] + dims[None, :] * strides.element


@triton.jit(do_not_specialize=(*UNSPECIALISED, "sequences", "each"))
def attention_short(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, bias_ptr, q_strides, k_strides, v_strides, out_strides,
    bias_strides, tiles, heads, group, sequences, each, seq_q, seq_k, left, right, qk_scale,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    FORM: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_M rows of one head in each of `each` sequences; BLOCK_N is at least seq_k.

    The grid is tiles * heads * parts of the sequences, the tile fastest.
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, first = (unit % heads).to(tl.int64), unit // heads * each
    kv_head = head // group
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    cols, dims = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    added = addition(
        tl.zeros([BLOCK_M, BLOCK_N], tl.float32), bias_ptr, bias_strides, head, rows[:, None],
        cols[None, :], seq_q, seq_k, (left, right), FORM,
    )  # fmt: skip
    queries = rows.to(tl.int64)
    q_at = vectors_of(q_ptr, q_strides, head, queries, dims, UNIT)
    k_at = vectors_of(k_ptr, k_strides, kv_head, cols, dims, UNIT)
    v_at = vectors_of(v_ptr, v_strides, kv_head, cols, dims, UNIT)
    out_at = vectors_of(out_ptr, out_strides, head, queries, dims, UNIT)
    stored = (rows < seq_q)[:, None] & (dims < HEAD_DIM)[None, :]
    for number in range(first, tl.minimum(first + each, sequences)):
        place = tl.cast(number, tl.int64)
        q = load_vectors(
            q_at + hint(place * q_strides.batch, UNIT),
            rows,
            seq_q,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        k = load_vectors(
            k_at + hint(place * k_strides.batch, UNIT),
            cols,
            seq_k,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        scores = tl.dot(q, tl.trans(k)) * qk_scale + added
        m = tl.max(scores, 1)
        p = tl.exp2(scores - anchor(m, FORM.bias is not None or FORM.left or FORM.right)[:, None])
        v = load_vectors(
            v_at + hint(place * v_strides.batch, UNIT),
            cols,
            seq_k,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        acc, lse = softmax_end(tl.dot(p.to(v.dtype), v), m, tl.sum(p, 1))
        into = out_at + hint(place * out_strides.batch, UNIT)
        tl.store(into, acc.to(out_ptr.dtype.element_ty), stored)
        tl.store(lse_ptr + (place * heads + head) * seq_q + queries, lse, rows < seq_q)


@triton.jit(do_not_specialize=(*UNSPECIALISED, "sequences", "each"))
def attention_short_backward(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, dlse_ptr, bias_ptr, dq_ptr, dk_ptr, dv_ptr, dbias_ptr,
    q_strides, k_strides, v_strides, dout_strides, dq_strides, dk_strides, dv_strides,
    bias_strides, heads, sequences, each, seq_q, seq_k, left, right, scale, qk_scale,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    FORM: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute all gradients of one head in each of `each` sequences, whose rows fill one tile.

    Scores are computed twice, with queries and with keys as rows: sums of a product that were
    transposed in registers must not be multiplied (see tests/unit/accel/transposed.py). The
    gradient of a bias is summed over the sequences of a program, float32 [parts,H,Sq,Sk]. The grid
    is heads * parts of the sequences.
    """
    head, part = (tl.program_id(0) % heads).to(tl.int64), tl.program_id(0) // heads
    rows, cols, dims = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    added = addition(
        tl.zeros([BLOCK_M, BLOCK_N], tl.float32), bias_ptr, bias_strides, head, rows[:, None],
        cols[None, :], seq_q, seq_k, (left, right), FORM,
    )  # fmt: skip
    turned = addition(
        tl.zeros([BLOCK_N, BLOCK_M], tl.float32), bias_ptr, bias_strides, head, rows[None, :],
        cols[:, None], seq_q, seq_k, (left, right), FORM,
    )  # fmt: skip
    q_at = vectors_of(q_ptr, q_strides, head, rows, dims, UNIT)
    g_at = vectors_of(dout_ptr, dout_strides, head, rows, dims, UNIT)
    k_at = vectors_of(k_ptr, k_strides, head, cols, dims, UNIT)
    v_at = vectors_of(v_ptr, v_strides, head, cols, dims, UNIT)
    dq_at = vectors_of(dq_ptr, dq_strides, head, rows, dims, UNIT)
    dk_at = vectors_of(dk_ptr, dk_strides, head, cols, dims, UNIT)
    dv_at = vectors_of(dv_ptr, dv_strides, head, cols, dims, UNIT)
    inside = (dims < HEAD_DIM)[None, :]
    asked, given = (rows < seq_q)[:, None] & inside, (cols < seq_k)[:, None] & inside
    kind = dq_ptr.dtype.element_ty
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for number in range(part * each, tl.minimum((part + 1) * each, sequences)):
        place = tl.cast(number, tl.int64)
        q = load_vectors(
            q_at + hint(place * q_strides.batch, UNIT),
            rows,
            seq_q,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        k = load_vectors(
            k_at + hint(place * k_strides.batch, UNIT),
            cols,
            seq_k,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        v = load_vectors(
            v_at + hint(place * v_strides.batch, UNIT),
            cols,
            seq_k,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        g = load_vectors(
            g_at + hint(place * dout_strides.batch, UNIT),
            rows,
            seq_q,
            HEAD_DIM,
            BLOCK_D,
            False,
        )
        scores = tl.dot(q, tl.trans(k)) * qk_scale + added
        at = (place * heads + head) * seq_q + rows
        lse = in_base_2(lse_ptr + at, rows < seq_q)
        p = tl.exp2(scores - lse[:, None])
        dp = tl.dot(g, tl.trans(v))
        delta = tl.sum(p * dp, 1)
        if dlse_ptr is not None:
            delta -= tl.load(dlse_ptr + at, mask=rows < seq_q, other=0.0)
        ds = p * (dp - delta[:, None])
        total += ds
        dq = tl.dot(ds.to(kind), k) * scale
        tl.store(dq_at + hint(place * dq_strides.batch, UNIT), dq.to(kind), asked)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * qk_scale + turned - lse[None, :])
        dv = tl.dot(p.to(kind), g)
        tl.store(dv_at + hint(place * dv_strides.batch, UNIT), dv.to(kind), given)
        ds = p * (tl.dot(v, tl.trans(g)) - delta[None, :])
        dk = tl.dot(ds.to(kind), q) * scale
        tl.store(dk_at + hint(place * dk_strides.batch, UNIT), dk.to(kind), given)
    if dbias_ptr is not None:
        at = dbias_ptr + ((part * heads + head) * seq_q + rows[:, None]) * seq_k + cols[None, :]
        there = (rows < seq_q)[:, None] & (cols < seq_k)[None, :]
        tl.store(at, total.to(dbias_ptr.dtype.element_ty), there)
