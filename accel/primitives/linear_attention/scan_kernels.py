"""Pass states from chunk to chunk and compute the outputs, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.linear_attention.memory_kernels import (
    load_state,
    recall,
    shrinking,
    square,
    store,
    store_state,
    store_vectors,
    token_factors,
    tokens_of,
)
from gpudeck.accel.primitives.tiles.products import product


@triton.jit(do_not_specialize=["heads"])
def scan(
    reads_ptr, keys_ptr, gains_ptr, v_ptr, erases_ptr, constants_ptr, solved_ptr, qk_ptr, qb_ptr,
    factors_ptr, chunks_ptr, sequences_ptr, starts_ptr, out_ptr, u_ptr, states_ptr, last_ptr,
    turns_ptr, reaches_ptr, heads, scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Pass the state of a sequence and head from chunk to chunk; one program BLOCK of its values.

    Writes the outputs if there is a place for them, the state before each chunk and after the last
    one with the corrections u likewise, and the last state. The state is held transposed,
    [BLOCK, WIDTH], and with it all that is multiplied with it: a product's left factor stays in
    registers, and only what was loaded goes through shared memory. WIDTH is KEYS rounded up to a
    power of two. With a decay for each head `reads`, `keys` and `erases` are q, k and a themselves,
    which SHARED heads share, and `gains` are `erases`. What is erased makes x of the state before
    it, and what is written in its place is u = T (constants + x).

    If only the last state is wanted, chunks that it does not remember are left out. With
    `turns_ptr`, the programs after those of the values compute what a sequence makes of the state
    before it: they begin with columns of the identity, and no values are written. `reaches_ptr`
    then says whether anything of that state is left.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    shared, share = head // SHARED, heads // SHARED
    column = tl.program_id(0) * BLOCK
    values = column + tl.arange(0, BLOCK)
    FIRST_TURN: tl.constexpr = (VALUES + BLOCK - 1) // BLOCK * BLOCK
    turned = tl.where(values < FIRST_TURN, WIDTH, values - FIRST_TURN)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    chunk, begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    state = tl.zeros([BLOCK, WIDTH], tl.float32)
    if starts_ptr is not None:
        state += tl.trans(
            load_state(starts_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
        ).to(tl.float32)
    elif turns_ptr is not None:
        state = tl.where(turned[:, None] == dims[None, :], 1.0, 0.0)
    if out_ptr is None and states_ptr is None:
        kept = recall(
            factors_ptr, chunk + count - 1, count, head, heads, dims, -1, KEYS, WIDTH, CHUNK,
            CHANNEL,
        )  # fmt: skip
        forgotten = count - kept
        state = tl.where(forgotten > 0, 0.0, state)
        count = kept
        if turns_ptr is not None:
            if column == FIRST_TURN:
                tl.store(reaches_ptr + sequence * heads + head, (forgotten == 0).to(tl.int32))
            # where nothing is written, zero stays zero
            count = tl.where((column >= FIRST_TURN) & (forgotten > 0), 0, kept)
        chunk, begin = chunk + forgotten, begin + forgotten * CHUNK
    # What follows is loaded a chunk ahead, which the compiler does only for operands of products.
    next_shrink = shrinking(factors_ptr, chunk, head, heads, dims, KEYS, CHUNK, CHANNEL)
    next_reached = token_factors(factors_ptr, chunk, head, heads, tokens, False, CHUNK, CHANNEL)
    if ERASES:
        constants = store(constants_ptr, begin, tokens, end - begin, head, heads, values, VALUES)
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
            erases = store(erases_ptr, first, tokens, length, shared, share, dims, KEYS)
            gains = erases
            x = product(before, tl.trans(erases), COMPUTE, PRECISION)
            if CHANNEL:
                gains = store(gains_ptr, first, tokens, length, shared, share, dims, KEYS)
            else:
                x *= reached[None, :] * SIGN
            x += tl.trans(constants.to(tl.float32))
            constants = store(
                constants_ptr, first + CHUNK, tokens, end - first - CHUNK, head, heads, values,
                VALUES,
            )  # fmt: skip
            solved = tl.load(square(solved_ptr, here, head, heads, tokens, tokens, CHUNK))
            u = product(x, tl.trans(solved), COMPUTE, PRECISION)
            if u_ptr is not None:
                store_vectors(
                    u_ptr, tl.trans(u), first, tokens, length, head, heads, values, VALUES
                )
            state += product(u * left, gains, COMPUTE, PRECISION)
        if out_ptr is not None:
            reads = store(reads_ptr, first, tokens, length, shared, share, dims, KEYS)
            out = product(before, tl.trans(reads), COMPUTE, PRECISION)
            if not CHANNEL:
                out *= reached[None, :] * scale
            if ERASES:
                qb = tl.load(square(qb_ptr, here, head, heads, tokens, tokens, CHUNK))
                out += product(u, tl.trans(qb), COMPUTE, PRECISION)
        if PLAIN:
            v = tl.trans(store(v_ptr, first, tokens, length, head, heads, values, VALUES))
            if out_ptr is not None:
                qk = tl.load(square(qk_ptr, here, head, heads, tokens, tokens, CHUNK))
                out += product(v, tl.trans(qk), COMPUTE, PRECISION)
            keys = store(keys_ptr, first, tokens, length, shared, share, dims, KEYS)
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
    if turns_ptr is not None:
        store_state(turns_ptr, tl.trans(state), sequence, head, heads, dims, turned, KEYS, KEYS)
