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
    add_alibi,
    add_bias,
    extent,
    find_listed,
    hide,
    hide_by_bits,
    hint,
    row_at,
)
from gpudeck.accel.primitives.tiles.memory import load_vectors
from gpudeck.accel.primitives.tiles.reductions import product_sums
from gpudeck.accel.primitives.tiles.softmax import LOG2E, tanh

KEPT_STEP = tl.constexpr(16)
"""What divides the rows in which gradients of scores are kept."""


@triton.jit(do_not_specialize=UNSPECIALISED)
def row_sums(
    out_ptr, dout_ptr, dlse_ptr, delta_ptr, out_strides, dout_strides, tiles, heads, total_q,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, DLSE: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute delta, the row sums of out * dout less the gradient of lse, float32 [B,H,Sq]."""
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    batch, head = (unit // heads).to(tl.int64), (unit % heads).to(tl.int64)
    rows, dims = tile * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64), tl.arange(0, BLOCK_D)
    there = (rows < total_q)[:, None] & (dims < HEAD_DIM)[None, :]
    out_at = row_at(out_ptr, out_strides, batch, head, rows, UNIT)
    out = tl.load(out_at[:, None] + dims[None, :] * out_strides.element, there, 0.0)
    dout_at = row_at(dout_ptr, dout_strides, batch, head, rows, UNIT)
    dout = tl.load(dout_at[:, None] + dims[None, :] * dout_strides.element, there, 0.0)
    delta = product_sums(out, dout)
    at = unit.to(tl.int64) * total_q + rows
    if DLSE:
        delta -= tl.load(dlse_ptr + at, mask=rows < total_q, other=0.0)
    tl.store(delta_ptr + at, delta, mask=rows < total_q)


@triton.jit
def logs_and_slope(
    products, lse, rows, cols, bounds, scaling, bias, bias_strides, tilt, FORM: tl.constexpr,
    MASKED: tl.constexpr, EVEN_K: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Return log2 of the weights p from q.k, and d(score)/d(scale * q.k).

    `lse` is in base 2, +inf for missing rows, and broadcasts like `rows`. `bounds` and `scaling`
    are as `attend` takes them. ALL means that all of `cols` exist.
    """
    qk_scale, softcap = scaling
    slope = 1.0
    scores = products * qk_scale
    if FORM.softcap:
        bounded = tanh(scores)
        slope = 1.0 - bounded * bounded
        scores = (softcap * LOG2E) * bounded
    if FORM.alibi:
        scores = add_alibi(scores, rows, cols, bounds[2], tilt)
    if FORM.bias is not None:
        scores = add_bias(scores, bias, bias_strides, rows, cols, bounds, FORM, ALL)
    if MASKED:
        scores = hide(scores, rows, cols, bounds, FORM, EVEN_K)
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
    sums, k, v, cols, q_at, dout_at, lse_at, delta_at, ds_at, bounds, scaling, bias, bias_strides,
    tilt, lists, begin, end, ds_width, steps, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, FORM: tl.constexpr, MASKED: tl.constexpr, EVEN_Q: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Add the contribution of queries `begin` to `end` - 1 to `sums`, dk (without the scale) and dv
    of a block of keys. With ROWS, the queries are counted within the blocks of `lists`. Unless
    `ds_at` is None, store the gradients of the scores there, a row of `ds_width` queries for each
    key. `bounds` and `scaling` are as `attend` takes them, `steps` the strides of q and dout.
    """
    dk, dv = sums
    seq_q, seq_k = bounds[0], bounds[1]
    for at in range(begin, end, BLOCK_M):
        start = at
        if ROWS:
            start = find_listed(at, lists[0], ROWS)
        rows = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK_M), BLOCK_M), BLOCK_M)
        block = tl.cast(start, tl.int64)
        q = load_vectors(q_at + block * steps[0], rows, seq_q, HEAD_DIM, BLOCK_D, EVEN_Q)
        lse = in_base_2(lse_at + rows, rows < seq_q)
        products = tl.dot(k, tl.trans(q), input_precision="ieee")
        logs, slope = logs_and_slope(  # keys beyond the last give only rows that are not stored
            products, lse[None, :], rows[None, :], cols[:, None], bounds, scaling, bias,
            bias_strides, tilt, FORM, MASKED, True, False,
        )  # fmt: skip
        if BITS:
            logs = hide_by_bits(
                logs, lists[2], lists[1], at, rows[None, :], cols[:, None], ROWS, COLS, ROWS
            )
        p = tl.exp2(logs)
        dout = load_vectors(dout_at + block * steps[1], rows, seq_q, HEAD_DIM, BLOCK_D, EVEN_Q)
        dv = tl.dot(p.to(dout.dtype), dout, dv, input_precision="ieee")
        dp = tl.dot(v, tl.trans(dout), input_precision="ieee")
        delta = tl.load(delta_at + rows, mask=rows < seq_q, other=0.0)
        ds = (p * (dp - delta[None, :]) * slope).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision="ieee")
        if ds_at is not None:
            kept = (cols < seq_k)[:, None] & (rows < hint(ds_width, KEPT_STEP))[None, :]
            tl.store(
                ds_at + cols[:, None] * hint(ds_width, KEPT_STEP) + rows[None, :],
                ds,
                kept,
            )
    return dk, dv


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dk_dv(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr, counts_ptr, lists_ptr, numbers_ptr, bits_ptr, ds_ptr, dk_ptr, dv_ptr, q_strides,
    k_strides, v_strides, dout_strides, bias_strides, dk_strides, dv_strides, tiles, heads, group,
    seq_q, seq_k, total_q, left, right, scale, qk_scale, softcap, slopes_batch, lists_batch,
    lists_head, lists_width, ds_width, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FORM: tl.constexpr, EVEN_Q: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of one tile of BLOCK_N keys of one key head, over all its query heads.

    The grid is tiles * key heads * sequences. Unless `ds_ptr` is None, store the gradients of the
    scores there, [B,H,Sk,ds_width].
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    kv_heads = heads // group
    batch, kv_head = unit // kv_heads, (unit % kv_heads).to(tl.int64)
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if FORM.ragged:
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
    k_at = row_at(k_ptr, k_strides, place, kv_head, keys, UNIT)
    v_at = row_at(v_ptr, v_strides, place, kv_head, keys, UNIT)
    k = tl.load(k_at[:, None] + dims[None, :] * k_strides.element, mask=stored, other=0.0)
    v = tl.load(v_at[:, None] + dims[None, :] * v_strides.element, mask=stored, other=0.0)

    # The queries that see any of these keys, and among them those that see all: `extent` with the
    # roles changed.
    final = tl.minimum((tile + 1) * BLOCK_N, seq_k) - 1
    begin, _, _, end = extent(
        tile * BLOCK_N, final, -shift, right, left, seq_q, FORM.right, FORM.left, BLOCK_M
    )
    sums = tl.zeros([BLOCK_N, BLOCK_D], tl.float32), tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    rows = tl.arange(0, BLOCK_M)
    steps = hint(q_strides.row, UNIT), hint(dout_strides.row, UNIT)
    bounds, scaling = (seq_q, seq_k, shift, left, right), (qk_scale, softcap)
    for member in range(group):
        head = kv_head * group + member
        q_at = row_at(q_ptr, q_strides, place, head, first_q, UNIT)
        q_at += rows[:, None] * steps[0] + dims[None, :] * q_strides.element
        dout_at = row_at(dout_ptr, dout_strides, place, head, first_q, UNIT)
        dout_at += rows[:, None] * steps[1] + dims[None, :] * dout_strides.element
        at = (place * heads + head) * total_q + first_q
        ds_at = ds_ptr
        if ds_ptr is not None:
            ds_at += (place * heads + head) * seq_k * hint(ds_width, KEPT_STEP)
        bias = bias_ptr
        if FORM.bias is not None:
            bias += hint(place * bias_strides.batch + head * bias_strides.head, FORM.bias_step)
        tilt = 0.0
        if FORM.alibi:
            tilt = tl.load(slopes_ptr + place * slopes_batch + head)
        if ROWS:
            row = place * lists_batch + head * lists_head + tile * BLOCK_N // COLS
            whole = tl.load(counts_ptr + 2 * row)
            blocks = lists_ptr + row * lists_width
            numbers = numbers_ptr + row * lists_width
            sums = gather_rows(
                sums, k, v, cols, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bounds,
                scaling, bias, bias_strides, tilt, (blocks + whole, numbers + whole, bits_ptr), 0,
                tl.load(counts_ptr + 2 * row + 1) * ROWS, ds_width, steps, HEAD_DIM, BLOCK_D,
                BLOCK_M, FORM, False, EVEN_Q, ROWS, COLS, True,
            )  # fmt: skip
            sums = gather_rows(
                sums, k, v, cols, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bounds,
                scaling, bias, bias_strides, tilt, (blocks, numbers, bits_ptr), 0, whole * ROWS,
                ds_width, steps, HEAD_DIM, BLOCK_D, BLOCK_M, FORM, False, EVEN_Q, ROWS, COLS,
                False,
            )  # fmt: skip
        else:
            sums = gather_rows(
                sums, k, v, cols, q_at, dout_at, lse_ptr + at, delta_ptr + at, ds_at, bounds,
                scaling, bias, bias_strides, tilt, None, begin, end, ds_width, steps, HEAD_DIM,
                BLOCK_D, BLOCK_M, FORM, FORM.left or FORM.right, EVEN_Q, 0, 0, False,
            )  # fmt: skip
    dk, dv = sums
    dk_at = row_at(dk_ptr, dk_strides, place, kv_head, keys, UNIT)
    dv_at = row_at(dv_ptr, dv_strides, place, kv_head, keys, UNIT)
    dk_at = dk_at[:, None] + dims[None, :] * dk_strides.element
    tl.store(dk_at, (dk * scale).to(dk_ptr.dtype.element_ty), mask=stored)
    dv_at = dv_at[:, None] + dims[None, :] * dv_strides.element
    tl.store(dv_at, dv.to(dv_ptr.dtype.element_ty), mask=stored)


@triton.jit
def gather_keys(
    dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides, tilt, lists,
    begin, end, steps, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    FORM: tl.constexpr, MASKED: tl.constexpr, EVEN_K: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Add the contribution of keys `begin` to `end` - 1 to dq (without the scale) of a block of
    queries. With COLS, the keys are counted within the blocks of `lists`. `bounds` and `scaling`
    are as `attend` takes them, `steps` the strides of keys and values.
    """
    seq_k = bounds[1]
    ALL: tl.constexpr = EVEN_K or not MASKED
    for at in range(begin, end, BLOCK_N):
        start = at
        if COLS:
            start = find_listed(at, lists[0], COLS)
        cols = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK_N), BLOCK_N), BLOCK_N)
        block = tl.cast(start, tl.int64)
        k = load_vectors(k_at + block * steps[0], cols, seq_k, HEAD_DIM, BLOCK_D, ALL)
        products = tl.dot(q, tl.trans(k), input_precision="ieee")
        logs, slope = logs_and_slope(
            products, lse[:, None], rows[:, None], cols[None, :], bounds, scaling, bias,
            bias_strides, tilt, FORM, MASKED, EVEN_K, ALL,
        )  # fmt: skip
        if BITS:
            logs = hide_by_bits(
                logs, lists[2], lists[1], at, rows[:, None], cols[None, :], ROWS, COLS, COLS
            )
        p = tl.exp2(logs)
        v = load_vectors(v_at + block * steps[1], cols, seq_k, HEAD_DIM, BLOCK_D, ALL)
        dp = tl.dot(dout, tl.trans(v), input_precision="ieee")
        ds = p * (dp - delta[:, None]) * slope
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dq(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr, counts_ptr, lists_ptr, numbers_ptr, bits_ptr, dq_ptr, q_strides, k_strides,
    v_strides, dout_strides, dq_strides, bias_strides, tiles, heads, group, seq_q, seq_k, total_q,
    left, right, scale, qk_scale, softcap, slopes_batch, lists_batch, lists_head, lists_width,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    FORM: tl.constexpr, EVEN_K: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    UNIT: tl.constexpr,
):  # fmt: skip
    """Compute dq of one tile of BLOCK_M queries of one head.

    The grid is tiles * heads * sequences, the tile fastest.
    """
    tile, unit = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    head, batch = unit % heads, unit // heads
    if FORM.right:
        tile = tiles - 1 - tile  # the longest first
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if FORM.ragged:
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
    q_at = row_at(q_ptr, q_strides, place, head, queries, UNIT)
    dout_at = row_at(dout_ptr, dout_strides, place, head, queries, UNIT)
    q = tl.load(q_at[:, None] + dims[None, :] * q_strides.element, mask=stored, other=0.0)
    dout = tl.load(dout_at[:, None] + dims[None, :] * dout_strides.element, mask=stored, other=0.0)
    at = (place * heads + head) * total_q + queries
    lse = in_base_2(lse_ptr + at, there)
    delta = tl.load(delta_ptr + at, mask=there, other=0.0)
    keys = tl.arange(0, BLOCK_N)
    steps = hint(k_strides.row, UNIT), hint(v_strides.row, UNIT)
    bounds, scaling = (seq_q, seq_k, shift, left, right), (qk_scale, softcap)
    k_at = row_at(k_ptr, k_strides, place, kv_head, first_k, UNIT)
    k_at += keys[:, None] * steps[0] + dims[None, :] * k_strides.element
    v_at = row_at(v_ptr, v_strides, place, kv_head, first_k, UNIT)
    v_at += keys[:, None] * steps[1] + dims[None, :] * v_strides.element
    bias = bias_ptr
    if FORM.bias is not None:
        bias += hint(place * bias_strides.batch + head * bias_strides.head, FORM.bias_step)

    tilt = 0.0
    if FORM.alibi:
        tilt = tl.load(slopes_ptr + place * slopes_batch + head)
    dq = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if COLS:
        row = place * lists_batch + head * lists_head + tile * BLOCK_M // ROWS
        whole = tl.load(counts_ptr + 2 * row)
        blocks = lists_ptr + row * lists_width
        numbers = numbers_ptr + row * lists_width
        dq = gather_keys(
            dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides, tilt,
            (blocks + whole, numbers + whole, bits_ptr), 0,
            tl.load(counts_ptr + 2 * row + 1) * COLS, steps, HEAD_DIM, BLOCK_D, BLOCK_N, FORM,
            not EVEN_K, EVEN_K, ROWS, COLS, True,
        )  # fmt: skip
        dq = gather_keys(
            dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides, tilt,
            (blocks, numbers, bits_ptr), 0, whole * COLS, steps, HEAD_DIM, BLOCK_D, BLOCK_N, FORM,
            not EVEN_K, EVEN_K, ROWS, COLS, False,
        )  # fmt: skip
    else:
        last = tl.minimum((tile + 1) * BLOCK_M, seq_q) - 1
        begin, full_begin, full_end, end = extent(
            tile * BLOCK_M, last, shift, left, right, seq_k, FORM.left, FORM.right, BLOCK_N
        )
        full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
        full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
        if FORM.left:  # the whole blocks last, as in the forward
            dq = gather_keys(
                dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides,
                tilt, None, begin, full_begin, steps, HEAD_DIM, BLOCK_D, BLOCK_N, FORM, True,
                EVEN_K, 0, 0, False,
            )  # fmt: skip
        if FORM.left or FORM.right or not EVEN_K:
            dq = gather_keys(
                dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides,
                tilt, None, full_end, end, steps, HEAD_DIM, BLOCK_D, BLOCK_N, FORM, True, EVEN_K,
                0, 0, False,
            )  # fmt: skip
        dq = gather_keys(
            dq, q, dout, lse, delta, rows, k_at, v_at, bounds, scaling, bias, bias_strides, tilt,
            None, full_begin, full_end, steps, HEAD_DIM, BLOCK_D, BLOCK_N, FORM, False, EVEN_K, 0,
            0, False,
        )  # fmt: skip
    dq_at = row_at(dq_ptr, dq_strides, place, head, queries, UNIT)
    dq_at = dq_at[:, None] + dims[None, :] * dq_strides.element
    tl.store(dq_at, (dq * scale).to(dq_ptr.dtype.element_ty), mask=stored)


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dbias(
    q_ptr, k_ptr, v_ptr, dout_ptr, lse_ptr, delta_ptr, bias_ptr, slopes_ptr, dbias_ptr, q_strides,
    k_strides, v_strides, dout_strides, bias_strides, dbias_strides, tiles_m, tiles_n, own_heads,
    own_batches, sum_batches, sum_heads, sum_tiles_m, sum_tiles_n, chunk, part_stride, heads,
    group, seq_q, seq_k, left, right, scale, qk_scale, softcap, slopes_batch,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    SUM_M: tl.constexpr, SUM_N: tl.constexpr, FORM: tl.constexpr, UNIT: tl.constexpr,
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
        q_at = row_at(q_ptr, q_strides, batch, head, queries, UNIT)
        g_at = row_at(dout_ptr, dout_strides, batch, head, queries, UNIT)
        k_at = row_at(k_ptr, k_strides, batch, kv_head, keys, UNIT)
        v_at = row_at(v_ptr, v_strides, batch, kv_head, keys, UNIT)
        q = tl.load(q_at[:, None] + dims[None, :] * q_strides.element, mask=asked, other=0.0)
        k = tl.load(k_at[:, None] + dims[None, :] * k_strides.element, mask=given, other=0.0)
        dout = tl.load(g_at[:, None] + dims[None, :] * dout_strides.element, mask=asked, other=0.0)
        v = tl.load(v_at[:, None] + dims[None, :] * v_strides.element, mask=given, other=0.0)
        at = (batch * heads + head) * seq_q + queries
        lse = in_base_2(lse_ptr + at, rows < seq_q)
        delta = tl.load(delta_ptr + at, mask=rows < seq_q, other=0.0)
        first = batch * bias_strides.batch + head * bias_strides.head
        bias = bias_ptr + hint(first, FORM.bias_step)
        tilt = 0.0
        if FORM.alibi:
            tilt = tl.load(slopes_ptr + batch * slopes_batch + head)
        products = tl.dot(q, tl.trans(k), input_precision="ieee")
        logs, _ = logs_and_slope(
            products, lse[:, None], rows[:, None], cols[None, :],
            (seq_q, seq_k, shift, left, right), (qk_scale, softcap), bias, bias_strides, tilt,
            FORM, True, False, False,
        )  # fmt: skip
        dp = tl.dot(dout, tl.trans(v), input_precision="ieee")
        total += tl.exp2(logs) * (dp - delta[:, None])
    at = dbias_ptr + part.to(tl.int64) * part_stride
    first = own_batch.to(tl.int64) * dbias_strides.batch
    at += first + own_head.to(tl.int64) * dbias_strides.head
    rows, cols = (
        tile_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64),
        tile_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64),
    )
    kind = dbias_ptr.dtype.element_ty
    if SUM_M and SUM_N:
        tl.store(at, tl.sum(tl.sum(total, 1), 0).to(kind))
    elif SUM_M:
        tl.store(at + cols * dbias_strides.element, tl.sum(total, 0).to(kind), mask=cols < seq_k)
    elif SUM_N:
        tl.store(at + rows * dbias_strides.row, tl.sum(total, 1).to(kind), mask=rows < seq_q)
    else:
        stored = (rows < seq_q)[:, None] & (cols < seq_k)[None, :]
        at = at + rows[:, None] * dbias_strides.row + cols[None, :] * dbias_strides.element
        tl.store(at, total.to(kind), mask=stored)


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_dq_dbias(
    ds_ptr, k_ptr, dq_ptr, dbias_ptr, k_strides, dq_strides, dbias_strides, tiles, heads, group,
    sum_batches, seq_q, seq_k, ds_width, chunk, part_stride, scale, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, UNIT: tl.constexpr,
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
    width = hint(ds_width, KEPT_STEP)
    kept = (cols < seq_k)[:, None] & (rows < width)[None, :]
    given = (cols < seq_k)[:, None] & (dims < HEAD_DIM)[None, :]
    stored = (rows < seq_q)[:, None] & (dims < HEAD_DIM)[None, :]
    total = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for step in range(part * chunk, tl.minimum(sum_batches, (part + 1) * chunk)):
        batch = tl.cast(step, tl.int64)
        ds_at = ds_ptr + (batch * heads + head) * seq_k * width
        of_head = batch * k_strides.batch + head // group * k_strides.head
        k_at = k_ptr + hint(of_head + cols * k_strides.row, UNIT)
        ds = tl.load(ds_at + cols[:, None] * width + rows[None, :], mask=kept, other=0.0)
        k = tl.load(k_at[:, None] + dims[None, :] * k_strides.element, mask=given, other=0.0)
        total += ds.to(tl.float32)
        dq = tl.dot(tl.trans(ds), k, input_precision="ieee") * scale
        dq_at = row_at(dq_ptr, dq_strides, batch, head, rows, UNIT)
        at = dq_at[:, None] + dims[None, :] * dq_strides.element
        tl.store(at, dq.to(dq_ptr.dtype.element_ty), mask=stored)
    at = dbias_ptr + part.to(tl.int64) * part_stride + head * dbias_strides.head
    at += rows[None, :] * dbias_strides.row + cols[:, None] * dbias_strides.element
    kind = dbias_ptr.dtype.element_ty
    tl.store(at, total.to(kind), mask=(cols < seq_k)[:, None] & (rows < seq_q)[None, :])
