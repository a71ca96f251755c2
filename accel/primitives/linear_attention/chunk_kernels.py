"""Compute what does not depend on the state, of all chunks at once, in Triton.

The names are those of `problem` and `chunked`: `qk` are the scores of queries with keys, `qb`, `ak`
and `ab` likewise. `a` counts with the rule's sign everywhere, and `q` with the scale.

With a decay for each channel the factors e^{G_t - G_s} stand half beside the rows and half beside
the columns, relative to the middle of the chunk, or of a block of ROWS tokens of a chunk whose
decays are so strong that factors would exceed float32. A decay for each head multiplies the
finished scores, so that ROWS is the whole chunk, as it is where decays cannot be strong.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.linear_attention.memory_kernels import (
    betas,
    decays,
    square,
    store,
    store_square,
    store_vectors,
    vectors,
)
from gpudeck.accel.primitives.tiles.products import fine_product, product
from gpudeck.accel.primitives.tiles.scans import join_inverses

TINY = tl.constexpr(16)
"""The size of the blocks in which a unit triangular matrix is inverted first."""
MILD = tl.constexpr(20.0)
"""The most that decays of a channel may add up to on either side of a chunk's middle if its scores
are computed at once. RWKV-7's strongest decays are below it."""


@triton.jit(do_not_specialize=["heads"])
def local_sums(
    decay_ptr, chunks_ptr, sums_ptr, mild_ptr, heads,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
    STRONGEST: tl.constexpr,
):  # fmt: skip
    """Write whether the factors around a chunk's middle are mild; one program a chunk and head.

    If they are not, write the running sums of log decays within each block of ROWS tokens. All that
    the kernels take of decays is then sums and differences of a few of these, which are small and
    thus exact.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    tokens = tl.arange(0, CHUNK)
    furthest = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        w = tl.abs(
            decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, True, STRONGEST)
        )
        before = tl.sum(tl.where((tokens <= CHUNK // 2)[:, None], w, 0.0), 0)
        furthest = tl.maximum(furthest, tl.maximum(before, tl.sum(w, 0) - before))
    mild = tl.max(furthest, 0) <= MILD
    tl.store(mild_ptr + chunk * heads + head, mild.to(tl.int32))
    if not mild:
        for begin in range(0, KEYS, BLOCK):
            dims = begin + tl.arange(0, BLOCK)
            w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, True, STRONGEST)
            sums = tl.cumsum(tl.reshape(w, [CHUNK // ROWS, ROWS, BLOCK]), 1)
            sums = tl.reshape(sums, [CHUNK, BLOCK])
            store_vectors(sums_ptr, sums, first, tokens, length, head, heads, dims, KEYS)


@triton.jit
def around_the_middle(
    decay_ptr, sums_ptr, first, length, block, head, heads, dims,
    SIZE: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, STRONGEST: tl.constexpr,
):  # fmt: skip
    """Return a chunk's log decays summed relative to the middle of a block of rows.

    Returns:
        The sums of the block's rows, the rows' decays if they are the whole chunk, the sums of all
        tokens of the chunk, and the middle's sum from the block's begin.
    """
    tokens, begin = tl.arange(0, CHUNK), block * ROWS
    if ROWS == CHUNK:
        rows = decays(decay_ptr, first, tokens, length, head, heads, dims, SIZE, True, STRONGEST)
        middle = tl.sum(tl.where((tokens <= CHUNK // 2)[:, None], rows, 0.0), 0)[None, :]
        sums = tl.cumsum(rows, 0) - middle
        near = sums
    else:
        one = tl.arange(0, 1)
        sums = vectors(sums_ptr, first, tokens, length, head, heads, dims, SIZE)
        for other in tl.static_range(CHUNK // ROWS - 1):
            whole = vectors(
                sums_ptr, first + other * ROWS + ROWS - 1, one, length - other * ROWS - ROWS + 1,
                head, heads, dims, SIZE,
            )  # fmt: skip
            after, before = tokens >= (other + 1) * ROWS, tokens < (other + 1) * ROWS
            sums += tl.where((after & (other >= block))[:, None], whole, 0.0)
            sums -= tl.where((before & (other < block))[:, None], whole, 0.0)
        place = tl.minimum(begin + ROWS // 2, length - 1)
        middle = vectors(sums_ptr, first + place, one, 1, head, heads, dims, SIZE)
        own = begin + tl.arange(0, ROWS)
        rows = vectors(sums_ptr, first, own, length, head, heads, dims, SIZE)
        # places past the end have zeros, which an infinite factor would make NaN
        near = tl.where((own < length)[:, None], rows - middle, 0.0)
        sums = tl.where((tokens < length)[:, None], sums - middle, 0.0)
    return near, rows, sums, middle


@triton.jit
def between(
    decay_ptr, first, length, rows, head, heads, CHUNK: tl.constexpr, STRONGEST: tl.constexpr
):  # fmt: skip
    """Return e^{G_t - G_s} of a decay for each head, [rows, CHUNK], and 0 where s > t."""
    tokens = tl.arange(0, CHUNK)
    at = (first + tokens).to(tl.int64) * heads + head
    w = tl.load(decay_ptr + at, mask=tokens < length, other=0.0).to(tl.float32)
    sums = tl.cumsum(tl.maximum(w, STRONGEST), 0)
    # ROWS is CHUNK here
    difference = tl.where(tokens[:, None] >= tokens[None, :], sums[:, None] - sums[None, :], 0.0)
    return tl.where(rows[:, None] >= tokens[None, :], tl.exp(difference), 0.0)


@triton.jit
def score_product(x, y, FINE: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr):
    """Return x yᵀ in float32; FINE: their factors are not rounded."""
    if FINE:
        out = fine_product(x, tl.trans(y), COMPUTE, PRECISION)
    else:
        out = product(x, tl.trans(y), COMPUTE, PRECISION)
    return out


@triton.jit
def chunk_scores(
    q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, sums_ptr, reads_ptr, keys_ptr, erases_ptr,
    gains_ptr, factors_ptr, chunk, first, length, block, head, heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr, FINE: tl.constexpr,
):  # fmt: skip
    """Return qk, qb, ak and ab of a block of rows with all tokens of their chunk, [ROWS, CHUNK].

    Those that a rule lacks are undefined. With FINE they are nearly as exact as their factors e^G.
    With `reads_ptr` the block is a whole chunk, and what `channel_vectors` writes is written here,
    as it has the same factors.
    """
    tokens, rows = tl.arange(0, CHUNK), block * ROWS + tl.arange(0, ROWS)
    shared, share = head // GROUP, heads // GROUP
    qk = tl.zeros([ROWS, CHUNK], tl.float32)
    qb, ak, ab = qk, qk, qk
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        q = store(q_ptr, first, rows, length, shared, share, dims, KEYS)
        a = q
        if ERASES:
            a = store(a_ptr, first, rows, length, shared, share, dims, KEYS)
        if CHANNEL:
            sums, w, all_sums, middle = around_the_middle(
                decay_ptr, sums_ptr, first, length, block, head, heads, dims, KEYS, CHUNK, ROWS,
                STRONGEST,
            )  # fmt: skip
            beside_a = tl.exp(sums - w) if EXCLUSIVE else tl.exp(sums)
            q = q.to(tl.float32) * tl.exp(sums)
            a = a.to(tl.float32) * beside_a
            # what comes after the block is never seen, and its factors could overflow
            beside_columns = tl.where(
                (tokens < (block + 1) * ROWS)[:, None], tl.exp(-all_sums), 0.0
            )
        if reads_ptr is not None:
            whole = tl.sum(w, 0)[None, :]
            until, after = tl.exp(middle) * scale, tl.exp(whole - middle)
            one = tl.arange(0, 1)
            store_vectors(factors_ptr, tl.exp(whole), chunk, one, 1, head, heads, dims, KEYS)
            store_vectors(reads_ptr, q * until, first, rows, length, head, heads, dims, KEYS)
        if ERASES:
            if b_ptr is None:
                b = store(a_ptr, first, tokens, length, shared, share, dims, KEYS)
            else:
                b = store(b_ptr, first, tokens, length, head, heads, dims, KEYS)
            if CHANNEL:
                b = b.to(tl.float32) * beside_columns
            if reads_ptr is not None:
                erases = a * (tl.exp(middle) * SIGN)
                store_vectors(erases_ptr, erases, first, rows, length, head, heads, dims, KEYS)
                gains = b * after
                if beta_ptr is not None:
                    gains *= betas(beta_ptr, first, tokens, length, head, heads)[:, None]
                store_vectors(gains_ptr, gains, first, rows, length, head, heads, dims, KEYS)
            qb += score_product(q, b, FINE, COMPUTE, PRECISION)
            ab += score_product(a, b, FINE, COMPUTE, PRECISION)
        if PLAIN:
            k = store(k_ptr, first, tokens, length, shared, share, dims, KEYS)
            if CHANNEL:
                k = k.to(tl.float32) * beside_columns
            if reads_ptr is not None:
                store_vectors(keys_ptr, k * after, first, rows, length, head, heads, dims, KEYS)
            qk += score_product(q, k, FINE, COMPUTE, PRECISION)
            if ERASES:
                ak += score_product(a, k, FINE, COMPUTE, PRECISION)
    past = rows[:, None] > tokens[None, :]
    if CHANNEL:
        seen = rows[:, None] >= tokens[None, :]
        qk, qb = tl.where(seen, qk * scale, 0.0), tl.where(seen, qb * scale, 0.0)
        ak, ab = tl.where(past, ak * SIGN, 0.0), tl.where(past, ab * SIGN, 0.0)
    else:
        factor = between(decay_ptr, first, length, rows, head, heads, CHUNK, STRONGEST)
        qk, qb = qk * factor * scale, qb * factor * scale
        factor = tl.where(past, factor * SIGN, 0.0)
        ak, ab = ak * factor, ab * factor
    if beta_ptr is not None:
        beta = betas(beta_ptr, first, tokens, length, head, heads)[None, :]
        qb, ab = qb * beta, ab * beta
    return qk, qb, ak, ab


@triton.jit(do_not_specialize=["heads"])
def scores(
    q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, sums_ptr, mild_ptr, chunks_ptr, qk_ptr, qb_ptr,
    ak_ptr, ab_ptr, heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the scores of a block of rows with all tokens of their chunk; one program a block.

    Those of chunks with mild decays are left to `prepare`.
    """
    chunk, block = tl.program_id(0) // (CHUNK // ROWS), tl.program_id(0) % (CHUNK // ROWS)
    head = tl.program_id(1)
    if tl.load(mild_ptr + chunk * heads + head) != 0:
        return
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    rows = block * ROWS + tl.arange(0, ROWS)
    qk, qb, ak, ab = chunk_scores(
        q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, sums_ptr, None, None, None, None, None,
        chunk, first, length, block, head, heads, scale, KEYS, BLOCK, GROUP, CHUNK, ROWS, CHANNEL,
        STRONGEST, PLAIN, ERASES, EXCLUSIVE, SIGN, COMPUTE, PRECISION, True,
    )  # fmt: skip
    if PLAIN:
        store_square(qk_ptr, qk, chunk, head, heads, rows, CHUNK)
        if ERASES:
            store_square(ak_ptr, ak, chunk, head, heads, rows, CHUNK)
    if ERASES:
        store_square(qb_ptr, qb, chunk, head, heads, rows, CHUNK)
        store_square(ab_ptr, ab, chunk, head, heads, rows, CHUNK)


@triton.jit
def unit_inverse(lower, CHUNK: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr):
    """Return (I - L)^-1 of a strictly lower triangular matrix L [CHUNK, CHUNK].

    With keys of length 1 no element is far above 1, so that factors of float16 are more exact than
    those of bfloat16, and the inverse as exact as from products of three.
    """
    NARROW: tl.constexpr = tl.float16 if tl.bfloat16 == COMPUTE else COMPUTE
    one = tl.arange(0, CHUNK // TINY)
    same = (one[:, None] == one[None, :])[:, None, :, None]
    parts = tl.reshape(lower, [CHUNK // TINY, TINY, CHUNK // TINY, TINY])
    tiny = tl.sum(tl.where(same, parts, 0.0), 2)
    i, j = tl.arange(0, TINY)[None, :, None], tl.arange(0, TINY)[None, None, :]
    identity = tl.where(i == j, 1.0, 0.0) + tl.zeros_like(tiny)
    tiny = join_inverses(identity, tiny, i, j, 0, 4, NARROW, PRECISION)
    solved = tl.reshape(tiny[:, :, None, :] * tl.where(same, 1.0, 0.0), [CHUNK, CHUNK])
    tokens = tl.arange(0, CHUNK)
    return join_inverses(solved, lower, tokens[:, None], tokens[None, :], 4, 6, NARROW, PRECISION)


@triton.jit
def channel_vectors(
    q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, reads_ptr, keys_ptr, erases_ptr, gains_ptr,
    factors_ptr, chunk, first, length, head, heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    STRONGEST: tl.constexpr, PLAIN: tl.constexpr, ERASES: tl.constexpr, SIGN: tl.constexpr,
):  # fmt: skip
    """Write q e^G, k e^{G_C - G}, a e^G and b e^{G_C - G} of a chunk, and e^{G_C}."""
    shared, share = head // GROUP, heads // GROUP
    tokens, one = tl.arange(0, CHUNK), tl.arange(0, 1)
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, True, STRONGEST)
        sums, whole = tl.cumsum(w, 0), tl.sum(w, 0)[None, :]
        reached, left = tl.exp(sums), tl.exp(whole - sums)
        store_vectors(factors_ptr, tl.exp(whole), chunk, one, 1, head, heads, dims, KEYS)
        q = vectors(q_ptr, first, tokens, length, shared, share, dims, KEYS) * reached * scale
        store_vectors(reads_ptr, q, first, tokens, length, head, heads, dims, KEYS)
        if PLAIN:
            k = vectors(k_ptr, first, tokens, length, shared, share, dims, KEYS) * left
            store_vectors(keys_ptr, k, first, tokens, length, head, heads, dims, KEYS)
        if ERASES:
            a = vectors(a_ptr, first, tokens, length, shared, share, dims, KEYS)
            b = a
            if b_ptr is not None:
                b = vectors(b_ptr, first, tokens, length, head, heads, dims, KEYS)
            if beta_ptr is not None:
                b *= betas(beta_ptr, first, tokens, length, head, heads)[:, None]
            store_vectors(gains_ptr, b * left, first, tokens, length, head, heads, dims, KEYS)
            a *= reached * SIGN
            store_vectors(erases_ptr, a, first, tokens, length, head, heads, dims, KEYS)


@triton.jit(do_not_specialize=["heads"])
def prepare(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, mild_ptr, chunks_ptr, qk_ptr, qb_ptr,
    ak_ptr, ab_ptr, solved_ptr, constants_ptr, reads_ptr, keys_ptr, erases_ptr, gains_ptr,
    factors_ptr, heads, scale,
    KEYS: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    PLAIN: tl.constexpr, ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr,
    COMPUTE: tl.constexpr, PRECISION: tl.constexpr, FINE: tl.constexpr,
):  # fmt: skip
    """Write what the pass over the chunks needs of one of them; one program a chunk and head.

    That is the scores, with FINE as `chunk_scores` says, but for chunks with strong decays whose
    scores exist already; `solved`, T = (I - ab)^-1; `constants`, ak · values, where a rule writes
    both; and the factors e^G and beta e^{G_C - G} of every token, or with a decay for each channel
    e^{G_C} of every channel and `reads`, `keys`, `erases` and `gains`, which are q e^G,
    k e^{G_C - G}, a e^G and b e^{G_C - G}.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    tokens = tl.arange(0, CHUNK)
    if ROWS == CHUNK or tl.load(mild_ptr + chunk * heads + head) != 0:
        qk, qb, ak, ab = chunk_scores(
            q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, None, reads_ptr, keys_ptr, erases_ptr,
            gains_ptr, factors_ptr, chunk, first, length, 0, head, heads, scale, KEYS, BLOCK, GROUP,
            CHUNK, CHUNK, CHANNEL, STRONGEST, PLAIN, ERASES, EXCLUSIVE, SIGN, COMPUTE, PRECISION,
            FINE,
        )  # fmt: skip
        if PLAIN:
            store_square(qk_ptr, qk, chunk, head, heads, tokens, CHUNK)
        if ak_ptr is not None:
            store_square(ak_ptr, ak, chunk, head, heads, tokens, CHUNK)
        if ERASES:
            store_square(qb_ptr, qb, chunk, head, heads, tokens, CHUNK)
    else:
        channel_vectors(
            q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, reads_ptr, keys_ptr, erases_ptr,
            gains_ptr, factors_ptr, chunk, first, length, head, heads, scale, KEYS, BLOCK, GROUP,
            CHUNK, STRONGEST, PLAIN, ERASES, SIGN,
        )  # fmt: skip
        ak = tl.zeros([CHUNK, CHUNK], tl.float32)
        ab = ak
        if ERASES:
            ab = tl.load(square(ab_ptr, chunk, head, heads, tokens, tokens, CHUNK))
            if PLAIN:
                ak += tl.load(square(ak_ptr, chunk, head, heads, tokens, tokens, CHUNK))
    if ERASES:
        solved = unit_inverse(ab, CHUNK, COMPUTE, PRECISION)
        store_square(solved_ptr, solved, chunk, head, heads, tokens, CHUNK)
    if ERASES and PLAIN:
        for begin in range(0, VALUES, BLOCK):
            dims = begin + tl.arange(0, BLOCK)
            v = store(v_ptr, first, tokens, length, head, heads, dims, VALUES)
            constants = product(ak, v, COMPUTE, PRECISION)
            store_vectors(
                constants_ptr, constants, first, tokens, length, head, heads, dims, VALUES
            )
    if not CHANNEL:
        one = tl.arange(0, 1)
        w = decays(decay_ptr, first, tokens, length, head, heads, one, KEYS, CHANNEL, STRONGEST)
        w = tl.sum(w, 1)
        sums = tl.cumsum(w, 0)
        left = tl.exp(tl.sum(w, 0) - sums)
        if beta_ptr is not None:
            left *= betas(beta_ptr, first, tokens, length, head, heads)
        row = factors_ptr + (chunk.to(tl.int64) * heads + head) * (2 * CHUNK)
        tl.store(row + tokens, tl.exp(sums))
        tl.store(row + CHUNK + tokens, left)
