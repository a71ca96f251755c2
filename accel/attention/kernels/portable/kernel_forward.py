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
def hide(scores, rows, cols, bounds, FORM: tl.constexpr, EVEN_K: tl.constexpr):
    """Return the scores, -inf where the queries `rows` do not see the keys `cols`.

    The two broadcast together. `bounds` are the numbers of queries and keys, the position of the
    first query, and the window.
    """
    _, seq_k, shift, left, right = bounds
    if FORM.left:
        scores = tl.where(cols >= rows + (shift - left), scores, float("-inf"))
    if FORM.right:
        scores = tl.where(cols <= rows + (shift + right), scores, float("-inf"))
    if not EVEN_K:
        scores = tl.where(cols < seq_k, scores, float("-inf"))
    return scores


@triton.jit
def hint(number, UNIT: tl.constexpr):
    """Return the same number, of which the compiler then knows that UNIT divides it.

    It knows only whether an argument is a multiple of 16, and loads one element at a time where it
    knows nothing.
    """
    return number // UNIT * UNIT


@triton.jit
def row_at(ptr, strides, batch, head, row, UNIT: tl.constexpr):
    """Return the address of rows of a head, of which the compiler then knows that UNIT divides
    it."""
    return ptr + hint(batch * strides.batch + head * strides.head + row * strides.row, UNIT)


@triton.jit
def add_bias(scores, bias, strides, rows, cols, bounds, FORM: tl.constexpr, ALL: tl.constexpr):
    """Return scores in base 2 plus an additive bias, or hidden where a boolean one is False.

    `bias` points at this head's bias, which is the same for all queries if its rows have no stride,
    and for all keys if its elements have none. ALL means that all of `cols` exist.
    """
    seq_q, seq_k = bounds[0], bounds[1]
    at = bias
    if strides.row is not None:  # rows past the last read that one, which saves a mask
        at += tl.minimum(rows, seq_q - 1).to(tl.int64) * hint(strides.row, FORM.bias_step)
    if strides.element is not None:
        at += cols.to(tl.int64) * strides.element
    if ALL or strides.element is None:
        added = tl.load(at)
    else:
        end = tl.cdiv(seq_k, FORM.bias_step) * FORM.bias_step
        added = tl.load(at, mask=cols < end, other=0)
    if FORM.bias == "bool":
        return tl.where(added != 0, scores, float("-inf"))
    return scores + added.to(tl.float32) * LOG2E


@triton.jit
def add_alibi(scores, rows, cols, shift, slope):
    """Return scores in base 2 plus ALiBi: slope x (key - position of the query)."""
    return scores + (slope * LOG2E) * (cols - rows - shift).to(tl.float32)


@triton.jit
def find_listed(at, listed_blocks, SIZE: tl.constexpr):
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
    state, q, rows, k_at, v_at, bounds, scaling, bias, bias_strides, slopes, lists, begin, end,
    steps, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
    FORM: tl.constexpr, MASKED: tl.constexpr, EVEN_K: tl.constexpr, ROWS: tl.constexpr,
    COLS: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    """Add the keys `begin` to `end` - 1 to the state, (acc, l, m); with COLS, those are counted
    within the blocks of `lists`.

    `bounds` is as `hide` takes it, `scaling` the factor of the scores and the softcap, `steps` the
    strides of keys and values. MASKED means that some keys may be hidden or past the end of the
    sequence, BITS that bits hide some.
    """
    acc, l, m = state
    seq_k, shift = bounds[1], bounds[2]
    qk_scale, softcap = scaling
    ALL: tl.constexpr = EVEN_K or not MASKED
    positions = tl.arange(0, BLOCK_N)
    for at in range(begin, end, BLOCK_N):
        start = at
        if COLS:
            start = find_listed(at, lists[0], COLS)
        cols = tl.max_contiguous(tl.multiple_of(start + positions, BLOCK_N), BLOCK_N)
        block = tl.cast(start, tl.int64)
        k = load_vectors(k_at + block * steps[0], cols, seq_k, HEAD_DIM, BLOCK_D, ALL)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        if FORM.softcap:
            scores = (softcap * LOG2E) * tanh(scores * qk_scale)
        elif FORM.bias is not None or MASKED or FORM.alibi or BITS:
            scores = scores * qk_scale
        if FORM.alibi:
            scores = add_alibi(scores, rows[:, None], cols[None, :], shift, slopes[:, None])
        if FORM.bias is not None:
            scores = add_bias(
                scores, bias, bias_strides, rows[:, None], cols[None, :], bounds, FORM, ALL
            )
        if MASKED:
            scores = hide(scores, rows[:, None], cols[None, :], bounds, FORM, EVEN_K)
        if BITS:
            scores = hide_by_bits(
                scores, lists[2], lists[1], at, rows[:, None], cols[None, :], ROWS, COLS, COLS
            )
        if FORM.softcap or FORM.bias is not None or MASKED or FORM.alibi or BITS:
            p, m, l, shrink = softmax_step(scores, m, l, 1.0)
        else:
            p, m, l, shrink = softmax_step(scores, m, l, qk_scale, BLIND=False)
        acc = acc * shrink[:, None]
        v = load_vectors(v_at + block * steps[1], cols, seq_k, HEAD_DIM, BLOCK_D, ALL)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return acc, l, m


@triton.jit
def extent(
    first, last, shift, left, right, seq_k, LEFT: tl.constexpr, RIGHT: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
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
def add_sink(acc, m, l, sink):
    """Take a last score of each row into the softmax, to which no value belongs.

    `sink` and `m` are in base 2, and broadcast together.
    """
    new, base = advance(m, sink, True)
    shrink = tl.exp2(m - base)
    return acc * shrink[:, None], new, l * shrink + tl.exp2(sink - base)


@triton.jit(do_not_specialize=UNSPECIALISED)
def attention_forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sink_ptr, bias_ptr, starts_q_ptr, starts_k_ptr,
    slopes_ptr, counts_ptr, lists_ptr, numbers_ptr, bits_ptr, q_strides, k_strides, v_strides,
    out_strides, bias_strides, tiles, units, heads, group, seq_q, seq_k, total_q, left, right,
    qk_scale, softcap, chunk, partial_stride, slopes_batch, lists_batch, lists_head, lists_width,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    TAIL: tl.constexpr, PACK: tl.constexpr, FORM: tl.constexpr, SPLIT: tl.constexpr,
    EVEN_K: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SINK: tl.constexpr,
    UNIT: tl.constexpr,
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
    if FORM.right:
        tile = tiles - 1 - tile  # the longest first
    place, first_q, first_k = batch.to(tl.int64), tl.cast(0, tl.int64), tl.cast(0, tl.int64)
    if FORM.ragged:
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
    step_k, step_v = hint(k_strides.row, UNIT), hint(v_strides.row, UNIT)
    of_q = place * q_strides.batch + heads_of * q_strides.head
    q_at = q_ptr + hint(of_q + (first_q + rows) * q_strides.row, UNIT)
    stored = there[:, None] & (dims < HEAD_DIM)[None, :]
    q = tl.load(q_at[:, None] + dims[None, :] * q_strides.element, mask=stored, other=0.0)
    k_row = row_at(k_ptr, k_strides, place, kv_head, first_k, UNIT)
    v_row = row_at(v_ptr, v_strides, place, kv_head, first_k, UNIT)
    k_at = k_row + (steps[:, None] * step_k + dims[None, :] * k_strides.element)
    v_at = v_row + (steps[:, None] * step_v + dims[None, :] * v_strides.element)
    bounds, scaling = (seq_q, seq_k, shift, left, right), (qk_scale, softcap)
    bias = bias_ptr
    if FORM.bias is not None:
        first_bias = place * bias_strides.batch + head.to(tl.int64) * bias_strides.head
        bias += hint(first_bias, FORM.bias_step)
    slopes = 0.0
    if FORM.alibi:
        slopes = tl.load(slopes_ptr + place * slopes_batch + heads_of)

    state = (
        tl.zeros([BLOCK_M, BLOCK_D], tl.float32),
        tl.zeros([BLOCK_M], tl.float32),
        tl.full([BLOCK_M], float("-inf"), tl.float32),
    )
    strides = (step_k, step_v)
    if COLS:
        row = place * lists_batch + head.to(tl.int64) * lists_head + tile * BLOCK_M // ROWS
        whole = tl.load(counts_ptr + 2 * row)
        blocks = lists_ptr + row * lists_width
        numbers = numbers_ptr + row * lists_width
        state = attend(
            state, q, rows, k_at, v_at, bounds, scaling, bias, bias_strides, slopes,
            (blocks + whole, numbers + whole, bits_ptr), 0,
            tl.load(counts_ptr + 2 * row + 1) * COLS, strides, HEAD_DIM, BLOCK_D, BLOCK_N, FORM,
            not EVEN_K, EVEN_K, ROWS, COLS, True,
        )  # fmt: skip
        state = attend(
            state, q, rows, k_at, v_at, bounds, scaling, bias, bias_strides, slopes,
            (blocks, numbers, bits_ptr), 0, whole * COLS, strides, HEAD_DIM, BLOCK_D, BLOCK_N,
            FORM, not EVEN_K, EVEN_K, ROWS, COLS, False,
        )  # fmt: skip
    else:
        last = tl.minimum(((tile + 1) * BLOCK_M - 1) // PACK, seq_q - 1)
        begin, full_begin, full_end, end = extent(
            tile * BLOCK_M // PACK, last, shift, left, right, seq_k, FORM.left, FORM.right, BLOCK_N
        )
        if SPLIT:
            begin = tl.maximum(begin, split * chunk)
            end = tl.minimum(end, (split + 1) * chunk)
        full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
        full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
        # The whole blocks last: were they first, ptxas would make every wgmma wait for the one
        # before it (its note C7515).
        if FORM.left:
            state = attend(
                state, q, rows, k_at, v_at, bounds, scaling, bias, bias_strides, slopes, None,
                begin, full_begin, strides, HEAD_DIM, BLOCK_D, BLOCK_N, FORM, True, EVEN_K, 0, 0,
                False,
            )  # fmt: skip
        if FORM.left or FORM.right or not EVEN_K:
            k_few = k_row + (few[:, None] * step_k + dims[None, :] * k_strides.element)
            v_few = v_row + (few[:, None] * step_v + dims[None, :] * v_strides.element)
            state = attend(
                state, q, rows, k_few, v_few, bounds, scaling, bias, bias_strides, slopes, None,
                full_end, end, strides, HEAD_DIM, BLOCK_D, TAIL, FORM, True, EVEN_K, 0, 0, False,
            )  # fmt: skip
        state = attend(
            state, q, rows, k_at, v_at, bounds, scaling, bias, bias_strides, slopes, None,
            full_begin, full_end, strides, HEAD_DIM, BLOCK_D, BLOCK_N, FORM, False, EVEN_K, 0, 0,
            False,
        )  # fmt: skip

    acc, l, m = state
    if SINK and not SPLIT:
        acc, m, l = add_sink(acc, m, l, tl.load(sink_ptr + heads_of) * LOG2E)
    acc, lse = softmax_end(acc, m, l)
    lse_rows = (place * heads + heads_of) * total_q + first_q + rows
    if SPLIT:
        lse_rows += split.to(tl.int64) * partial_stride
        out_at = (out_ptr + lse_rows * HEAD_DIM)[:, None] + dims[None, :]
    else:
        of_out = place * out_strides.batch + heads_of * out_strides.head
        out_row = out_ptr + hint(of_out + (first_q + rows) * out_strides.row, UNIT)
        out_at = out_row[:, None] + dims[None, :] * out_strides.element
    tl.store(lse_ptr + lse_rows, lse, mask=there)
    tl.store(out_at, acc.to(out_ptr.dtype.element_ty), mask=stored)


@triton.jit(do_not_specialize=UNSPECIALISED)
def combine_splits(
    partial_ptr, partial_lse_ptr, out_ptr, lse_ptr, sink_ptr, out_strides, heads, total_q, splits,
    partial_stride, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_S: tl.constexpr,
    SINK: tl.constexpr,
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
    out_at = row_at(out_ptr, out_strides, batch, head, query, 1) + dims * out_strides.element
    tl.store(out_at, out.to(out_ptr.dtype.element_ty), mask=dims < HEAD_DIM)
