"""The forward pass in Triton: scores and corrections of every chunk, then states, then outputs.

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
from accel.primitives.tiles.scans import joined_inverses, running

TINY = tl.constexpr(16)
"""The size of the blocks in which a unit triangular matrix is inverted first."""


@triton.jit
def stored(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as they are; what does not exist is 0.

    What goes into a product unchanged is copied to shared memory ahead of its use.
    """
    at = ((first + rows).to(tl.int64)[:, None] * heads + head) * SIZE + dims[None, :]
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    return tl.load(ptr + at, mask=mask, other=0.0)


@triton.jit
def vectors(ptr, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Load rows of a head of [tokens, heads, SIZE] as float32; what does not exist is 0."""
    return stored(ptr, first, rows, length, head, heads, dims, SIZE).to(tl.float32)


@triton.jit
def store_vectors(ptr, x, first, rows, length, head, heads, dims, SIZE: tl.constexpr):
    """Store rows of a head of [tokens, heads, SIZE]."""
    at = ((first + rows).to(tl.int64)[:, None] * heads + head) * SIZE + dims[None, :]
    mask = (rows < length)[:, None] & (dims < SIZE)[None, :]
    tl.store(ptr + at, x.to(ptr.dtype.element_ty), mask=mask)


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
def square(ptr, chunk, head, heads, rows, columns, CHUNK: tl.constexpr):
    """Return the addresses of a block of a chunk's matrix in [chunks, heads, CHUNK, CHUNK]."""
    begin = (chunk.to(tl.int64) * heads + head) * (CHUNK * CHUNK)
    return ptr + begin + rows[:, None] * CHUNK + columns[None, :]


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
        The sums of the block's rows, their decays, and the sums of all tokens of the chunk. They
        are 0 with a decay for each head, as `between` holds the factors then.
    """
    tokens, begin = tl.arange(0, CHUNK)[:, None], block * ROWS
    rows = begin + tl.arange(0, ROWS)
    w = decays(
        decay_ptr, first, tl.arange(0, CHUNK), length, head, heads, dims, SIZE, CHANNEL, STRONGEST
    )
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


@triton.jit(do_not_specialize=["heads"])
def scores(
    q_ptr, k_ptr, a_ptr, b_ptr, decay_ptr, chunks_ptr, qk_ptr, qb_ptr, ak_ptr, ab_ptr, heads, scale,
    KEYS: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the scores of a block of rows with all tokens of their chunk; one program a block."""
    chunk, block = tl.program_id(0) // (CHUNK // ROWS), tl.program_id(0) % (CHUNK // ROWS)
    head = tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    tokens, rows = tl.arange(0, CHUNK), block * ROWS + tl.arange(0, ROWS)
    qk = tl.zeros([ROWS, CHUNK], tl.float32)
    qb, ak, ab = qk, qk, qk
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        q = vectors(q_ptr, first, rows, length, head // GROUP, heads // GROUP, dims, KEYS) * scale
        a, beside_a, beside_columns = q, 1.0, 1.0
        if CHANNEL:
            sums, w, all_sums = around_the_middle(
                decay_ptr,
                first,
                length,
                block,
                head,
                heads,
                dims,
                KEYS,
                CHANNEL,
                CHUNK,
                ROWS,
                STRONGEST,
            )
            q *= tl.exp(sums)
            beside_a = tl.exp(sums - w) if EXCLUSIVE else tl.exp(sums)
            # what comes after the block is never seen, and its factors could overflow
            beside_columns = tl.where(
                (tokens < (block + 1) * ROWS)[:, None], tl.exp(-all_sums), 0.0
            )
        if ERASES:
            a = vectors(a_ptr, first, rows, length, head // GROUP, heads // GROUP, dims, KEYS)
            a *= beside_a * SIGN
            b = vectors(b_ptr, first, tokens, length, head, heads, dims, KEYS) * beside_columns
            qb += product(q, tl.trans(b), COMPUTE, PRECISION)
            ab += product(a, tl.trans(b), COMPUTE, PRECISION)
        if PLAIN:
            k = vectors(k_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
            k *= beside_columns
            qk += product(q, tl.trans(k), COMPUTE, PRECISION)
            if ERASES:
                ak += product(a, tl.trans(k), COMPUTE, PRECISION)
    if not CHANNEL:
        factor = between(decay_ptr, first, length, rows, head, heads, False, CHUNK, STRONGEST)
        qk *= factor
        qb *= factor
        if EXCLUSIVE:
            factor = between(decay_ptr, first, length, rows, head, heads, True, CHUNK, STRONGEST)
        ak *= factor
        ab *= factor
    seen, past = rows[:, None] >= tokens[None, :], rows[:, None] > tokens[None, :]
    if PLAIN:
        out = square(qk_ptr, chunk, head, heads, rows, tokens, CHUNK)
        tl.store(out, tl.where(seen, qk, 0.0).to(qk_ptr.dtype.element_ty))
    if ERASES:
        out = square(qb_ptr, chunk, head, heads, rows, tokens, CHUNK)
        tl.store(out, tl.where(seen, qb, 0.0).to(qb_ptr.dtype.element_ty))
        out = square(ab_ptr, chunk, head, heads, rows, tokens, CHUNK)
        tl.store(out, tl.where(past, ab, 0.0))
        if PLAIN:
            out = square(ak_ptr, chunk, head, heads, rows, tokens, CHUNK)
            tl.store(out, tl.where(past, ak, 0.0).to(ak_ptr.dtype.element_ty))


@triton.jit
def tiny_inverses(ab_ptr, chunk, head, heads, CHUNK: tl.constexpr):
    """Return (I - L)^-1 of the diagonal blocks of `ab`, L, as [CHUNK // TINY, TINY, TINY]."""
    blocks = tl.arange(0, CHUNK // TINY)[:, None, None]
    i, j = tl.arange(0, TINY)[None, :, None], tl.arange(0, TINY)[None, None, :]
    begin = (chunk.to(tl.int64) * heads + head) * (CHUNK * CHUNK)
    lower = tl.load(ab_ptr + begin + (blocks * TINY + i) * CHUNK + blocks * TINY + j)
    identity = tl.where(i == j, 1.0, 0.0) + tl.zeros_like(lower)
    return joined_inverses(identity, lower, i, j, 0, 4, "ieee")


@triton.jit(do_not_specialize=["heads"])
def solve(
    ab_ptr, ak_ptr, a_ptr, b_ptr, v_ptr, decay_ptr, chunks_ptr, solved_ptr, erases_ptr, gains_ptr,
    constants_ptr, heads,
    KEYS: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr, GROUP: tl.constexpr,
    CHUNK: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr, PLAIN: tl.constexpr,
    EXCLUSIVE: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write T = (I - ab)^-1, T a e^G, b e^{G_C - G}, and T times the values or ak · values.

    One program a chunk and head.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    tokens = tl.arange(0, CHUNK)
    i, j = tokens[:, None], tokens[None, :]
    lower = tl.load(square(ab_ptr, chunk, head, heads, tokens, tokens, CHUNK))
    tiny = tiny_inverses(ab_ptr, chunk, head, heads, CHUNK)
    one, other = tl.arange(0, CHUNK // TINY)[:, None], tl.arange(0, CHUNK // TINY)[None, :]
    diagonal = tl.where(one == other, 1.0, 0.0)[:, None, :, None]
    solved = tl.reshape(tiny[:, :, None, :] * diagonal, [CHUNK, CHUNK])
    solved = joined_inverses(solved, lower, i, j, 4, 6, PRECISION).to(COMPUTE)
    tl.store(square(solved_ptr, chunk, head, heads, tokens, tokens, CHUNK), solved)
    for begin in range(0, KEYS, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
        sums = running(w, CHANNEL)
        a = vectors(a_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
        a *= tl.exp(sums - w if EXCLUSIVE else sums) * SIGN
        erases = product(solved, a, COMPUTE, PRECISION)
        store_vectors(erases_ptr, erases, first, tokens, length, head, heads, dims, KEYS)
        b = vectors(b_ptr, first, tokens, length, head, heads, dims, KEYS)
        b *= tl.exp(tl.sum(w, 0)[None, :] - sums)
        store_vectors(gains_ptr, b, first, tokens, length, head, heads, dims, KEYS)
    for begin in range(0, VALUES, BLOCK):
        dims = begin + tl.arange(0, BLOCK)
        v = stored(v_ptr, first, tokens, length, head, heads, dims, VALUES)
        if PLAIN:
            ak = tl.load(square(ak_ptr, chunk, head, heads, tokens, tokens, CHUNK))
            v = product(ak, v, COMPUTE, PRECISION)
        constants = product(solved, v, COMPUTE, PRECISION)
        store_vectors(constants_ptr, constants, first, tokens, length, head, heads, dims, VALUES)


@triton.jit
def tokens_of(chunks_ptr, sequences_ptr, sequence):
    """Return a sequence's first token, its end, the place of its first state, and its chunks.

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
    return begin, end, place, count


@triton.jit(do_not_specialize=["heads"])
def states(
    k_ptr, v_ptr, gains_ptr, erases_ptr, constants_ptr, decay_ptr, chunks_ptr, sequences_ptr,
    start_ptr, u_ptr, states_ptr, last_ptr, heads,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    PLAIN: tl.constexpr, ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Pass the state [KEYS, BLOCK] of a sequence and head from chunk to chunk.

    Writes the state before each chunk and after the last one, and the corrections u. WIDTH is KEYS
    rounded up to a power of two.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    state = tl.zeros([WIDTH, BLOCK], tl.float32)
    if start_ptr is not None:
        state += load_state(start_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
    for n in range(count):
        first = begin + n * CHUNK
        length = tl.minimum(end - first, CHUNK)
        store_state(states_ptr, state, place + n, head, heads, dims, values, KEYS, VALUES)
        w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
        whole = tl.sum(w, 0)
        after = tl.exp(whole)[:, None] * state
        if ERASES:
            erases = stored(erases_ptr, first, tokens, length, head, heads, dims, KEYS)
            u = vectors(constants_ptr, first, tokens, length, head, heads, values, VALUES)
            u += product(erases, state, COMPUTE, PRECISION)
            store_vectors(u_ptr, u, first, tokens, length, head, heads, values, VALUES)
            gains = stored(gains_ptr, first, tokens, length, head, heads, dims, KEYS)
            after += product(tl.trans(gains), u, COMPUTE, PRECISION)
        if PLAIN:
            k = vectors(k_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
            v = stored(v_ptr, first, tokens, length, head, heads, values, VALUES)
            k *= tl.exp(whole[None, :] - running(w, CHANNEL))
            after += product(tl.trans(k), v, COMPUTE, PRECISION)
        state = after
    if count > 0:
        store_state(states_ptr, state, place + count, head, heads, dims, values, KEYS, VALUES)
    store_state(last_ptr, state, sequence, head, heads, dims, values, KEYS, VALUES)


@triton.jit(do_not_specialize=["heads"])
def outputs(
    q_ptr, v_ptr, u_ptr, qk_ptr, qb_ptr, decay_ptr, states_ptr, chunks_ptr, out_ptr, heads, scale,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    PLAIN: tl.constexpr, ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the outputs of a chunk: what its queries read in the state and in the chunk itself."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    place = tl.load(chunks_ptr + chunk * 3 + 2)
    tokens = tl.arange(0, CHUNK)
    values = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    out = tl.zeros([CHUNK, BLOCK], tl.float32)
    for begin in range(0, KEYS, KEY_BLOCK):
        dims = begin + tl.arange(0, KEY_BLOCK)
        w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
        q = vectors(q_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
        q *= tl.exp(running(w, CHANNEL)) * scale
        state = load_state(states_ptr, place, head, heads, dims, values, KEYS, VALUES)
        out += product(q, state, COMPUTE, PRECISION)
    if PLAIN:
        qk = tl.load(square(qk_ptr, chunk, head, heads, tokens, tokens, CHUNK))
        v = stored(v_ptr, first, tokens, length, head, heads, values, VALUES)
        out += product(qk, v, COMPUTE, PRECISION)
    if ERASES:
        qb = tl.load(square(qb_ptr, chunk, head, heads, tokens, tokens, CHUNK))
        u = stored(u_ptr, first, tokens, length, head, heads, values, VALUES)
        out += product(qb, u, COMPUTE, PRECISION)
    store_vectors(out_ptr, out, first, tokens, length, head, heads, values, VALUES)
