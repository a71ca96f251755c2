"""Triton kernels for the parts of a transformer on a GPU.

Matrices are read once for a token of few sequences, so the memory's rate sets their speed. `gpu`
launches them.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.primitives.tiles.softmax import softmax_step


@triton.jit
def after_others(EARLY: tl.constexpr):
    """Let the next kernel begin, and wait for the one before, if kernels may begin early.

    What a kernel loads before it does this was not written by the kernel before.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def norm_rows(x, weight, out, width, eps, WIDE: tl.constexpr, EARLY: tl.constexpr):
    """Divide each row of x by its root mean square, times weight."""
    after_others(EARLY)
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, WIDE)
    inside = at < width
    value = tl.load(x + row + at, inside, 0.0).to(tl.float32)
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
        place = tl.load(slots + token).to(tl.int64) * kv_heads + (head - heads) % kv_heads
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
def load_rows(weights, row, rows, start, depth, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """Load a part [ROWS, DEPTH / LANES, LANES] of some rows; a thread has LANES neighbours."""
    at = tl.arange(0, DEPTH // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    place = weights + row.to(tl.int64)[:, None, None] * depth + (start + at)[None, :, :]
    return tl.load(place, (row < rows)[:, None, None] & (start + at < depth)[None, :, :], 0.0)


@triton.jit
def load_vector(x, start, depth, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """Load a part [DEPTH / LANES, LANES] of a vector, in fp32."""
    at = start + tl.arange(0, DEPTH // LANES)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    return tl.load(x + at, at < depth, 0.0).to(tl.float32)


@triton.jit
def product_rows(
    weights, scales, x, row, rows, depth, groups, FORMAT: tl.constexpr, ROWS: tl.constexpr,
    DEPTH: tl.constexpr, LANES: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Return rows [ROWS] of a matrix times one vector, DEPTH numbers at once.

    Weights are on their way before they are needed: the first ones while the kernel before this one
    still runs.
    """
    values = load_rows(weights, row, rows, 0, depth, DEPTH, LANES)
    after_others(EARLY)
    total = tl.zeros([ROWS, DEPTH // LANES], tl.float32)
    for start in range(0, depth, DEPTH):
        vector = load_vector(x, start, depth, DEPTH, LANES)
        part = tl.sum(values.to(tl.float32) * vector[None, :, :], 2)
        if FORMAT == 2:
            lanes = start + tl.arange(0, DEPTH // LANES) * LANES
            tile = (row // 128)[:, None] * groups + (lanes // 128)[None, :]
            part *= tl.load(scales + tile, (row < rows)[:, None] & (lanes < depth)[None, :], 0.0)
        total += part
        values = load_rows(weights, row, rows, start + DEPTH, depth, DEPTH, LANES)
    return tl.sum(total, 1)


@triton.jit
def held(norm, x, depth, eps, NORMED: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """Return a vector that a program keeps in its registers, normalized if NORMED."""
    vector = load_vector(x, 0, depth, DEPTH, LANES)
    if NORMED:
        scale = 1.0 / tl.sqrt(tl.sum(tl.sum(vector * vector, 1), 0) / depth + eps)
        vector *= scale * load_vector(norm, 0, depth, DEPTH, LANES)
    return vector


@triton.jit
def row_of(tile, apart, ROWS: tl.constexpr, PAIRED: tl.constexpr):
    """Return the rows [ROWS] of a tile; PAIRED: the second half lies `apart` from the first.

    Rows are then in groups of two parts of `apart` rows each, such as a gate and an up.
    """
    number = tl.arange(0, ROWS)
    if not PAIRED:
        return tile * ROWS + number
    pair = tile * (ROWS // 2) + number % (ROWS // 2)
    return pair // apart * 2 * apart + pair % apart + number // (ROWS // 2) * apart


@triton.jit
def halves(made, ROWS: tl.constexpr):
    """Return the first and the second half of numbers [ROWS]."""
    return tl.split(tl.trans(tl.reshape(made, [2, ROWS // 2])))


@triton.jit
def whole(made, scales, bias, row, rows, FORMAT: tl.constexpr, BIASED: tl.constexpr):
    """Return rows of a product with their scale and bias."""
    if FORMAT == 1:
        made *= tl.load(scales + row, row < rows, 0.0)
    if BIASED:
        made += tl.load(bias + row, row < rows, 0.0)
    return made


@triton.jit
def each_tile(
    weights, scales, bias, norm, x, rows, depth, groups, eps, apart, FINISH: tl.constexpr, given,
    CHOSEN: tl.constexpr, FORMAT: tl.constexpr, BIASED: tl.constexpr, NORMED: tl.constexpr,
    PAIRED: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
    HELD: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Call FINISH with a program's rows of a matrix times one vector, its tile and what is given.

    FORMAT is 0: dense; 1: int8 with a scale a row; 2: FP8 with a scale for 128 x 128. HELD: the
    vector stays in registers, normalized if NORMED, for all tiles of rows of a program.
    """
    tile = tl.program_id(0)
    row = row_of(tile, apart, ROWS, PAIRED)
    if HELD:
        values = load_rows(weights, row, rows, 0, depth, DEPTH, LANES)
        after_others(EARLY)
        vector = held(norm, x, depth, eps, NORMED, DEPTH, LANES)
        for at in range(tile, tl.cdiv(rows, ROWS), tl.num_programs(0)):
            following = row_of(at + tl.num_programs(0), apart, ROWS, PAIRED)
            coming = load_rows(weights, following, rows, 0, depth, DEPTH, LANES)
            made = tl.sum(tl.sum(values.to(tl.float32) * vector[None, :, :], 2), 1)
            row = row_of(at, apart, ROWS, PAIRED)
            FINISH(whole(made, scales, bias, row, rows, FORMAT, BIASED), at, ROWS, given, CHOSEN)
            values = coming
    else:
        made = product_rows(
            weights, scales, x, row, rows, depth, groups, FORMAT, ROWS, DEPTH, LANES, EARLY
        )
        FINISH(whole(made, scales, bias, row, rows, FORMAT, BIASED), tile, ROWS, given, CHOSEN)


@triton.jit
def finish_one(made, tile, ROWS: tl.constexpr, given, CHOSEN: tl.constexpr):
    """Store rows of a product, gated or with something added."""
    add, out, rows, half = given
    ADDS: tl.constexpr = CHOSEN[0]
    GATE: tl.constexpr = CHOSEN[1]
    if GATE is None:
        row = tile * ROWS + tl.arange(0, ROWS)
        if ADDS:
            made += tl.load(add + row, row < rows, 0.0).to(tl.float32)
        tl.store(out + row, made.to(out.dtype.element_ty), row < rows)
    else:
        gate, up = halves(made, ROWS)
        place = tile * (ROWS // 2) + tl.arange(0, ROWS // 2)
        gated = activated(gate, GATE == "gelu") * up
        tl.store(out + place, gated.to(out.dtype.element_ty), place < half)


@triton.jit
def multiply_one(
    weights, scales, bias, norm, add, x, out, rows, depth, groups, half, eps,
    FORMAT: tl.constexpr, BIASED: tl.constexpr, NORMED: tl.constexpr, ADDS: tl.constexpr,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr, HELD: tl.constexpr,
    GATE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute a few rows of a matrix times one vector, plus `add`; see `each_tile`.

    With GATE, `gelu` or `silu`, the matrix is a gate of `half` rows and an up of as many, and the
    result is act(gate) * up.
    """
    each_tile(
        weights, scales, bias, norm, x, rows, depth, groups, eps, half, finish_one,
        (add, out, rows, half), (ADDS, GATE), FORMAT, BIASED, NORMED, GATE is not None, ROWS, DEPTH,
        LANES, HELD, EARLY,
    )  # fmt: skip


@triton.jit
def finish_heads(made, tile, ROWS: tl.constexpr, given, CHOSEN: tl.constexpr):
    """Rotate and store pairs of numbers of a token's queries, keys and values."""
    cos, sin, slots, q, keys, values, heads, kv_heads = given
    TURNED: tl.constexpr = CHOSEN[0]
    HALF: tl.constexpr = CHOSEN[1]
    first, second = halves(made, ROWS)
    pair = tile * (ROWS // 2) + tl.arange(0, ROWS // 2)
    head, at = pair // HALF, pair % HALF
    if TURNED:
        turns = head < heads + kv_heads
        turn_cos, turn_sin = tl.load(cos + at, turns, 1.0), tl.load(sin + at, turns, 0.0)
        turned = first * turn_cos - second * turn_sin
        second = second * turn_cos + first * turn_sin
        first = turned
    place = head * (2 * HALF) + at
    asks = head < heads
    tl.store(q + place, first.to(q.dtype.element_ty), asks)
    tl.store(q + place + HALF, second.to(q.dtype.element_ty), asks)
    first, second = first.to(keys.dtype.element_ty), second.to(keys.dtype.element_ty)
    slot = tl.load(slots).to(tl.int64) * kv_heads * (2 * HALF)
    is_key = (head >= heads) & (head < heads + kv_heads)
    place -= heads * (2 * HALF)
    tl.store(keys + slot + place, first, is_key)
    tl.store(keys + slot + place + HALF, second, is_key)
    is_value = (head >= heads + kv_heads) & (head < heads + 2 * kv_heads)
    place -= kv_heads * (2 * HALF)
    tl.store(values + slot + place, first, is_value)
    tl.store(values + slot + place + HALF, second, is_value)


@triton.jit
def multiply_heads(
    weights, scales, bias, norm, x, cos, sin, slots, q, keys, values, rows, depth, groups, eps,
    heads, kv_heads,
    FORMAT: tl.constexpr, BIASED: tl.constexpr, NORMED: tl.constexpr, TURNED: tl.constexpr,
    HALF: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, LANES: tl.constexpr,
    HELD: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute some numbers of queries, keys and values of one token, rotate and store them."""
    each_tile(
        weights, scales, bias, norm, x, rows, depth, groups, eps, HALF, finish_heads,
        (cos, sin, slots, q, keys, values, heads, kv_heads), (TURNED, HALF), FORMAT, BIASED,
        NORMED, True, ROWS, DEPTH, LANES, HELD, EARLY,
    )  # fmt: skip


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
