"""Compute the portable forward pass: online softmax over blocks of keys, with optional splits.

Scores are in base 2, multiplied by scale * log2(e) once, so that exp2 suffices. `m` is a row's
largest score so far, `l` the sum of its weights, `acc` the weighted sum of values.

Source: FlashAttention-2 (arXiv 2307.08691), algorithm 1.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.tiles.memory import load_vectors
from gpudeck.accel.primitives.tiles.softmax import (
    LOG2E,
    advance,
    anchor,
    softmax_end,
    softmax_step,
    tanh,
)

UNSPECIALISED = (
    "tiles", "units", "heads", "group", "seq_q", "seq_k", "total_q", "left", "right", "chunk",
    "partial_stride", "splits", "slopes_batch", "lists_batch", "lists_head", "lists_width",
    "tiles_m", "tiles_n", "own_heads", "own_batches", "sum_batches", "sum_heads", "sum_tiles_m",
    "sum_tiles_n",
)  # fmt: skip
"""Sizes and counts: knowing that one is 1 or a multiple of 16 gains nothing, and would compile the
kernels anew for each."""


@triton.jit
def hide(
    scores,
    rows,
    cols,
    shift,
    left,
    right,
    seq_k,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Return the scores, -inf where the queries `rows` do not see the keys `cols`.

    The two broadcast together.
    """
    if LEFT:
        scores = tl.where(cols >= rows + (shift - left), scores, float("-inf"))
    if RIGHT:
        scores = tl.where(cols <= rows + (shift + right), scores, float("-inf"))
    if not EVEN_K:
        scores = tl.where(cols < seq_k, scores, float("-inf"))
    return scores


@triton.jit
def wide(number, UNIT: tl.constexpr):
    """Return the same number, of which the compiler then knows that UNIT divides it.

    It knows only whether an argument is a multiple of 16, and loads one element at a time where it
    knows nothing.
    """
    return number // UNIT * UNIT


@triton.jit
def biased(
    scores, bias, rows, cols, stride_m, stride_n, seq_q, seq_k, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr, ALL: tl.constexpr,
):  # fmt: skip
    """Return scores in base 2 plus an additive bias, or hidden where a boolean one is False.

    `bias` points at this head's bias, which is the same for all queries if `stride_m` is None, and
    for all keys if `stride_n` is. ALL means that all of `cols` exist.
    """
    at = bias
    if stride_m is not None:  # rows past the last read that one, which saves a mask
        at += tl.minimum(rows, seq_q - 1).to(tl.int64) * wide(stride_m, BIAS_STEP)
    if stride_n is not None:
        at += cols.to(tl.int64) * stride_n
    if ALL or stride_n is None:
        added = tl.load(at)
    else:
        added = tl.load(at, mask=cols < tl.cdiv(seq_k, BIAS_STEP) * BIAS_STEP, other=0)
    if BIAS == "bool":
        return tl.where(added != 0, scores, float("-inf"))
    return scores + added.to(tl.float32) * LOG2E


@triton.jit
def tilted(scores, rows, cols, shift, slope):
    """Return scores in base 2 plus ALiBi: slope x (key - position of the query)."""
    return scores + (slope * LOG2E) * (cols - rows - shift).to(tl.float32)


@triton.jit
def listed(at, listed_blocks, SIZE: tl.constexpr):
    """Return the position of which `at` is the number within the blocks of a list."""
    return tl.load(listed_blocks + at // SIZE) * SIZE + at % SIZE


@triton.jit
def hide_by_bits(
    scores, bits, numbers, at, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """Return the scores, -inf where the bits of a block of ROWS x COLS hide them.

    `numbers` points at the numbers of a list's blocks among those with bits; the tile lies in the
    one that `at` falls into, with SIZE positions a block.
    """
    block = bits + tl.load(numbers + at // SIZE).to(tl.int64) * (ROWS * COLS)
    seen = tl.load(block + (rows % ROWS) * COLS + cols % COLS)
    return tl.where(seen != 0, scores, float("-inf"))


@triton.jit
def attend(
    acc, l, m, q, k_at, v_at, bias, slopes, blocks, numbers, bits, rows, begin, end, seq_q, seq_k,
    shift, left, right, qk_scale, softcap,
    stride_kn, stride_vn, stride_bm, stride_bn,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    MASKED: tl.constexpr, EVEN_K: tl.constexpr,
    PRECISION: tl.constexpr, ALIBI: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """Add the keys `begin` to `end` - 1; with COLS, those are counted within the list `blocks`.

    MASKED means that some may be hidden or past the end of the sequence, BITS that bits hide some.
    """
    steps = tl.arange(0, BLOCK_N)
    for at in range(begin, end, BLOCK_N):
        start = at
        if COLS:
            start = listed(at, blocks, COLS)
        cols = tl.max_contiguous(tl.multiple_of(start + steps, BLOCK_N), BLOCK_N)
        block = tl.cast(start, tl.int64)
        k = load_vectors(
            k_at + block * stride_kn, cols, seq_k, HEAD_DIM, BLOCK_D, EVEN_K or not MASKED
        )
        scores = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if SOFTCAP:
            scores = (softcap * LOG2E) * tanh(scores * qk_scale)
        elif BIAS is not None or MASKED or ALIBI or BITS:
            scores = scores * qk_scale
        if ALIBI:
            scores = tilted(scores, rows[:, None], cols[None, :], shift, slopes[:, None])
        if BIAS is not None:
            scores = biased(
                scores, bias, rows[:, None], cols[None, :], stride_bm, stride_bn, seq_q, seq_k,
                BIAS, BIAS_STEP, EVEN_K or not MASKED,
            )  # fmt: skip
        if MASKED:
            scores = hide(
                scores, rows[:, None], cols[None, :], shift, left, right, seq_k, LEFT, RIGHT, EVEN_K
            )
        if BITS:
            scores = hide_by_bits(
                scores, bits, numbers, at, rows[:, None], cols[None, :], ROWS, COLS, COLS
            )
        if SOFTCAP or BIAS is not None or MASKED or ALIBI or BITS:
            p, m, l, shrink = softmax_step(scores, m, l, 1.0)
        else:
            p, m, l, shrink = softmax_step(scores, m, l, qk_scale, BLIND=False)
        acc = acc * shrink[:, None]
        v = load_vectors(
            v_at + block * stride_vn, cols, seq_k, HEAD_DIM, BLOCK_D, EVEN_K or not MASKED
        )
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision=PRECISION)
    return acc, l, m


@triton.jit
def extent(
    first,
    last,
    shift,
    left,
    right,
    seq_k,
    LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the keys that queries `first` to `last` see: (begin, full_begin, full_end, end).

    All are multiples of BLOCK_N except `end`. All these queries see every key from full_begin
    to full_end - 1; blocks outside need a mask.
    """
    begin = 0
    full_begin = 0
    end = seq_k
    full_end = seq_k
    if LEFT:
        begin = tl.maximum(first + shift - left, 0) // BLOCK_N * BLOCK_N
        full_begin = tl.cdiv(tl.maximum(last + shift - left, 0), BLOCK_N) * BLOCK_N
    if RIGHT:
        end = tl.minimum(seq_k, tl.maximum(last + shift + right + 1, 0))
        full_end = tl.minimum(seq_k, tl.maximum(first + shift + right + 1, 0))
    return begin, full_begin, full_end // BLOCK_N * BLOCK_N, end


@triton.jit
def with_sink(acc, m, l, sink):
    """Take a last score of each row into the softmax, to which no value belongs.

    `sink` and `m` are in base 2, and broadcast together.
    """
    new, base = advance(m, sink, True)
    shrink = tl.exp2(m - base)
    return acc * shrink[:, None], new, l * shrink + tl.exp2(sink - base)


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sink_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr,
    counts_ptr, lists_ptr, numbers_ptr, bits_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od, stride_bb, stride_bh, stride_bm, stride_bn,
    tiles, units, heads, group, seq_q, seq_k, total_q, left, right, qk_scale, softcap, chunk,
    partial_stride, slopes_batch, lists_batch, lists_head, lists_width,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TAIL: tl.constexpr, PACK: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, SOFTCAP: tl.constexpr, BIAS: tl.constexpr,
    BIAS_STEP: tl.constexpr,
    RAGGED: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr, PRECISION: tl.constexpr, ALIBI: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, SINK: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Compute one tile of BLOCK_M rows of one head, or of PACK heads that share a key head,
    interleaved.

    The grid is tiles * (heads / PACK) * sequences (* splits), the tile fastest. With SPLIT each
    split of `chunk` keys writes its own float32 result and log-sum-exp, `partial_stride` rows
    after the one before it, for `combine_splits`.
    """
    tile = tl.program_id(0) % tiles
    unit = tl.program_id(0) // tiles
    split = unit // units
    unit = unit % units
    head = unit % (heads // PACK) * PACK
    batch = unit // (heads // PACK)
    if RIGHT:
        tile = tiles - 1 - tile  # the longest first
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if RAGGED:
        first_q, first_k = tl.load(starts_q_ptr + batch), tl.load(starts_k_ptr + batch)
        seq_q = tl.load(starts_q_ptr + batch + 1) - first_q
        seq_k = tl.load(starts_k_ptr + batch + 1) - first_k
        if tile * BLOCK_M >= seq_q * PACK:
            return
        place, first_q, first_k = place * 0, first_q.to(tl.int64), first_k.to(tl.int64)
    kv_head = (head // group).to(tl.int64)
    shift = seq_k - seq_q
    packed = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    rows, heads_of = packed // PACK, (head + packed % PACK).to(tl.int64)
    there = rows < seq_q
    dims, steps, few = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_N), tl.arange(0, TAIL)
    step_k, step_v = wide(stride_kn, UNIT), wide(stride_vn, UNIT)
    q_at = q_ptr + wide(
        place * stride_qb + heads_of * stride_qh + (first_q + rows) * stride_qm, UNIT
    )
    stored = there[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(q_at[:, None] + dims[None, :] * stride_qd, mask=stored, other=0.0)
    k_row = k_ptr + wide(place * stride_kb + kv_head * stride_kh + first_k * stride_kn, UNIT)
    v_row = v_ptr + wide(place * stride_vb + kv_head * stride_vh + first_k * stride_vn, UNIT)
    k_at = k_row + (steps[:, None] * step_k + dims[None, :] * stride_kd)
    v_at = v_row + (steps[:, None] * step_v + dims[None, :] * stride_vd)
    bias = bias_ptr
    if BIAS is not None:
        bias += wide(place * stride_bb + head.to(tl.int64) * stride_bh, BIAS_STEP)
    slopes = 0.0
    if ALIBI:
        slopes = tl.load(slopes_ptr + place * slopes_batch + heads_of)

    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    if COLS:
        row = place * lists_batch + head.to(tl.int64) * lists_head + tile * BLOCK_M // ROWS
        whole = tl.load(counts_ptr + 2 * row)
        blocks = lists_ptr + row * lists_width
        numbers = numbers_ptr + row * lists_width
        acc, l, m = attend(
            acc, l, m, q, k_at, v_at, bias, slopes, blocks + whole, numbers + whole, bits_ptr,
            rows, 0, tl.load(counts_ptr + 2 * row + 1) * COLS, seq_q, seq_k, shift, left, right,
            qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, not EVEN_K, EVEN_K, PRECISION, ALIBI, ROWS, COLS, True,
        )  # fmt: skip
        acc, l, m = attend(
            acc, l, m, q, k_at, v_at, bias, slopes, blocks, numbers, bits_ptr, rows, 0,
            whole * COLS, seq_q, seq_k, shift, left, right, qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, not EVEN_K, EVEN_K, PRECISION, ALIBI, ROWS, COLS, False,
        )  # fmt: skip
    else:
        last = tl.minimum(((tile + 1) * BLOCK_M - 1) // PACK, seq_q - 1)
        begin, full_begin, full_end, end = extent(
            tile * BLOCK_M // PACK, last, shift, left, right, seq_k, LEFT, RIGHT, BLOCK_N
        )
        if SPLIT:
            begin = tl.maximum(begin, split * chunk)
            end = tl.minimum(end, (split + 1) * chunk)
        full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
        full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
        # The whole blocks last: were they first, ptxas would make every wgmma wait for the one
        # before it (its note C7515).
        if LEFT:
            acc, l, m = attend(
                acc, l, m, q, k_at, v_at, bias, slopes, None, None, None, rows, begin, full_begin,
                seq_q, seq_k, shift, left, right, qk_scale, softcap,
                step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
                SOFTCAP, BIAS, BIAS_STEP, True, EVEN_K, PRECISION, ALIBI, 0, 0, False,
            )  # fmt: skip
        if LEFT or RIGHT or not EVEN_K:
            acc, l, m = attend(
                acc, l, m, q, k_row + (few[:, None] * step_k + dims[None, :] * stride_kd),
                v_row + (few[:, None] * step_v + dims[None, :] * stride_vd), bias, slopes,
                None, None, None, rows, full_end, end,
                seq_q, seq_k, shift, left, right, qk_scale, softcap,
                step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, TAIL, LEFT, RIGHT,
                SOFTCAP, BIAS, BIAS_STEP, True, EVEN_K, PRECISION, ALIBI, 0, 0, False,
            )  # fmt: skip
        acc, l, m = attend(
            acc, l, m, q, k_at, v_at, bias, slopes, None, None, None, rows, full_begin, full_end,
            seq_q, seq_k, shift, left, right, qk_scale, softcap,
            step_k, step_v, stride_bm, stride_bn, HEAD_DIM, BLOCK_D, BLOCK_N, LEFT, RIGHT,
            SOFTCAP, BIAS, BIAS_STEP, False, EVEN_K, PRECISION, ALIBI, 0, 0, False,
        )  # fmt: skip

    if SINK and not SPLIT:
        acc, m, l = with_sink(acc, m, l, tl.load(sink_ptr + heads_of) * LOG2E)
    acc, lse = softmax_end(acc, m, l)
    lse_rows = (place * heads + heads_of) * total_q + first_q + rows
    if SPLIT:
        lse_rows += split.to(tl.int64) * partial_stride
        out_at = (out_ptr + lse_rows * HEAD_DIM)[:, None] + dims[None, :]
    else:
        out_at = (
            out_ptr
            + wide(place * stride_ob + heads_of * stride_oh + (first_q + rows) * stride_om, UNIT)
        )[:, None] + dims[None, :] * stride_od
    tl.store(lse_ptr + lse_rows, lse, mask=there)
    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=stored)


@triton.jit(do_not_specialize=UNSPECIALISED)
def combine_splits(
    partial_ptr, partial_lse_ptr, out_ptr, lse_ptr, sink_ptr, stride_ob, stride_oh, stride_om,
    stride_od, heads, total_q, splits, partial_stride, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr, SINK: tl.constexpr,
):  # fmt: skip
    """Combine the splits of one query of one head: the mean, weighted by their sums of weights.

    A split that sees no key has the log-sum-exp -inf and the weight 0.

    Source: arXiv 2311.01282, section 3.
    """
    row = tl.program_id(0).to(tl.int64)
    query, head, batch = row % total_q, row // total_q % heads, row // total_q // heads
    splits_at, dims = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    lses = tl.load(
        partial_lse_ptr + splits_at * partial_stride + row,
        mask=splits_at < splits,
        other=float("-inf"),
    )
    largest = tl.max(lses, 0)
    if SINK:
        sink = tl.load(sink_ptr + head)
        largest = tl.maximum(largest, sink)
    base = anchor(largest, True)
    weights = tl.exp2((lses - base) * LOG2E)
    total = tl.sum(weights, 0)
    if SINK:
        total += tl.exp2((sink - base) * LOG2E)
    at = partial_ptr + (splits_at[:, None] * partial_stride + row) * HEAD_DIM + dims[None, :]
    parts = tl.load(at, mask=(splits_at < splits)[:, None] & (dims < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(parts * weights[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(
        lse_ptr + row,
        tl.where(total == 0.0, float("-inf"), base + tl.log(tl.where(total == 0.0, 1.0, total))),
    )
    out_at = out_ptr + batch * stride_ob + head * stride_oh + query * stride_om + dims * stride_od
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)
