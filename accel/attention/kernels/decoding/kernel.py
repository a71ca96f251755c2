"""Compute attention of a few queries over long keys, in parts that the last program combines.

The query heads that share a key head, and the queries of a sequence, are the rows of one tile, so
that keys and values are read once. Head sizes over 128 that are no power of two are two parts, such
as 192 = 128 + 64. Scores are in base 2; `m` is a row's largest score so far, `l` the sum of its
weights.

Sources: FlashDecoding (pytorch.org/blog/flash-decoding); lean attention (arXiv 2405.10480).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.primitives.tiles.softmax import (
    LOG2E,
    advance,
    anchor,
    softmax_end,
    softmax_step,
    tanh,
)

_LIFT = tl.constexpr(16384.0)
"""Raises weights in fp16 before they are rounded; the smallest that are not lost are 4e-12."""


COUNTS = ("batch", "more", "keys", "table_width", "splits", "slots", "left")
"""Arguments of which it gains nothing to know that they are 1 or multiples of 16."""


@triton.jit
def share_out(
    lengths_ptr, more, batch, slots, left,
    QUERIES: tl.constexpr, TILE: tl.constexpr, FEWEST: tl.constexpr, BATCH: tl.constexpr,
    LEFT: tl.constexpr,
):  # fmt: skip
    """Divide sequences of different lengths among programs, in parts of about the same size.

    Returns:
        The sequence of this program, its number of keys, the number of its parts, which of them is
        this program's, and the number of all parts that come before: this program has nothing to
        do if the sequence does not exist.
    """
    number = tl.program_id(0)
    who = tl.arange(0, BATCH)
    exists = who < batch
    keys = tl.load(lengths_ptr + who, exists, 0).to(tl.int32) + more
    low = tl.zeros_like(keys)
    if LEFT:
        low = tl.maximum(keys - QUERIES - left, 0)
    tiles = tl.where(exists, tl.cdiv(keys - low, TILE), 0)
    most = tl.maximum(tl.cdiv(tl.sum(tiles, 0) * tl.num_programs(1), slots), FEWEST)
    for _ in tl.static_range(4):  # until all parts run at once, if they can
        parts = tl.sum(tl.cdiv(tiles, most), 0) * tl.num_programs(1)
        fit = (parts <= slots) | (batch * tl.num_programs(1) > slots)
        most = tl.where(fit, most, most * 5 // 4 + 1)
    counts = tl.where(exists, tl.maximum(tl.cdiv(tiles, most), 1), 0)
    ends = tl.cumsum(counts, 0)
    sequence = tl.sum((ends <= number).to(tl.int32), 0)
    mine = who == sequence
    count = tl.sum(tl.where(mine, counts, 0), 0)
    first = tl.sum(tl.where(mine, ends - counts, 0), 0)
    return sequence, tl.sum(tl.where(mine, keys, 0), 0), count, number - first


@triton.jit
def load_part(at, places, inside, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Load dimensions FIRST to FIRST + WIDTH - 1, of which those below SIZE exist, of vectors."""
    dims = FIRST + tl.arange(0, WIDTH)
    mask = inside[:, None]
    if FIRST + WIDTH > SIZE:
        mask = mask & (dims < SIZE)[None, :]
    return tl.load(at + places[:, None] + dims[None, :], mask=mask, other=0.0)


@triton.jit
def load_quantized(
    at, places, inside, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    QUARTETS: tl.constexpr,
):  # fmt: skip
    """Load FP8 or int8 as `load_part` does, as fp16, exactly.

    QUARTETS: strides and sizes are multiples of 4, and numbers are converted four at once. Words
    also keep the compiler from moving the conversion behind the way through shared memory, which
    transposes 16 bits at once but not 8.
    """
    if not QUARTETS:
        return load_part(at, places, inside, FIRST, WIDTH, SIZE).to(tl.float16)
    words = at.to(tl.pointer_type(tl.int32), bitcast=True)
    four = load_part(words, places // 4, inside, FIRST // 4, WIDTH // 4, SIZE // 4)
    if at.dtype.element_ty == tl.int8:
        # 1024 + (x + 128) is a number in fp16 whose low bits are those of x + 128.
        a, b, c, d = tl.inline_asm_elementwise(
            """{
            .reg .b32 t, low, high, off, base;
            xor.b32 t, $4, 0x80808080;
            mov.b32 off, 0x64806480;
            mov.b32 base, 0x64646464;
            prmt.b32 low, t, base, 0x4140;
            prmt.b32 high, t, base, 0x4342;
            sub.f16x2 low, low, off;
            sub.f16x2 high, high, off;
            mov.b32 {$0, $1}, low;
            mov.b32 {$2, $3}, high;
            }""",
            "=h,=h,=h,=h,r", [four], dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True, pack=1,
        )  # fmt: skip
    else:
        a, b, c, d = tl.inline_asm_elementwise(
            """{
            .reg .b16 first, second;
            .reg .b32 low, high;
            mov.b32 {first, second}, $4;
            cvt.rn.f16x2.e4m3x2 low, first;
            cvt.rn.f16x2.e4m3x2 high, second;
            mov.b32 {$0, $1}, low;
            mov.b32 {$2, $3}, high;
            }""",
            "=h,=h,=h,=h,r", [four], dtype=(tl.float16, tl.float16, tl.float16, tl.float16),
            is_pure=True, pack=1,
        )  # fmt: skip
    return tl.join(tl.join(a, c), tl.join(b, d)).reshape(places.shape[0], WIDTH)


@triton.jit
def load_vectors(
    at, places, inside, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
    QUANTIZED: tl.constexpr, QUARTETS: tl.constexpr,
):  # fmt: skip
    """Load a part of keys or values in a type that products take."""
    if QUANTIZED:
        return load_quantized(at, places, inside, FIRST, WIDTH, SIZE, QUARTETS)
    else:
        return load_part(at, places, inside, FIRST, WIDTH, SIZE)


@triton.jit
def store_part(at, x, places, inside, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr):
    """Store what `load_part` loads, in the type of the memory."""
    dims = FIRST + tl.arange(0, WIDTH)
    mask = inside[:, None]
    if FIRST + WIDTH > SIZE:
        mask = mask & (dims < SIZE)[None, :]
    tl.store(at + places[:, None] + dims[None, :], x.to(at.dtype.element_ty), mask=mask)


@triton.jit
def store_result(
    out_ptr, lse_ptr, acc, acc_rest, m, l, limit, sequence, head, first,
    stride_ob, stride_oh, stride_om,
    QUERIES: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, TILES: tl.constexpr,
    VALUES: tl.constexpr, MAIN: tl.constexpr, VREST: tl.constexpr,
):  # fmt: skip
    """Store the result of ROWS rows of a key head from `first` on, and their logarithms (base e).

    Rows from `limit` on are not stored.
    """
    number = first + tl.arange(0, ROWS)
    real = number < limit
    query, heads = number // GROUP, head * GROUP + number % GROUP
    at = sequence * stride_ob + heads.to(tl.int64) * stride_oh + query * stride_om
    out, lse = softmax_end(acc, m, l)
    store_part(out_ptr, out, at, real, 0, MAIN, VALUES)
    if VREST:
        rest, lse = softmax_end(acc_rest, m, l)
        store_part(out_ptr, rest, at, real, MAIN, VREST, VALUES)
    if lse_ptr is not None:
        every = tl.num_programs(1) // TILES * GROUP
        tl.store(lse_ptr + (sequence * every + heads) * QUERIES + query, lse, mask=real)


@triton.jit
def load_parts(
    partial_ptr, rows, there, FIRST: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr
):
    """Load what `store_part` stored of the rows [parts, rows], past the first cache.

    The programs that stored it ran on other processors.
    """
    dims = FIRST + tl.arange(0, WIDTH)
    mask = there[:, None, None] & (dims < SIZE)[None, None, :]
    at = partial_ptr + rows[:, :, None] * SIZE + dims[None, None, :]
    return tl.load(at, mask=mask, other=0.0, cache_modifier=".cg")


@triton.jit
def combine(
    out_ptr, lse_ptr, partial_ptr, sums_ptr, first, count, step, sequence, head, first_row,
    stride_ob, stride_oh, stride_om,
    QUERIES: tl.constexpr, GROUP: tl.constexpr, REAL: tl.constexpr, TILES: tl.constexpr,
    VALUES: tl.constexpr, MAIN: tl.constexpr, VREST: tl.constexpr, PARTS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    """Combine `count` parts of REAL rows, whose rows are `step` apart; store the result.

    PARTS places take every PARTS-th part each, so that only at the end something is summed across
    threads; the next parts are on their way.
    """
    part, row = tl.arange(0, PARTS), tl.arange(0, REAL)
    accs = tl.zeros([PARTS, REAL, MAIN], tl.float32)
    accs_rest = tl.zeros([PARTS, REAL, VREST if VREST else 16], tl.float32)
    sums = tl.zeros([PARTS, REAL], tl.float32)
    most = tl.full([PARTS, REAL], float("-inf"), tl.float32)
    for start in tl.range(0, count, PARTS, num_stages=AHEAD):
        there = start + part < count
        rows = (first + (start + part) * step)[:, None] + row[None, :]
        at = sums_ptr + 2 * rows
        highest = tl.load(at, there[:, None], float("-inf"), cache_modifier=".cg")
        total = tl.load(at + 1, there[:, None], 0.0, cache_modifier=".cg")
        found = load_parts(partial_ptr, rows, there, 0, MAIN, VALUES)
        higher, base = advance(most, highest, True)
        shrink, weights = tl.exp2(most - base), tl.exp2(highest - base)
        most = higher
        accs = accs * shrink[:, :, None] + found * weights[:, :, None]
        if VREST:
            found = load_parts(partial_ptr, rows, there, MAIN, VREST, VALUES)
            accs_rest = accs_rest * shrink[:, :, None] + found * weights[:, :, None]
        sums = sums * shrink + total * weights
    m = tl.max(most, 0)
    weights = tl.exp2(most - anchor(m, True)[None, :])
    acc = tl.sum(accs * weights[:, :, None], 0)
    acc_rest = tl.sum(accs_rest * weights[:, :, None], 0)
    l = tl.sum(sums * weights, 0)
    store_result(
        out_ptr, lse_ptr, acc, acc_rest, m, l, QUERIES * GROUP, sequence, head, first_row,
        stride_ob, stride_oh, stride_om, QUERIES, GROUP, REAL, TILES, VALUES, MAIN, VREST,
    )  # fmt: skip


@triton.jit(do_not_specialize=COUNTS)
def decode(
    q_ptr, k_ptr, v_ptr, k_scales_ptr, v_scales_ptr, tables_ptr, rows_ptr, lengths_ptr,
    out_ptr, lse_ptr, partial_ptr, sums_ptr, arrived_ptr,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh,
    stride_vn, stride_sb, stride_sh, stride_sn, stride_ob, stride_oh, stride_om,
    batch, more, keys, table_width, splits, slots, left, qk_scale, softcap,
    QUERIES: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, REAL: tl.constexpr,
    TILES: tl.constexpr, SIZE: tl.constexpr, VALUES: tl.constexpr, MAIN: tl.constexpr,
    REST: tl.constexpr, VREST: tl.constexpr, TILE: tl.constexpr, PAGE: tl.constexpr,
    SHARED: tl.constexpr, CAUSAL: tl.constexpr, LEFT: tl.constexpr, SOFTCAP: tl.constexpr,
    DYNAMIC: tl.constexpr, JOINED: tl.constexpr, BATCH: tl.constexpr, FEWEST: tl.constexpr,
    PARTS: tl.constexpr, AHEAD: tl.constexpr, ALIKE: tl.constexpr, FAR: tl.constexpr,
    QUANTIZED: tl.constexpr, QUARTETS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Attend with the rows of one tile of one key head of one sequence to one part of its keys.

    The grid is (parts of all sequences, key heads * TILES). Keys lie at sequence * stride_kb + key
    * stride_kn, or with PAGE in pages, whose numbers are in `tables` [rows, table_width]. SHARED:
    the values are the first dimensions of the keys (MLA). With DYNAMIC a sequence has its number in
    `lengths` plus `more` keys, and `share_out` divides them; otherwise all have `keys`, in
    `splits` parts. `arrived` is 0 before and after. EARLY: the kernel may begin before the one
    before it has ended, for which it waits. ALIKE: keys and values have the same strides; FAR:
    their elements are further apart than a number of 32 bits says.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    if DYNAMIC:
        sequence, length, count, part = share_out(
            lengths_ptr, more, batch, slots, left, QUERIES, TILE, FEWEST, BATCH, LEFT
        )
        if sequence >= batch:
            return
    else:
        sequence, part = tl.program_id(0) // splits, tl.program_id(0) % splits
        length, count = keys, splits
    low = 0
    if LEFT:
        low = tl.maximum(length - QUERIES - left, 0)
    span = tl.cdiv(tl.cdiv(length - low, TILE), count) * TILE
    begin = low + part * span
    end = tl.minimum(length, begin + span)

    head, tile = tl.program_id(1) // TILES, tl.program_id(1) % TILES
    row = tl.arange(0, ROWS)
    number = tile * ROWS + row
    query, heads_of = number // GROUP, head * GROUP + number % GROUP
    real = number < QUERIES * GROUP
    place = sequence.to(tl.int64)
    q_at = place * stride_qb + heads_of.to(tl.int64) * stride_qh + query * stride_qm
    q = load_part(q_ptr, q_at, real, 0, MAIN, SIZE)
    q_rest = q
    if REST:
        q_rest = load_part(q_ptr, q_at, real, MAIN, REST, SIZE)
    scale = tl.full([ROWS], 1.0, tl.float32) * qk_scale
    if QUANTIZED:
        largest = tl.max(tl.abs(q.to(tl.float32)), 1)
        if REST:
            largest = tl.maximum(largest, tl.max(tl.abs(q_rest.to(tl.float32)), 1))
        largest = tl.where(largest == 0.0, 1.0, largest)  # a row of NaN stays NaN
        scale *= largest
        q = (q.to(tl.float32) / largest[:, None]).to(tl.float16)
        if REST:
            q_rest = (q_rest.to(tl.float32) / largest[:, None]).to(tl.float16)
    table = tables_ptr
    k_at, v_at = k_ptr + head.to(tl.int64) * stride_kh, v_ptr + head.to(tl.int64) * stride_vh
    if PAGE:
        line = place
        if rows_ptr is not None:
            line = tl.load(rows_ptr + sequence).to(tl.int64)
        table += line * table_width
    else:
        k_at += place * stride_kb
        v_at += place * stride_vb

    acc = tl.zeros([ROWS, MAIN], tl.float32)
    acc_rest = tl.zeros([ROWS, VREST if VREST else 16], tl.float32)
    l = tl.zeros([ROWS], tl.float32)
    m = tl.full([ROWS], float("-inf"), tl.float32)
    for j in range(begin, end, TILE):
        key = j + tl.arange(0, TILE)
        inside = key < end
        if PAGE:
            page = tl.load(table + key // PAGE, inside, 0)
            page = page.to(tl.int64) if FAR else page
            within = key % PAGE
            k_places = page * stride_kb + within * stride_kn
            v_places = k_places if ALIKE else page * stride_vb + within * stride_vn
            s_places = page * stride_sb + within * stride_sn + head * stride_sh
        else:
            far = key.to(tl.int64) if FAR else key
            k_places = far * stride_kn
            v_places = k_places if ALIKE else far * stride_vn
            s_places = place * stride_sb + key * stride_sn + head * stride_sh
        k = load_vectors(k_at, k_places, inside, 0, MAIN, SIZE, QUANTIZED, QUARTETS)
        scores = tl.dot(q, tl.trans(k))
        if REST:
            k_rest = load_vectors(k_at, k_places, inside, MAIN, REST, SIZE, QUANTIZED, QUARTETS)
            scores = tl.dot(q_rest, tl.trans(k_rest), scores)
        scores *= scale[:, None]
        if QUANTIZED:
            scores *= tl.load(k_scales_ptr + s_places, inside, 0.0)[None, :]
        if SOFTCAP:
            scores = (softcap * LOG2E) * tanh(scores)
        seen = inside[None, :]
        if CAUSAL and QUERIES > 1:
            seen = seen & (key[None, :] <= (length - QUERIES + query)[:, None])
        if LEFT:
            seen = seen & (key[None, :] >= (length - QUERIES - left + query)[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        p, m, l, shrink = softmax_step(scores, m, l, 1.0)
        if QUANTIZED:
            # Weights times scales are rounded to fp16 in parts of the tile's largest scale.
            v_scales = tl.load(v_scales_ptr + s_places, inside, 0.0)
            largest_scale = tl.max(v_scales, 0)
            unit = tl.where(largest_scale == 0.0, 1.0, largest_scale) / _LIFT
            p = p * (v_scales / unit)[None, :]
        acc, acc_rest = acc * shrink[:, None], acc_rest * shrink[:, None]
        v = k
        if not SHARED:
            v = load_vectors(v_at, v_places, inside, 0, MAIN, VALUES, QUANTIZED, QUARTETS)
        if QUANTIZED:
            acc += tl.dot(p.to(q.dtype), v) * unit
        else:
            acc = tl.dot(p.to(q.dtype), v, acc)
        if VREST:
            v_rest = load_vectors(v_at, v_places, inside, MAIN, VREST, VALUES, QUANTIZED, QUARTETS)
            if QUANTIZED:
                acc_rest += tl.dot(p.to(q.dtype), v_rest) * unit
            else:
                acc_rest = tl.dot(p.to(q.dtype), v_rest, acc_rest)

    whole = tl.where(count == 1, QUERIES * GROUP, 0)
    store_result(
        out_ptr, lse_ptr, acc, acc_rest, m, l, whole, place, head, tile * ROWS,
        stride_ob, stride_oh, stride_om, QUERIES, GROUP, ROWS, TILES, VALUES, MAIN, VREST,
    )  # fmt: skip
    if JOINED:  # noqa: SIM102 - only this is known when the kernel is compiled
        if count > 1:
            step = tl.num_programs(1) * REAL
            mine = (tl.program_id(0) * step + tl.program_id(1) * REAL).to(tl.int64)
            kept = row < REAL
            store_part(partial_ptr, acc, (mine + row) * VALUES, kept, 0, MAIN, VALUES)
            if VREST:
                store_part(partial_ptr, acc_rest, (mine + row) * VALUES, kept, MAIN, VREST, VALUES)
            tl.store(sums_ptr + 2 * (mine + row), m, kept)
            tl.store(sums_ptr + 2 * (mine + row) + 1, l, kept)
            tl.debug_barrier()  # all threads have stored before one of them tells
            counter = arrived_ptr + sequence * tl.num_programs(1) + tl.program_id(1)
            if tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") == count - 1:
                tl.store(counter, 0)
                combine(
                    out_ptr, lse_ptr, partial_ptr, sums_ptr, mine - part * step, count, step,
                    place, head, tile * ROWS, stride_ob, stride_oh, stride_om,
                    QUERIES, GROUP, REAL, TILES, VALUES, MAIN, VREST, PARTS,
                    AHEAD,
                )  # fmt: skip


@triton.jit(do_not_specialize=["splits"])
def join(
    out_ptr, lse_ptr, partial_ptr, sums_ptr, splits, stride_ob, stride_oh,
    HEADS: tl.constexpr, REAL: tl.constexpr, VALUES: tl.constexpr, PARTS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Combine parts that another kernel left: partial results [sequences, splits, HEADS, VALUES].

    The grid is (sequences, HEADS / REAL). EARLY: it begins while that kernel ends, for which it
    waits.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    sequence = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * REAL
    combine(
        out_ptr, lse_ptr, partial_ptr, sums_ptr, sequence * splits * HEADS + row, splits, HEADS,
        sequence, 0, row, stride_ob, stride_oh, 0,
        1, HEADS, REAL, HEADS // REAL, VALUES, VALUES, 0, PARTS, 2,
    )  # fmt: skip
