"""Triton kernels for the parts of a transformer on a GPU.

Matrices are read once for a token of few sequences, so the memory's rate sets their speed. `gpu`
launches them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from accel.primitives.tiles.softmax import softmax_step


@triton.jit
def after_others(EARLY: tl.constexpr):
    """Let the next kernel begin, and wait for the one before, if kernels may begin early.

    What a kernel loads before it does this was not written by the kernel before.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def norm_rows(
    x, part, weight, total, out, width, eps,
    ADDS: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Divide each row of x (plus part) by its root mean square, times weight."""
    after_others(EARLY)
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, WIDE)
    inside = at < width
    value = tl.load(x + row + at, inside, 0.0).to(tl.float32)
    if ADDS:
        value += tl.load(part + row + at, inside, 0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + row + at, rounded, inside)
        value = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    made = value * scale * tl.load(weight + at, inside, 0.0)
    tl.store(out + row + at, made.to(out.dtype.element_ty), inside)


@triton.jit
def activated(gate, GELU: tl.constexpr):
    """Return the activation of a gate."""
    if GELU:
        gate = gate * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * gate * gate * gate))
    else:
        gate = gate * tl.sigmoid(gate)
    return gate


@triton.jit
def gate_rows(x, out, width, GELU: tl.constexpr, WIDE: tl.constexpr, EARLY: tl.constexpr):
    """Compute act(gate) * up of rows [2 width] of a gate and an up."""
    after_others(EARLY)
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    inside = at < width
    gate = tl.load(x + 2 * row * width + at, inside, 0.0).to(tl.float32)
    up = tl.load(x + (2 * row + 1) * width + at, inside, 0.0).to(tl.float32)
    made = activated(gate, GELU) * up
    tl.store(out + row * width + at, made.to(out.dtype.element_ty), inside)


@triton.jit
def turn_and_store(
    qkv,
    cos,
    sin,
    query_norm,
    key_norm,
    slots,
    q,
    keys,
    values,
    key_scales,
    value_scales,
    heads,
    kv_heads,
    eps,
    D: tl.constexpr,
    HALF: tl.constexpr,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    NORMS: tl.constexpr,
    MOST: tl.constexpr,
    ROUNDS: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Normalize and rotate one head's vector of one token; store it as a query, key or value.

    A vector is its first HALF numbers, the HALF that they are turned with, and the rest. MOST is
    the largest number of a quantized cache; 0: it is not quantized.
    """
    after_others(EARLY)
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at, beyond = tl.arange(0, WIDE), 2 * HALF + tl.arange(0, REST)
    inside, rest_inside = at < HALF, beyond < D
    source = qkv + (token * (heads + 2 * kv_heads) + head) * D
    first = tl.load(source + at, inside, 0.0).to(tl.float32)
    second = tl.load(source + HALF + at, inside, 0.0).to(tl.float32)
    rest = tl.load(source + beyond, rest_inside, 0.0).to(tl.float32)
    is_value = head >= heads + kv_heads
    if not is_value:
        if NORMS:
            weight = query_norm
            if head >= heads:
                weight = key_norm
            total = tl.sum(first * first, 0) + tl.sum(second * second, 0) + tl.sum(rest * rest, 0)
            scale = 1.0 / tl.sqrt(total / D + eps)
            first *= scale * tl.load(weight + at, inside, 0.0)
            second *= scale * tl.load(weight + HALF + at, inside, 0.0)
            rest *= scale * tl.load(weight + beyond, rest_inside, 0.0)
        if HALF > 0:
            turn_cos = tl.load(cos + token * HALF + at, inside, 1.0)
            turn_sin = tl.load(sin + token * HALF + at, inside, 0.0)
            turned = first * turn_cos - second * turn_sin
            second = second * turn_cos + first * turn_sin
            first = turned
    if head < heads:
        asked = q + (token * heads + head) * D
        tl.store(asked + at, first.to(q.dtype.element_ty), inside)
        tl.store(asked + HALF + at, second.to(q.dtype.element_ty), inside)
        tl.store(asked + beyond, rest.to(q.dtype.element_ty), rest_inside)
    else:
        place = tl.load(slots + token) * kv_heads + (head - heads) % kv_heads
        if MOST > 0:
            largest = tl.maximum(tl.max(tl.abs(first), 0), tl.max(tl.abs(second), 0))
            scale = tl.maximum(tl.maximum(largest, tl.max(tl.abs(rest), 0)), 1e-30) / MOST
            first, second, rest = first / scale, second / scale, rest / scale
            if ROUNDS:
                first = tl.floor(first + 0.5)
                second = tl.floor(second + 0.5)
                rest = tl.floor(rest + 0.5)
            if is_value:
                tl.store(value_scales + place, scale)
            else:
                tl.store(key_scales + place, scale)
        target = keys + place * D
        if is_value:
            target = values + place * D
        tl.store(target + at, first.to(keys.dtype.element_ty), inside)
        tl.store(target + HALF + at, second.to(keys.dtype.element_ty), inside)
        tl.store(target + beyond, rest.to(keys.dtype.element_ty), rest_inside)


@triton.jit
def take_in(
    query,
    keys,
    values,
    key_scales,
    value_scales,
    place,
    inside,
    seen,
    scale,
    softcap,
    highest,
    total,
    result,
    D: tl.constexpr,
    WIDE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """Take a tile of keys and values into the sums of some queries; return the new sums.

    The keys are at `place` if they are `inside`; `seen` says which query sees which.
    """
    at = tl.arange(0, WIDE)
    mask = inside[:, None] & (at < D)[None, :]
    vectors = tl.load(keys + place[:, None] * D + at[None, :], mask, 0.0).to(query.dtype)
    score = tl.dot(query, tl.trans(vectors)) * scale
    if QUANTIZED:
        score *= tl.load(key_scales + place, inside, 0.0)[None, :]
    if CAPPED:
        score = softcap * (2 * tl.sigmoid(2 * score / softcap) - 1)
    score = tl.where(seen, score, float("-inf"))  # a query may have seen no key so far
    shares, higher, total, fade = softmax_step(score, highest, total, 1.0, True, True)
    vectors = tl.load(values + place[:, None] * D + at[None, :], mask, 0.0).to(query.dtype)
    if QUANTIZED:
        shares *= tl.load(value_scales + place, inside, 0.0)[None, :]
    result = tl.dot(shares.to(query.dtype), vectors, result * fade[:, None])
    return higher, total, result


@triton.jit
def attend_prompts(
    q,
    keys,
    values,
    key_scales,
    value_scales,
    tiles,
    tables,
    out,
    kv_heads,
    window,
    scale,
    softcap,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    D: tl.constexpr,
    WIDE: tl.constexpr,
    TILE: tl.constexpr,
    QUANTIZED: tl.constexpr,
    CAPPED: tl.constexpr,
):
    """Attend with all query heads of one key head, and some tokens of a prompt.

    A tile [4] is its first token, its number of tokens, the position of the first, and where its
    sequence's blocks begin in the tables.
    """
    tile = tiles + 4 * tl.program_id(0)
    token, count, start = tl.load(tile), tl.load(tile + 1), tl.load(tile + 2)
    table, head = tables + tl.load(tile + 3), tl.program_id(1)
    row, at = tl.arange(0, QUERIES * PADDED), tl.arange(0, WIDE)
    number, group = row // PADDED, row % PADDED
    real = ((number < count) & (group < GROUP))[:, None] & (at < D)[None, :]
    first = ((token + number).to(tl.int64) * kv_heads + head) * GROUP + group
    query = tl.load(q + first[:, None] * D + at[None, :], real, 0.0)
    position = start + number
    end = start + count
    begin = 0
    if window > 0:
        begin = tl.maximum(start + 1 - window, 0) // TILE * TILE
    highest = tl.full([QUERIES * PADDED], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES * PADDED], tl.float32)
    result = tl.zeros([QUERIES * PADDED, WIDE], tl.float32)
    for j in range(begin, end, TILE):
        key = j + tl.arange(0, TILE)
        inside = key < end
        block = tl.load(table + key // BLOCK, inside, 0).to(tl.int64)
        place = (block * BLOCK + key % BLOCK) * kv_heads + head
        seen = key[None, :] <= position[:, None]
        if window > 0:
            seen &= key[None, :] > position[:, None] - window
        highest, total, result = take_in(
            query, keys, values, key_scales, value_scales, place, inside, seen & inside[None, :],
            scale, softcap, highest, total, result, D, WIDE, QUANTIZED, CAPPED,
        )  # fmt: skip
    made = (result / tl.maximum(total, 1e-30)[:, None]).to(out.dtype.element_ty)
    tl.store(out + first[:, None] * D + at[None, :], made, real)


@triton.jit
def fetched(rows, LANES: tl.constexpr):
    """Fetch the first 1,024 bytes of rows [ROWS] into the second cache."""
    lines = tl.arange(0, 8) * (8 * LANES)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [rows[:, None] + lines[None, :]],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def multiply_one(
    weights,
    scales,
    bias,
    x,
    out,
    rows,
    depth,
    groups,
    half,
    FORMAT: tl.constexpr,
    BIASED: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
    STAGES: tl.constexpr,
    GATE: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute a few rows of a matrix times one vector.

    FORMAT is 0: dense; 1: int8 with a scale a row; 2: FP8 with a scale for 128 x 128, of which
    ROWS is a divisor. A thread multiplies LANES neighbours at once. With GATE, `gelu` or `silu`,
    the matrix is a gate of `half` rows and an up of as many, and the result is act(gate) * up. The
    first weights are fetched into the second cache while the kernel before this one still runs.
    """
    first = tl.program_id(0) * ROWS
    if GATE is not None:
        made = product_rows(
            weights, scales, bias, x, first, half, depth, groups, FORMAT, BIASED, ROWS, DEPTH,
            LANES, STAGES, EARLY,
        )  # fmt: skip
        up = product_rows(
            weights, scales, bias, x, half + first, rows, depth, groups, FORMAT, BIASED, ROWS,
            DEPTH, LANES, STAGES, False,
        )  # fmt: skip
        # The two are rounded as what a product of its own would store.
        made = made.to(out.dtype.element_ty).to(tl.float32)
        made = activated(made, GATE == "gelu") * up.to(out.dtype.element_ty).to(tl.float32)
        limit = half
    else:
        made = product_rows(
            weights, scales, bias, x, first, rows, depth, groups, FORMAT, BIASED, ROWS, DEPTH,
            LANES, STAGES, EARLY,
        )  # fmt: skip
        limit = rows
    row = first + tl.arange(0, ROWS)
    tl.store(out + row, made.to(out.dtype.element_ty), row < limit)


@triton.jit
def product_rows(
    weights, scales, bias, x, first, rows, depth, groups,
    FORMAT: tl.constexpr, BIASED: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
    LANES: tl.constexpr, STAGES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Return ROWS rows from `first` on of a matrix times one vector; see `multiply_one`."""
    row = first + tl.arange(0, ROWS)
    exists = row < rows
    lanes = tl.arange(0, DEPTH // LANES) * LANES
    at = lanes[:, None] + tl.arange(0, LANES)[None, :]
    place = weights + row.to(tl.int64)[:, None, None] * depth + at[None, :, :]
    given = exists[:, None, None]
    if EARLY:
        fetched(weights + row.to(tl.int64) * depth, LANES)
    after_others(EARLY)
    total = tl.zeros([ROWS, DEPTH // LANES], tl.float32)
    for start in tl.range(0, depth, DEPTH, num_stages=STAGES):
        inside = start + at < depth
        values = tl.load(place + start, given & inside[None, :, :], 0.0)
        vector = tl.load(x + start + at, inside, 0.0).to(tl.float32)
        part = tl.sum(values.to(tl.float32) * vector[None, :, :], 2)
        if FORMAT == 2:
            tile = (first // 128) * groups + (start + lanes) // 128
            part *= tl.load(scales + tile, start + lanes < depth, 0.0)[None, :]
        total += part
    made = tl.sum(total, 1)
    if FORMAT == 1:
        made *= tl.load(scales + row, exists, 0.0)
    if BIASED:
        made += tl.load(bias + row, exists, 0.0)
    return made


@triton.jit
def multiply_few(
    weights,
    scales,
    bias,
    x,
    out,
    tokens,
    rows,
    depth,
    groups,
    FORMAT: tl.constexpr,
    BIASED: tl.constexpr,
    TOKENS: tl.constexpr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute a block of rows of a quantized matrix times a few vectors.

    DEPTH is 128 for FP8.
    """
    after_others(EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    exists, given = row < rows, token < tokens
    wide = row.to(tl.int64)
    total = tl.zeros([TOKENS, ROWS], tl.float32)
    for start in range(0, depth, DEPTH):
        at = start + tl.arange(0, DEPTH)
        vectors = tl.load(
            x + token[:, None].to(tl.int64) * depth + at[None, :],
            given[:, None] & (at < depth)[None, :],
            0.0,
        )
        mask = exists[:, None] & (at < depth)[None, :]
        values = tl.load(weights + wide[:, None] * depth + at[None, :], mask, 0.0)
        product = tl.dot(vectors, tl.trans(values.to(vectors.dtype)))
        if FORMAT == 2:
            tile = (tl.program_id(0) * ROWS // 128) * groups + start // 128
            product *= tl.load(scales + tile)
        total += product
    if FORMAT == 1:
        total *= tl.load(scales + row, exists, 0.0)[None, :]
    if BIASED:
        total += tl.load(bias + row, exists, 0.0)[None, :]
    place = token[:, None].to(tl.int64) * rows + row[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), given[:, None] & exists[None, :])
