"""Compute the portable backward pass without atomics (FlashAttention-2, arXiv 2307.08691, algorithm
2).

Each gradient has its own kernel, which sums in one order, so that repeated runs give the same bits.
With s the scores before the softmax, p = exp(s - lse) the weights, dp = dout vᵀ and delta the row
sums of out * dout: dv = pᵀ dout, ds = p (dp - delta), dbias = ds, dq = scale * ds k, dk = scale *
dsᵀ q; a softcap multiplies ds by 1 - tanh² for dq and dk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.attention.kernels.portable.kernel_forward import (
    UNSPECIALISED,
    biased,
    extent,
    hide,
    hide_by_bits,
    listed,
    tilted,
    wide,
)
from gpudeck.accel.primitives.tiles.memory import load_vectors
from gpudeck.accel.primitives.tiles.reductions import product_sums
from gpudeck.accel.primitives.tiles.softmax import LOG2E, tanh

KEPT_STEP = tl.constexpr(16)
"""What divides the rows in which gradients of scores are kept."""


@triton.jit(do_not_specialize=UNSPECIALISED)
def row_sums(
    out_ptr, dout_ptr, dlse_ptr, delta_ptr, stride_ob, stride_oh, stride_om, stride_od, stride_gb,
    stride_gh, stride_gm, stride_gd,
    tiles, heads, total_q, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    DLSE: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute delta, the row sums of out * dout less the gradient of lse, float32 [B,H,Sq]."""
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = (unit // heads).to(tl.int64), (unit % heads).to(tl.int64)
    rows, dims = tile * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64), tl.arange(0, BLOCK_D)
    there = (rows < total_q)[:, None] & (dims < HEAD_DIM)[None, :]
    out = tl.load(
        (out_ptr + wide(batch * stride_ob + head * stride_oh + rows * stride_om, UNIT))[:, None]
        + dims[None, :] * stride_od,
        there,
        0.0,
    )
    dout = tl.load(
        (dout_ptr + wide(batch * stride_gb + head * stride_gh + rows * stride_gm, UNIT))[:, None]
        + dims[None, :] * stride_gd,
        there,
        0.0,
    )
    delta = product_sums(out, dout)
    at = unit.to(tl.int64) * total_q + rows
    if DLSE:
        delta -= tl.load(dlse_ptr + at, mask=rows < total_q, other=0.0)
    tl.store(delta_ptr + at, delta, mask=rows < total_q)


@triton.jit
def logs_and_slope(
    products, lse, bias, rows, cols, seq_q, seq_k, shift, left, right, qk_scale, softcap, stride_bm,
    stride_bn, tilt,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    MASKED: tl.constexpr, EVEN_K: tl.constexpr, ALIBI: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Return log2 of the weights p from q.k, and d(score)/d(scale * q.k).

    `lse` is in base 2, +inf for missing rows, and broadcasts like `rows`. ALL means that all of
    `cols` exist.
    """
    slope = 1.0
    scores = products * qk_scale
    if SOFTCAP:
        bounded = tanh(scores)
        slope = 1.0 - bounded * bounded
        scores = (softcap * LOG2E) * bounded
    if ALIBI:
        scores = tilted(scores, rows, cols, shift, tilt)
    if BIAS is not None:
        scores = biased(
            scores, bias, rows, cols, stride_bm, stride_bn, seq_q, seq_k, BIAS, BIAS_STEP, ALL
        )
    if MASKED:
        scores = hide(scores, rows, cols, shift, left, right, seq_k, LEFT, RIGHT, EVEN_K)
    return scores - lse, slope


@triton.jit
def in_base_2(lse_at, there):
    """Return the log-sum-exp of rows in base 2.

    It is +inf, which makes all weights 0, for missing rows and rows that see no key.
    """
    lse = tl.load(lse_at, mask=there, other=float("-inf"))
    return tl.where(lse == float("-inf"), float("inf"), lse * LOG2E)


@triton.jit
def gather_rows(
    dk, dv, k, v, q_at, dout_at, lse_at, delta_at, ds_at, bias, tilt, blocks, numbers, bits, cols,
    begin, end, seq_q, seq_k, ds_width, shift, left, right, qk_scale, softcap,
    stride_qm, stride_gm, stride_bm, stride_bn,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    MASKED: tl.constexpr, EVEN_Q: tl.constexpr,
    PRECISION: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """Add the contribution of queries `begin` to `end` - 1 to dk (without the scale) and dv of
    a block of keys. With ROWS, the queries are counted within the list `blocks`. Unless `ds_at` is
    None, store the gradients of the scores there, a row of `ds_width` queries for each key.
    """
    for at in range(begin, end, BLOCK_M):
        start = at
        if ROWS:
            start = listed(at, blocks, ROWS)
        rows = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK_M), BLOCK_M), BLOCK_M)
        block = tl.cast(start, tl.int64)
        q = load_vectors(q_at + block * stride_qm, rows, seq_q, HEAD_DIM, BLOCK_D, EVEN_Q)
        lse = in_base_2(lse_at + rows, rows < seq_q)
        products = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        logs, slope = logs_and_slope(
            products, lse[None, :], bias, rows[None, :], cols[:, None], seq_q, seq_k, shift, left,
            right, qk_scale, softcap,
            # keys beyond the last give only rows that are not stored
            stride_bm, stride_bn, tilt, LEFT, RIGHT, SOFTCAP, BIAS, BIAS_STEP, MASKED, True, ALIBI,
            False,
        )  # fmt: skip
        if BITS:
            logs = hide_by_bits(
                logs, bits, numbers, at, rows[None, :], cols[:, None], ROWS, COLS, ROWS
            )
        p = tl.exp2(logs)
        dout = load_vectors(dout_at + block * stride_gm, rows, seq_q, HEAD_DIM, BLOCK_D, EVEN_Q)
        dv = tl.dot(p.to(dout.dtype), dout, dv, input_precision=PRECISION)
        dp = tl.dot(v, tl.trans(dout), input_precision=PRECISION)
        delta = tl.load(delta_at + rows, mask=rows < seq_q, other=0.0)
        ds = (p * (dp - delta[None, :]) * slope).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision=PRECISION)
        if ds_at is not None:
            kept = (cols < seq_k)[:, None] & (rows < wide(ds_width, KEPT_STEP))[None, :]
            tl.store(ds_at + cols[:, None] * wide(ds_width, KEPT_STEP) + rows[None, :], ds, kept)
    return dk, dv


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dk_dv(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr, counts_ptr, lists_ptr, numbers_ptr, bits_ptr, ds_ptr, dk_ptr, dv_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_gb, stride_gh, stride_gm, stride_gd, stride_bb, stride_bh, stride_bm, stride_bn,
    stride_dkb, stride_dkh, stride_dkn, stride_dkd, stride_dvb, stride_dvh, stride_dvn, stride_dvd,
    tiles, heads, group, seq_q, seq_k, total_q, left, right, scale, qk_scale, softcap,
    slopes_batch, lists_batch, lists_head, lists_width, ds_width,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    RAGGED: tl.constexpr, EVEN_Q: tl.constexpr,
    PRECISION: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of one tile of BLOCK_N keys of one key head, over all its query heads.

    The grid is tiles * key heads * sequences. Unless `ds_ptr` is None, store the gradients of the
    scores there, [B,H,Sk,ds_width].
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    kv_heads = heads // group
    batch, kv_head = unit // kv_heads, (unit % kv_heads).to(tl.int64)
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if RAGGED:
        first_q, first_k = tl.load(starts_q_ptr + batch), tl.load(starts_k_ptr + batch)
        seq_q = tl.load(starts_q_ptr + batch + 1) - first_q
        seq_k = tl.load(starts_k_ptr + batch + 1) - first_k
        if tile * BLOCK_N >= seq_k:
            return
        place, first_q, first_k = place * 0, first_q.to(tl.int64), first_k.to(tl.int64)
    shift = seq_k - seq_q
    cols, dims = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    stored = (cols < seq_k)[:, None] & (dims < HEAD_DIM)[None, :]
    keys = first_k + cols
    k_at = k_ptr + wide(place * stride_kb + kv_head * stride_kh + keys * stride_kn, UNIT)
    v_at = v_ptr + wide(place * stride_vb + kv_head * stride_vh + keys * stride_vn, UNIT)
    k = tl.load(k_at[:, None] + dims[None, :] * stride_kd, mask=stored, other=0.0)
    v = tl.load(v_at[:, None] + dims[None, :] * stride_vd, mask=stored, other=0.0)

    # The queries that see any of these keys, and among them those that see all: `extent` with the
    # roles changed.
    final = tl.minimum((tile + 1) * BLOCK_N, seq_k) - 1
    begin, _, _, end = extent(
        tile * BLOCK_N, final, -shift, right, left, seq_q, RIGHT, LEFT, BLOCK_M
    )
    dk = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    steps = tl.arange(0, BLOCK_M)
    step_q, step_g = wide(stride_qm, UNIT), wide(stride_gm, UNIT)
    for member in range(group):
        head = kv_head * group + member
        q_at = (
            q_ptr
            + wide(place * stride_qb + head * stride_qh + first_q * stride_qm, UNIT)
            + (steps[:, None] * step_q + dims[None, :] * stride_qd)
        )
        dout_at = (
            dout_ptr
            + wide(place * stride_gb + head * stride_gh + first_q * stride_gm, UNIT)
            + (steps[:, None] * step_g + dims[None, :] * stride_gd)
        )
        at = (place * heads + head) * total_q + first_q
        ds_at = ds_ptr
        if ds_ptr is not None:
            ds_at += (place * heads + head) * seq_k * wide(ds_width, KEPT_STEP)
        bias = bias_ptr
        if BIAS is not None:
            bias += wide(place * stride_bb + head * stride_bh, BIAS_STEP)
        tilt = 0.0
        if ALIBI:
            tilt = tl.load(slopes_ptr + place * slopes_batch + head)
        if ROWS:
            row = place * lists_batch + head * lists_head + tile * BLOCK_N // COLS
            whole = tl.load(counts_ptr + 2 * row)
            blocks = lists_ptr + row * lists_width
            numbers = numbers_ptr + row * lists_width
            dk, dv = gather_rows(
                dk, dv, k, v, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bias, tilt,
                blocks + whole, numbers + whole, bits_ptr, cols, 0,
                tl.load(counts_ptr + 2 * row + 1) * ROWS, seq_q, seq_k, ds_width, shift, left,
                right, qk_scale, softcap, step_q, step_g, stride_bm, stride_bn,
                HEAD_DIM, BLOCK_D, BLOCK_M, LEFT, RIGHT, SOFTCAP, BIAS, BIAS_STEP, False, EVEN_Q,
                PRECISION, ALIBI, ROWS, COLS, True,
            )  # fmt: skip
            dk, dv = gather_rows(
                dk, dv, k, v, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bias, tilt,
                blocks, numbers, bits_ptr, cols, 0, whole * ROWS, seq_q, seq_k, ds_width, shift,
                left, right, qk_scale, softcap, step_q, step_g, stride_bm, stride_bn,
                HEAD_DIM, BLOCK_D, BLOCK_M, LEFT, RIGHT, SOFTCAP, BIAS, BIAS_STEP, False, EVEN_Q,
                PRECISION, ALIBI, ROWS, COLS, False,
            )  # fmt: skip
        else:
            dk, dv = gather_rows(
                dk, dv, k, v, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bias, tilt,
                None, None, None, cols, begin, end, seq_q, seq_k, ds_width, shift, left, right,
                qk_scale, softcap, step_q, step_g, stride_bm, stride_bn,
                HEAD_DIM, BLOCK_D, BLOCK_M, LEFT, RIGHT, SOFTCAP, BIAS, BIAS_STEP, LEFT or RIGHT,
                EVEN_Q, PRECISION, ALIBI, 0, 0, False,
            )  # fmt: skip
    dk_at = dk_ptr + wide(place * stride_dkb + kv_head * stride_dkh + keys * stride_dkn, UNIT)
    dv_at = dv_ptr + wide(place * stride_dvb + kv_head * stride_dvh + keys * stride_dvn, UNIT)
    tl.store(
        dk_at[:, None] + dims[None, :] * stride_dkd,
        (dk * scale).to(dk_ptr.dtype.element_ty),
        mask=stored,
    )
    tl.store(
        dv_at[:, None] + dims[None, :] * stride_dvd, dv.to(dv_ptr.dtype.element_ty), mask=stored
    )


@triton.jit
def gather_keys(
    dq, q, dout, lse, delta, k_at, v_at, bias, tilt, blocks, numbers, bits, rows, begin, end, seq_q,
    seq_k, shift, left, right, qk_scale, softcap,
    stride_kn, stride_vn, stride_bm, stride_bn,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    MASKED: tl.constexpr, EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """Add the contribution of keys `begin` to `end` - 1 to dq (without the scale) of a block of
    queries. With COLS, the keys are counted within the list `blocks`.
    """
    for at in range(begin, end, BLOCK_N):
        start = at
        if COLS:
            start = listed(at, blocks, COLS)
        cols = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK_N), BLOCK_N), BLOCK_N)
        block = tl.cast(start, tl.int64)
        k = load_vectors(
            k_at + block * stride_kn, cols, seq_k, HEAD_DIM, BLOCK_D, EVEN_K or not MASKED
        )
        products = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        logs, slope = logs_and_slope(
            products, lse[:, None], bias, rows[:, None], cols[None, :], seq_q, seq_k, shift, left,
            right, qk_scale, softcap,
            stride_bm, stride_bn, tilt, LEFT, RIGHT, SOFTCAP, BIAS, BIAS_STEP, MASKED, EVEN_K,
            ALIBI, EVEN_K or not MASKED,
        )  # fmt: skip
        if BITS:
            logs = hide_by_bits(
                logs, bits, numbers, at, rows[:, None], cols[None, :], ROWS, COLS, COLS
            )
        p = tl.exp2(logs)
        v = load_vectors(
            v_at + block * stride_vn, cols, seq_k, HEAD_DIM, BLOCK_D, EVEN_K or not MASKED
        )
        dp = tl.dot(dout, tl.trans(v), input_precision=PRECISION)
        ds = p * (dp - delta[:, None]) * slope
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision=PRECISION)
    return dq


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dq(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr, counts_ptr, lists_ptr, numbers_ptr, bits_ptr, dq_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_gb, stride_gh, stride_gm, stride_gd, stride_dqb, stride_dqh, stride_dqm, stride_dqd,
    stride_bb, stride_bh, stride_bm, stride_bn,
    tiles, heads, group, seq_q, seq_k, total_q, left, right, scale, qk_scale, softcap,
    slopes_batch, lists_batch, lists_head, lists_width,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    RAGGED: tl.constexpr, EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute dq of one tile of BLOCK_M queries of one head.

    The grid is tiles * heads * sequences, the tile fastest.
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, batch = unit % heads, unit // heads
    if RIGHT:
        tile = tiles - 1 - tile  # the longest first
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if RAGGED:
        first_q, first_k = tl.load(starts_q_ptr + batch), tl.load(starts_k_ptr + batch)
        seq_q = tl.load(starts_q_ptr + batch + 1) - first_q
        seq_k = tl.load(starts_k_ptr + batch + 1) - first_k
        if tile * BLOCK_M >= seq_q:
            return
        place, first_q, first_k = place * 0, first_q.to(tl.int64), first_k.to(tl.int64)
    kv_head = (head // group).to(tl.int64)
    head = head.to(tl.int64)
    shift = seq_k - seq_q
    rows, dims = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    there = rows < seq_q
    stored = there[:, None] & (dims < HEAD_DIM)[None, :]
    queries = first_q + rows
    q_at = q_ptr + wide(place * stride_qb + head * stride_qh + queries * stride_qm, UNIT)
    dout_at = dout_ptr + wide(place * stride_gb + head * stride_gh + queries * stride_gm, UNIT)
    q = tl.load(q_at[:, None] + dims[None, :] * stride_qd, mask=stored, other=0.0)
    dout = tl.load(dout_at[:, None] + dims[None, :] * stride_gd, mask=stored, other=0.0)
    at = (place * heads + head) * total_q + queries
    lse = in_base_2(lse_ptr + at, there)
    delta = tl.load(delta_ptr + at, mask=there, other=0.0)
    steps = tl.arange(0, BLOCK_N)
    step_k, step_v = wide(stride_kn, UNIT), wide(stride_vn, UNIT)
    k_at = (
        k_ptr
        + wide(place * stride_kb + kv_head * stride_kh + first_k * stride_kn, UNIT)
        + (steps[:, None] * step_k + dims[None, :] * stride_kd)
    )
    v_at = (
        v_ptr
        + wide(place * stride_vb + kv_head * stride_vh + first_k * stride_vn, UNIT)
        + (steps[:, None] * step_v + dims[None, :] * stride_vd)
    )
    bias = bias_ptr
    if BIAS is not None:
        bias += wide(place * stride_bb + head * stride_bh, BIAS_STEP)

    tilt = 0.0
    if ALIBI:
        tilt = tl.load(slopes_ptr + place * slopes_batch + head)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if COLS:
        row = place * lists_batch + head * lists_head + tile * BLOCK_M // ROWS
        whole = tl.load(counts_ptr + 2 * row)
        blocks = lists_ptr + row * lists_width
        numbers = numbers_ptr + row * lists_width
        dq = gather_keys(
            dq, q, dout, lse, delta, k_at, v_at, bias, tilt, blocks + whole, numbers + whole,
            bits_ptr, rows, 0, tl.load(counts_ptr + 2 * row + 1) * COLS, seq_q, seq_k, shift,
            left, right, qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, not EVEN_K, EVEN_K, PRECISION, ALIBI, ROWS, COLS, True,
        )  # fmt: skip
        dq = gather_keys(
            dq, q, dout, lse, delta, k_at, v_at, bias, tilt, blocks, numbers, bits_ptr, rows, 0,
            whole * COLS, seq_q, seq_k, shift, left, right, qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, not EVEN_K, EVEN_K, PRECISION, ALIBI, ROWS, COLS, False,
        )  # fmt: skip
    else:
        last = tl.minimum((tile + 1) * BLOCK_M, seq_q) - 1
        begin, full_begin, full_end, end = extent(
            tile * BLOCK_M, last, shift, left, right, seq_k, LEFT, RIGHT, BLOCK_N
        )
        full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
        full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
        if LEFT:  # the whole blocks last, as in the forward
            dq = gather_keys(
                dq, q, dout, lse, delta, k_at, v_at, bias, tilt, None, None, None, rows, begin,
                full_begin, seq_q, seq_k, shift, left, right, qk_scale, softcap,
                step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
                SOFTCAP, BIAS, BIAS_STEP, True, EVEN_K, PRECISION, ALIBI, 0, 0, False,
            )  # fmt: skip
        if LEFT or RIGHT or not EVEN_K:
            dq = gather_keys(
                dq, q, dout, lse, delta, k_at, v_at, bias, tilt, None, None, None, rows, full_end,
                end, seq_q, seq_k, shift, left, right, qk_scale, softcap,
                step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
                SOFTCAP, BIAS, BIAS_STEP, True, EVEN_K, PRECISION, ALIBI, 0, 0, False,
            )  # fmt: skip
        dq = gather_keys(
            dq, q, dout, lse, delta, k_at, v_at, bias, tilt, None, None, None, rows, full_begin,
            full_end, seq_q, seq_k, shift, left, right, qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, False, EVEN_K, PRECISION, ALIBI, 0, 0, False,
        )  # fmt: skip
    dq_at = dq_ptr + wide(place * stride_dqb + head * stride_dqh + queries * stride_dqm, UNIT)
    tl.store(
        dq_at[:, None] + dims[None, :] * stride_dqd,
        (dq * scale).to(dq_ptr.dtype.element_ty),
        mask=stored,
    )


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dbias(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, slopes_ptr, dbias_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_gb, stride_gh, stride_gm, stride_gd, stride_bb, stride_bh, stride_bm, stride_bn,
    stride_db, stride_dh, stride_dm, stride_dn,
    tiles_m, tiles_n, own_heads,
    own_batches, sum_batches, sum_heads, sum_tiles_m, sum_tiles_n, chunk, part_stride, heads, group,
    seq_q, seq_k, left, right, scale, qk_scale, softcap, slopes_batch,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    SUM_M: tl.constexpr, SUM_N: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    SOFTCAP: tl.constexpr, PRECISION: tl.constexpr, ALIBI: tl.constexpr, BIAS_STEP: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute one tile of the gradient of an additive bias, summed over broadcast dimensions in
    a fixed order.

    The grid is tiles_n * tiles_m * own_heads * own_batches, each 1 where summed, times the parts
    into which the sum is split; `sum_*` count its terms, 1 where not summed. Each part sums `chunk`
    terms and lies `part_stride` elements after the one before it.
    """
    pid = tl.program_id(0)
    tile_n, tile_m = pid % tiles_n, pid // tiles_n % tiles_m
    own_head = pid // (tiles_n * tiles_m) % own_heads
    own_batch = pid // (tiles_n * tiles_m) // own_heads % own_batches
    part = pid // (tiles_n * tiles_m) // own_heads // own_batches
    shift = seq_k - seq_q
    dims = tl.arange(0, BLOCK_D)
    inside = dims < HEAD_DIM
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    terms = sum_batches * sum_heads * sum_tiles_m * sum_tiles_n
    for step in range(part * chunk, tl.minimum(terms, (part + 1) * chunk)):
        n = (tile_n + step % sum_tiles_n) * BLOCK_N
        m = (tile_m + step // sum_tiles_n % sum_tiles_m) * BLOCK_M
        head = own_head + step // (sum_tiles_n * sum_tiles_m) % sum_heads
        batch = (own_batch + step // (sum_tiles_n * sum_tiles_m) // sum_heads).to(tl.int64)
        kv_head, head = (head // group).to(tl.int64), head.to(tl.int64)
        rows, cols = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
        queries, keys = rows.to(tl.int64), cols.to(tl.int64)
        asked, given = (
            (rows < seq_q)[:, None] & inside[None, :],
            (cols < seq_k)[:, None] & inside[None, :],
        )
        q_at = q_ptr + wide(batch * stride_qb + head * stride_qh + queries * stride_qm, UNIT)
        g_at = dout_ptr + wide(batch * stride_gb + head * stride_gh + queries * stride_gm, UNIT)
        k_at = k_ptr + wide(batch * stride_kb + kv_head * stride_kh + keys * stride_kn, UNIT)
        v_at = v_ptr + wide(batch * stride_vb + kv_head * stride_vh + keys * stride_vn, UNIT)
        q = tl.load(q_at[:, None] + dims[None, :] * stride_qd, mask=asked, other=0.0)
        k = tl.load(k_at[:, None] + dims[None, :] * stride_kd, mask=given, other=0.0)
        dout = tl.load(g_at[:, None] + dims[None, :] * stride_gd, mask=asked, other=0.0)
        v = tl.load(v_at[:, None] + dims[None, :] * stride_vd, mask=given, other=0.0)
        at = (batch * heads + head) * seq_q + queries
        lse = in_base_2(lse_ptr + at, rows < seq_q)
        delta = tl.load(delta_ptr + at, mask=rows < seq_q, other=0.0)
        bias = bias_ptr + wide(batch * stride_bb + head * stride_bh, BIAS_STEP)
        tilt = 0.0
        if ALIBI:
            tilt = tl.load(slopes_ptr + batch * slopes_batch + head)
        logs, _ = logs_and_slope(
            tl.dot(q, tl.trans(k), input_precision=PRECISION), lse[:, None], bias, rows[:, None],
            cols[None, :],
            seq_q, seq_k, shift, left, right, qk_scale, softcap, stride_bm, stride_bn, tilt, LEFT,
            RIGHT, SOFTCAP, "float", BIAS_STEP, True, False, ALIBI, False,
        )  # fmt: skip
        dp = tl.dot(dout, tl.trans(v), input_precision=PRECISION)
        total += tl.exp2(logs) * (dp - delta[:, None])
    at = dbias_ptr + part.to(tl.int64) * part_stride
    at += own_batch.to(tl.int64) * stride_db + own_head.to(tl.int64) * stride_dh
    rows, cols = (
        tile_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64),
        tile_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64),
    )
    kind = dbias_ptr.dtype.element_ty
    if SUM_M and SUM_N:
        tl.store(at, tl.sum(tl.sum(total, 1), 0).to(kind))
    elif SUM_M:
        tl.store(at + cols * stride_dn, tl.sum(total, 0).to(kind), mask=cols < seq_k)
    elif SUM_N:
        tl.store(at + rows * stride_dm, tl.sum(total, 1).to(kind), mask=rows < seq_q)
    else:
        stored = (rows < seq_q)[:, None] & (cols < seq_k)[None, :]
        tl.store(
            at + rows[:, None] * stride_dm + cols[None, :] * stride_dn, total.to(kind), mask=stored
        )


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dq_dbias(
    ds_ptr, k_ptr, dq_ptr, dbias_ptr, stride_kb, stride_kh, stride_kn, stride_kd, stride_dqb,
    stride_dqh, stride_dqm, stride_dqd, stride_dh, stride_dm, stride_dn,
    tiles, heads, group, sum_batches, seq_q, seq_k, ds_width, chunk, part_stride, scale,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute dq, and the gradient of a bias that all sequences share, from those of the scores.

    A tile has BLOCK_M queries and all keys. The grid is tiles * heads * parts; each part takes
    `chunk` sequences, whose sums lie `part_stride` elements after those of the part before it.
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, part = (unit % heads).to(tl.int64), unit // heads
    rows = tl.max_contiguous(
        tl.multiple_of(tile * BLOCK_M + tl.arange(0, BLOCK_M), BLOCK_M), BLOCK_M
    )
    cols, dims = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_D)
    width = wide(ds_width, KEPT_STEP)
    kept = (cols < seq_k)[:, None] & (rows < width)[None, :]
    given = (cols < seq_k)[:, None] & (dims < HEAD_DIM)[None, :]
    stored = (rows < seq_q)[:, None] & (dims < HEAD_DIM)[None, :]
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in range(part * chunk, tl.minimum(sum_batches, (part + 1) * chunk)):
        batch = tl.cast(step, tl.int64)
        ds_at = ds_ptr + (batch * heads + head) * seq_k * width
        k_at = k_ptr + wide(batch * stride_kb + head // group * stride_kh + cols * stride_kn, UNIT)
        ds = tl.load(ds_at + cols[:, None] * width + rows[None, :], mask=kept, other=0.0)
        k = tl.load(k_at[:, None] + dims[None, :] * stride_kd, mask=given, other=0.0)
        total += ds.to(tl.float32)
        dq = tl.dot(tl.trans(ds), k, input_precision=PRECISION) * scale
        dq_at = dq_ptr + wide(batch * stride_dqb + head * stride_dqh + rows * stride_dqm, UNIT)
        at = dq_at[:, None] + dims[None, :] * stride_dqd
        tl.store(at, dq.to(dq_ptr.dtype.element_ty), mask=stored)
    at = dbias_ptr + part.to(tl.int64) * part_stride + head * stride_dh
    at += rows[None, :] * stride_dm + cols[:, None] * stride_dn
    kind = dbias_ptr.dtype.element_ty
    tl.store(at, total.to(kind), mask=(cols < seq_k)[:, None] & (rows < seq_q)[None, :])
