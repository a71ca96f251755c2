"""The forward pass in Triton: scores and corrections of every chunk, then a pass over the chunks.

Tokens of all sequences lie end to end. A row of `chunks` [chunks, 3] int32 holds a chunk's first
token, its number of tokens and the place of the state before it; the state after it follows. The
names are those of `problem` and `chunked`: `qk` are the scores of queries with keys, `qb`, `ak` and
`ab` likewise. `a` counts with the rule's sign everywhere, and `q` with the scale.

With a decay for each channel the factors e^{G_t - G_s} stand half beside the rows and half beside
the columns, relative to the middle of the block of ROWS tokens. A decay for each head multiplies
the finished scores, so that ROWS is the whole chunk.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accel.primitives.tiles.products import product
from accel.primitives.tiles.scans import joined_inverses

TINY = tl.constexpr(16)
"""The size of the blocks in which a unit triangular matrix is inverted first."""


@triton.jit
def rows_at(ptr, first, rows, head, heads, dims, SIZE: tl.constexpr):
    """Return the addresses of rows of a head of [tokens, heads, SIZE]."""
    begin = (first.to(tl.int64) * heads + head) * SIZE
    return ptr + begin + rows[:, None] * (heads * SIZE) + dims[None, :]


@triton.jit
def stored(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as they are; what does not exist is 0.

    What goes into a product unchanged is copied to shared memory ahead of its use.
    """
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    return tl.load(rows_at(ptr, first, rows, head, heads, dims, SIZE), mask=mask, other=0.0)


@triton.jit
def vectors(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as float32; what does not exist is 0."""
    return stored(ptr, first, rows, length, head, heads, dims, SIZE).to(tl.float32)


@triton.jit
def store_vectors(ptr, x, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Store rows of a head of [tokens, heads, SIZE]."""
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    at = rows_at(ptr, first, rows, head, heads, dims, SIZE)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def decays(
    ptr, first, rows, length, head, heads, dims,
    SIZE: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
):  # fmt: skip
    """Load log decays, [rows, dims], or [rows, 1] if a head has one decay for all channels."""
    if CHANNEL:
        found = vectors(ptr, first, rows, length, head, heads, dims, SIZE)
    else:
        at = (first + rows).to(tl.int64) * heads + head
        found = tl.load(ptr + at, mask=rows < length, other=0.0).to(tl.float32)[:, None]
    return tl.maximum(found, STRONGEST)


@triton.jit
def betas(ptr, first, rows, length, head, heads):
    """Load how much a delta rule corrects at each token, [rows]."""
    at = (first + rows).to(tl.int64) * heads + head
    return tl.load(ptr + at, mask=rows < length, other=0.0).to(tl.float32)


@triton.jit
def square(ptr, chunk, head, heads, rows, columns, CHUNK: tl.constexpr):
    """Return the addresses of a block of a chunk's matrix in [chunks, heads, CHUNK, CHUNK]."""
    begin = (chunk.to(tl.int64) * heads + head) * (CHUNK * CHUNK)
    return ptr + begin + rows[:, None] * CHUNK + columns[None, :]


@triton.jit
def store_square(ptr, x, chunk, head, heads, rows, CHUNK: tl.constexpr):
    """Store rows of a chunk's matrix."""
    at = square(ptr, chunk, head, heads, rows, tl.arange(0, CHUNK), CHUNK)
    tl.store(at, x.to(ptr.dtype.element_ty))


@triton.jit
def state_at(ptr, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Return the addresses of a block of a state in [places, heads, SIZE, VALUES]."""
    begin = (place.to(tl.int64) * heads + head) * (SIZE * VALUES)
    return ptr + begin + dims[:, None] * VALUES + values[None, :]


@triton.jit
def load_state(ptr, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Load a block of a state as it is stored; what does not exist is 0."""
    mask = (dims < SIZE)[:, None] & (values < VALUES)[None, :]
    at = state_at(ptr, place, head, heads, dims, values, SIZE, VALUES)
    return tl.load(at, mask=mask, other=0.0)


@triton.jit
def store_state(ptr, x, place, head, heads, dims, values, SIZE: tl.constexpr, VALUES: tl.constexpr):
    """Store a block of a state."""
    mask = (dims < SIZE)[:, None] & (values < VALUES)[None, :]
    at = state_at(ptr, place, head, heads, dims, values, SIZE, VALUES)
    tl.store(at, x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def around_the_middle(
    decay_ptr, first, length, block, head, heads, dims,
    SIZE: tl.constexpr, CHANNEL: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
    STRONGEST: tl.constexpr,
):  # fmt: skip
    """Return a chunk's log decays summed relative to the middle of a block of rows.

    Returns:
        The sums of the block's rows, their decays, and the sums of all tokens of the chunk.
    """
    tokens, begin = tl.arange(0, CHUNK)[:, None], block * ROWS
    rows = begin + tl.arange(0, ROWS)
    w = decays(
        decay_ptr, first, tl.arange(0, CHUNK), length, head, heads, dims, SIZE, CHANNEL, STRONGEST
    )
    if ROWS == CHUNK:
        sums = tl.cumsum(w, 0) - tl.sum(tl.where(tokens <= CHUNK // 2, w, 0.0), 0)[None, :]
        return sums, w, sums
    w_rows = decays(decay_ptr, first, rows, length, head, heads, dims, SIZE, CHANNEL, STRONGEST)
    # Sums from the block on in both directions: near it they are small, and thus exact.
    earlier, later = tl.where(tokens < begin, w, 0.0), tl.where(tokens >= begin, w, 0.0)
    sums = tl.cumsum(later, 0) - (tl.cumsum(earlier, 0, reverse=True) - earlier)
    middle = tl.sum(tl.where(tokens <= begin + ROWS // 2, later, 0.0), 0)[None, :]
    return tl.cumsum(w_rows, 0) - middle, w_rows, sums - middle


@triton.jit
def between(
    decay_ptr, first, length, rows, head, heads,
    EXCLUSIVE: tl.constexpr, CHUNK: tl.constexpr, STRONGEST: tl.constexpr,
):  # fmt: skip
    """Return e^{G_t - G_s} of a decay for each head, [rows, CHUNK], and 0 where s > t.

    EXCLUSIVE: G_t is the sum before token t's own decay.
    """
    tokens = tl.arange(0, CHUNK)
    at = (first + tokens).to(tl.int64) * heads + head
    w = tl.load(decay_ptr + at, mask=tokens < length, other=0.0).to(tl.float32)
    sums = tl.cumsum(tl.maximum(w, STRONGEST), 0)
    reached = sums - tl.maximum(w, STRONGEST) if EXCLUSIVE else sums
    # ROWS is CHUNK here
    difference = tl.where(tokens[:, None] >= tokens[None, :], reached[:, None] - sums[None, :], 0.0)
    return tl.where(rows[:, None] >= tokens[None, :], tl.exp(difference), 0.0)


@triton.jit
def chunk_scores(
    q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, first, length, block, head, heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return qk, qb, ak and ab of a block of rows with all tokens of their chunk, [ROWS, CHUNK].

    Those that a rule lacks are undefined.
    """
    tokens, rows = tl.arange(0, CHUNK), block * ROWS + tl.arange(0, ROWS)
    shared, share = head // GROUP, heads // GROUP
    qk = tl.zeros([ROWS, CHUNK], tl.float32)
    qb, ak, ab = qk, qk, qk
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        q = stored(q_ptr, first, rows, length, shared, share, dims, KEYS)
        a = q
        if ERASES:
            a = stored(a_ptr, first, rows, length, shared, share, dims, KEYS)
        if CHANNEL:
            sums, w, all_sums = around_the_middle(
                decay_ptr, first, length, block, head, heads, dims, KEYS, CHANNEL, CHUNK, ROWS,
                STRONGEST,
            )  # fmt: skip
            beside_a = tl.exp(sums - w) if EXCLUSIVE else tl.exp(sums)
            q = q.to(tl.float32) * tl.exp(sums)
            a = a.to(tl.float32) * beside_a
            # what comes after the block is never seen, and its factors could overflow
            beside_columns = tl.where(
                (tokens < (block + 1) * ROWS)[:, None], tl.exp(-all_sums), 0.0
            )
        if ERASES:
            if b_ptr is None:
                b = stored(a_ptr, first, tokens, length, shared, share, dims, KEYS)
            else:
                b = stored(b_ptr, first, tokens, length, head, heads, dims, KEYS)
            if CHANNEL:
                b = b.to(tl.float32) * beside_columns
            qb += product(q, tl.trans(b), COMPUTE, PRECISION)
            ab += product(a, tl.trans(b), COMPUTE, PRECISION)
        if PLAIN:
            k = stored(k_ptr, first, tokens, length, shared, share, dims, KEYS)
            if CHANNEL:
                k = k.to(tl.float32) * beside_columns
            qk += product(q, tl.trans(k), COMPUTE, PRECISION)
            if ERASES:
                ak += product(a, tl.trans(k), COMPUTE, PRECISION)
    past = rows[:, None] > tokens[None, :]
    if CHANNEL:
        seen = rows[:, None] >= tokens[None, :]
        qk, qb = tl.where(seen, qk * scale, 0.0), tl.where(seen, qb * scale, 0.0)
        ak, ab = tl.where(past, ak * SIGN, 0.0), tl.where(past, ab * SIGN, 0.0)
    else:
        factor = between(decay_ptr, first, length, rows, head, heads, False, CHUNK, STRONGEST)
        qk, qb = qk * factor * scale, qb * factor * scale
        if EXCLUSIVE:
            factor = between(decay_ptr, first, length, rows, head, heads, True, CHUNK, STRONGEST)
        factor = tl.where(past, factor * SIGN, 0.0)
        ak, ab = ak * factor, ab * factor
    if beta_ptr is not None:
        beta = betas(beta_ptr, first, tokens, length, head, heads)[None, :]
        qb, ab = qb * beta, ab * beta
    return qk, qb, ak, ab


@triton.jit(do_not_specialize=["heads"])
def scores(
    q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, chunks_ptr, qk_ptr, qb_ptr, ak_ptr, ab_ptr,
    heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the scores of a block of rows with all tokens of their chunk; one program a block."""
    chunk, block = tl.program_id(0) // (CHUNK // ROWS), tl.program_id(0) % (CHUNK // ROWS)
    head = tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    rows = block * ROWS + tl.arange(0, ROWS)
    qk, qb, ak, ab = chunk_scores(
        q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, first, length, block, head, heads, scale,
        KEYS, BLOCK, GROUP, CHUNK, ROWS, CHANNEL, STRONGEST, PLAIN, ERASES, EXCLUSIVE, SIGN,
        COMPUTE, PRECISION,
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
    """Return (I - L)^-1 of a strictly lower triangular matrix L [CHUNK, CHUNK]."""
    one = tl.arange(0, CHUNK // TINY)
    same = (one[:, None] == one[None, :])[:, None, :, None]
    parts = tl.reshape(lower, [CHUNK // TINY, TINY, CHUNK // TINY, TINY])
    tiny = tl.sum(tl.where(same, parts, 0.0), 2)
    i, j = tl.arange(0, TINY)[None, :, None], tl.arange(0, TINY)[None, None, :]
    identity = tl.where(i == j, 1.0, 0.0) + tl.zeros_like(tiny)
    tiny = joined_inverses(identity, tiny, i, j, 0, 4, COMPUTE, PRECISION)
    solved = tl.reshape(tiny[:, :, None, :] * tl.where(same, 1.0, 0.0), [CHUNK, CHUNK])
    tokens = tl.arange(0, CHUNK)
    return joined_inverses(
        solved, lower, tokens[:, None], tokens[None, :], 4, 6, COMPUTE, PRECISION
    )


@triton.jit(do_not_specialize=["heads"])
def prepare(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, chunks_ptr, qk_ptr, qb_ptr, ak_ptr,
    ab_ptr, solved_ptr, erases_ptr, constants_ptr, reads_ptr, keys_ptr, gains_ptr, factors_ptr,
    heads, scale,
    KEYS: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    PLAIN: tl.constexpr, ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr,
    COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write what the pass over the chunks needs of one of them; one program a chunk and head.

    That is the scores unless they are in blocks of rows and exist already; T = (I - ab)^-1,
    T a e^G and T times the values or ak · values; and the factors e^G and beta e^{G_C - G} of every
    token, or with a decay for each channel e^{G_C} of every channel and `reads`, `keys` and
    `gains`, which are q e^G, k e^{G_C - G} and b e^{G_C - G}.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    shared, share = head // GROUP, heads // GROUP
    tokens = tl.arange(0, CHUNK)
    if ROWS == CHUNK:
        qk, qb, ak, ab = chunk_scores(
            q_ptr, k_ptr, a_ptr, b_ptr, beta_ptr, decay_ptr, first, length, 0, head, heads, scale,
            KEYS, BLOCK, GROUP, CHUNK, ROWS, CHANNEL, STRONGEST, PLAIN, ERASES, EXCLUSIVE, SIGN,
            COMPUTE, PRECISION,
        )  # fmt: skip
        if PLAIN:
            store_square(qk_ptr, qk, chunk, head, heads, tokens, CHUNK)
        if ERASES:
            store_square(qb_ptr, qb, chunk, head, heads, tokens, CHUNK)
        if ak_ptr is not None:
            store_square(ak_ptr, ak, chunk, head, heads, tokens, CHUNK)
    elif ERASES:
        ab = tl.load(square(ab_ptr, chunk, head, heads, tokens, tokens, CHUNK))
        ak = ab
        if PLAIN:
            ak = tl.load(square(ak_ptr, chunk, head, heads, tokens, tokens, CHUNK))
    if ERASES:
        solved = unit_inverse(ab, CHUNK, COMPUTE, PRECISION)
        if solved_ptr is not None:
            store_square(solved_ptr, solved, chunk, head, heads, tokens, CHUNK)
        for begin in range(0, VALUES, BLOCK):
            dims = begin + tl.arange(0, BLOCK)
            v = stored(v_ptr, first, tokens, length, head, heads, dims, VALUES)
            if PLAIN:
                v = product(ak, v, COMPUTE, PRECISION)
            constants = product(solved, v, COMPUTE, PRECISION)
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
        if ERASES:
            past = sums - w if EXCLUSIVE else sums
            solved *= tl.exp(past)[None, :] * SIGN
    for begin in range(0, KEYS if CHANNEL or ERASES else 0, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        if ERASES:
            a = stored(a_ptr, first, tokens, length, shared, share, dims, KEYS)
        if CHANNEL:
            w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, True, STRONGEST)
            sums, whole = tl.cumsum(w, 0), tl.sum(w, 0)
            reached, left = tl.exp(sums), tl.exp(whole[None, :] - sums)
            row = factors_ptr + (chunk.to(tl.int64) * heads + head) * KEYS
            tl.store(row + dims, tl.exp(whole), mask=dims < KEYS)
            q = stored(q_ptr, first, tokens, length, shared, share, dims, KEYS)
            q = q.to(tl.float32) * reached * scale
            store_vectors(reads_ptr, q, first, tokens, length, head, heads, dims, KEYS)
            if PLAIN:
                k = stored(k_ptr, first, tokens, length, shared, share, dims, KEYS)
                k = k.to(tl.float32) * left
                store_vectors(keys_ptr, k, first, tokens, length, head, heads, dims, KEYS)
            if ERASES:
                if b_ptr is None:
                    b = a.to(tl.float32)
                else:
                    b = vectors(b_ptr, first, tokens, length, head, heads, dims, KEYS)
                if beta_ptr is not None:
                    b *= betas(beta_ptr, first, tokens, length, head, heads)[:, None]
                store_vectors(gains_ptr, b * left, first, tokens, length, head, heads, dims, KEYS)
                a = a.to(tl.float32) * (tl.exp(sums - w) if EXCLUSIVE else reached) * SIGN
        if ERASES:
            erases = product(solved, a, COMPUTE, PRECISION)
            store_vectors(erases_ptr, erases, first, tokens, length, head, heads, dims, KEYS)


@triton.jit
def tokens_of(chunks_ptr, sequences_ptr, sequence):
    """Return a sequence's first chunk, first token and end, the place of its first state, and how
    many chunks it has.

    Chunks of a sequence follow each other, so that a loop over them needs no table: what the
    compiler loads ahead must not wait for another load.
    """
    chunk = tl.load(sequences_ptr + sequence * 2)
    count = tl.load(sequences_ptr + sequence * 2 + 1)
    some = count > 0
    last = chunks_ptr + (chunk + count - 1) * 3
    end = tl.load(last, mask=some, other=0) + tl.load(last + 1, mask=some, other=0)
    begin = tl.load(chunks_ptr + chunk * 3, mask=some, other=0)
    place = tl.load(chunks_ptr + chunk * 3 + 2, mask=some, other=0)
    return chunk, begin, end, place, count


@triton.jit
def shrinking(
    ptr, chunk, head, heads, dims, KEYS: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr
):
    """Load the factor e^{G_C} of a state: one of each channel, or one of all."""
    if CHANNEL:
        row = ptr + (chunk.to(tl.int64) * heads + head) * KEYS
        shrink = tl.load(row + dims, mask=dims < KEYS, other=0.0)
    else:
        shrink = tl.load(ptr + (chunk.to(tl.int64) * heads + head) * (2 * CHUNK) + CHUNK - 1)
    return shrink


@triton.jit
def token_factors(
    ptr, chunk, head, heads, tokens, WRITTEN: tl.constexpr, CHUNK: tl.constexpr,
    CHANNEL: tl.constexpr,
):  # fmt: skip
    """Load the factors e^G of what tokens read, or beta e^{G_C - G} of what they write.

    With a decay for each channel they are 1, as they are in the vectors already.
    """
    found = tl.full([CHUNK], 1.0, tl.float32)
    if not CHANNEL:
        row = ptr + (chunk.to(tl.int64) * heads + head) * (2 * CHUNK)
        found = tl.load(row + (CHUNK if WRITTEN else 0) + tokens)
    return found


@triton.jit(do_not_specialize=["heads"])
def scan(
    reads_ptr, keys_ptr, gains_ptr, v_ptr, erases_ptr, constants_ptr, qk_ptr, qb_ptr, factors_ptr,
    chunks_ptr, sequences_ptr, start_ptr, out_ptr, u_ptr, states_ptr, last_ptr, heads, scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Pass the state of a sequence and head from chunk to chunk; one program BLOCK of its values.

    Writes the outputs if there is a place for them, the state before each chunk and after the last
    one with the corrections u likewise, and the last state. The state is held transposed,
    [BLOCK, WIDTH], and with it all that is multiplied with it: a product's left factor stays in
    registers, and only what was loaded goes through shared memory. WIDTH is KEYS rounded up to a
    power of two. With a decay for each head `reads`, `keys` and `gains` are q, k and a themselves,
    which SHARED heads share.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    shared, share = head // SHARED, heads // SHARED
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    chunk, begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    state = tl.zeros([BLOCK, WIDTH], tl.float32)
    if start_ptr is not None:
        state += tl.trans(
            load_state(start_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
        ).to(tl.float32)
    # What follows is loaded a chunk ahead, which the compiler does only for operands of products.
    next_shrink = shrinking(factors_ptr, chunk, head, heads, dims, KEYS, CHUNK, CHANNEL)
    next_reached = token_factors(factors_ptr, chunk, head, heads, tokens, False, CHUNK, CHANNEL)
    if ERASES:
        constants = stored(constants_ptr, begin, tokens, end - begin, head, heads, values, VALUES)
    for n in range(count):
        here, first = chunk + n, begin + n * CHUNK
        length = tl.minimum(end - first, CHUNK)
        shrink, reached, following = next_shrink, next_reached, chunk + tl.minimum(n + 1, count - 1)
        next_shrink = shrinking(factors_ptr, following, head, heads, dims, KEYS, CHUNK, CHANNEL)
        next_reached = token_factors(
            factors_ptr, following, head, heads, tokens, False, CHUNK, CHANNEL
        )
        left = token_factors(factors_ptr, here, head, heads, tokens, True, CHUNK, CHANNEL)[None, :]
        before = state.to(COMPUTE)
        if states_ptr is not None:
            store_state(
                states_ptr, tl.trans(before), place + n, head, heads, dims, values, KEYS, VALUES
            )
        state *= shrink[None, :] if CHANNEL else shrink
        out = tl.zeros([BLOCK, CHUNK], tl.float32)
        if ERASES:
            erases = stored(erases_ptr, first, tokens, length, head, heads, dims, KEYS)
            u = tl.trans(constants.to(tl.float32))
            constants = stored(
                constants_ptr, first + CHUNK, tokens, end - first - CHUNK, head, heads, values,
                VALUES,
            )  # fmt: skip
            u += product(before, tl.trans(erases), COMPUTE, PRECISION)
            if u_ptr is not None:
                store_vectors(
                    u_ptr, tl.trans(u), first, tokens, length, head, heads, values, VALUES
                )
            gains = stored(gains_ptr, first, tokens, length, shared, share, dims, KEYS)
            state += product(u * left, gains, COMPUTE, PRECISION)
        if out_ptr is not None:
            reads = stored(reads_ptr, first, tokens, length, shared, share, dims, KEYS)
            out = product(before, tl.trans(reads), COMPUTE, PRECISION)
            if not CHANNEL:
                out *= reached[None, :] * scale
            if ERASES:
                qb = tl.load(square(qb_ptr, here, head, heads, tokens, tokens, CHUNK))
                out += product(u, tl.trans(qb), COMPUTE, PRECISION)
        if PLAIN:
            v = tl.trans(stored(v_ptr, first, tokens, length, head, heads, values, VALUES))
            if out_ptr is not None:
                qk = tl.load(square(qk_ptr, here, head, heads, tokens, tokens, CHUNK))
                out += product(v, tl.trans(qk), COMPUTE, PRECISION)
            keys = stored(keys_ptr, first, tokens, length, shared, share, dims, KEYS)
            if not CHANNEL:
                v = v.to(tl.float32) * left
            state += product(v, keys, COMPUTE, PRECISION)
        if out_ptr is not None:
            store_vectors(
                out_ptr, tl.trans(out), first, tokens, length, head, heads, values, VALUES
            )
    if states_ptr is not None and count > 0:
        store_state(
            states_ptr, tl.trans(state), place + count, head, heads, dims, values, KEYS, VALUES
        )
    store_state(last_ptr, tl.trans(state), sequence, head, heads, dims, values, KEYS, VALUES)
