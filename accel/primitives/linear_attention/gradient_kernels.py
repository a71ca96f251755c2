"""The backward pass in Triton: states in reverse, then scores, inputs and decays of every chunk.

Names are those of `chunk_kernels`; d stands for the gradient with respect to what follows.
With x the right side of the chunk's triangular system, T x = u, dx = T^T du, and the scores `ab`
inside T have the gradient dx u^T.

A decay acts only through products e^{G_t - G_s}, so that the gradient of the sum G_t is q_t dq_t +
a_t da_t - k_t dk_t - b_t db_t, a channel at a time, and at a chunk's end also S dS.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.linear_attention.chunk_kernels import (
    around_the_middle,
    between,
)
from gpudeck.accel.primitives.linear_attention.memory_kernels import (
    betas,
    decays,
    load_state,
    recall,
    shrinking,
    square,
    store,
    store_state,
    store_vectors,
    token_factors,
    tokens_of,
    vectors,
)
from gpudeck.accel.primitives.tiles.products import product
from gpudeck.accel.primitives.tiles.reductions import product_sums
from gpudeck.accel.primitives.tiles.scans import running


@triton.jit(do_not_specialize=["heads"])
def state_gradients(
    reads_ptr, gains_ptr, erases_ptr, solved_ptr, qb_ptr, dout_ptr, factors_ptr, chunks_ptr,
    sequences_ptr, dlast_ptr, dstates_ptr, dx_ptr, dstart_ptr, heads, scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, ERASES: tl.constexpr,
    SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the state after each chunk, of x, and of the start.

    It is `scan` in reverse, and like it holds the state's gradient transposed. If only the gradient
    of the start is wanted, that of the last state counts as zero.
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    shared, share = head // SHARED, heads // SHARED
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    chunk, begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    if dlast_ptr is None:
        dstate = tl.zeros([BLOCK, WIDTH], tl.float32)
        count = recall(factors_ptr, chunk, count, head, heads, dims, 1, KEYS, WIDTH, CHUNK, CHANNEL)
    else:
        dstate = tl.trans(load_state(dlast_ptr, sequence, head, heads, dims, values, KEYS, VALUES))
    last = chunk + tl.maximum(count - 1, 0)
    next_shrink = shrinking(factors_ptr, last, head, heads, dims, KEYS, CHUNK, CHANNEL)
    for n in range(count):
        before_it = count - 1 - n
        here, first = chunk + before_it, begin + before_it * CHUNK
        length = tl.minimum(end - first, CHUNK)
        shrink, following = next_shrink, chunk + tl.maximum(before_it - 1, 0)
        next_shrink = shrinking(factors_ptr, following, head, heads, dims, KEYS, CHUNK, CHANNEL)
        after = dstate.to(COMPUTE)
        if dstates_ptr is not None:
            store_state(
                dstates_ptr, tl.trans(after), place + before_it, head, heads, dims, values, KEYS,
                VALUES,
            )  # fmt: skip
        dstate *= shrink[None, :] if CHANNEL else shrink
        dout = tl.trans(store(dout_ptr, first, tokens, length, head, heads, values, VALUES))
        reached = token_factors(factors_ptr, here, head, heads, tokens, False, CHUNK, CHANNEL)
        if ERASES:
            erases = store(erases_ptr, first, tokens, length, shared, share, dims, KEYS)
            gains = erases
            if CHANNEL:
                gains = store(gains_ptr, first, tokens, length, shared, share, dims, KEYS)
            left = token_factors(factors_ptr, here, head, heads, tokens, True, CHUNK, CHANNEL)
            du = product(after, tl.trans(gains), COMPUTE, PRECISION) * left[None, :]
            qb = tl.load(square(qb_ptr, here, head, heads, tokens, tokens, CHUNK))
            du += product(dout, qb, COMPUTE, PRECISION)
            solved = tl.load(square(solved_ptr, here, head, heads, tokens, tokens, CHUNK))
            dx = product(du, solved, COMPUTE, PRECISION)
            if dx_ptr is not None:
                store_vectors(
                    dx_ptr, tl.trans(dx), first, tokens, length, head, heads, values, VALUES
                )
            if not CHANNEL:
                dx *= reached[None, :] * SIGN
            dstate += product(dx, erases, COMPUTE, PRECISION)
        reads = store(reads_ptr, first, tokens, length, shared, share, dims, KEYS)
        if not CHANNEL:
            dout = dout.to(tl.float32) * (reached[None, :] * scale)
        dstate += product(dout, reads, COMPUTE, PRECISION)
    store_state(dstart_ptr, tl.trans(dstate), sequence, head, heads, dims, values, KEYS, VALUES)


@triton.jit(do_not_specialize=["heads"])
def score_gradients(
    keys_ptr, v_ptr, u_ptr, dout_ptr, dx_ptr, factors_ptr, qk_ptr, ak_ptr, dstates_ptr, chunks_ptr,
    dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, dv_ptr, heads,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, PLAIN: tl.constexpr,
    ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a chunk's scores and of v; one program a chunk and head.

    Where nothing but corrections is written, the gradient of v is that of x.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    place = tl.load(chunks_ptr + chunk * 3 + 2)
    shared, share = head // SHARED, heads // SHARED
    tokens = tl.arange(0, CHUNK)
    left = token_factors(factors_ptr, chunk, head, heads, tokens, True, CHUNK, CHANNEL)
    dqk = tl.zeros([CHUNK, CHUNK], tl.float32)
    dqb, dak, dab = dqk, dqk, dqk
    for begin in range(0, VALUES, BLOCK):
        values = begin + tl.arange(0, BLOCK)
        dout = store(dout_ptr, first, tokens, length, head, heads, values, VALUES)
        if ERASES:
            u = store(u_ptr, first, tokens, length, head, heads, values, VALUES)
            dx = store(dx_ptr, first, tokens, length, head, heads, values, VALUES)
            dqb += product(dout, tl.trans(u), COMPUTE, PRECISION)
            dab += product(dx, tl.trans(u), COMPUTE, PRECISION)
        if PLAIN:
            v = store(v_ptr, first, tokens, length, head, heads, values, VALUES)
            dqk += product(dout, tl.trans(v), COMPUTE, PRECISION)
            qk = tl.load(square(qk_ptr, chunk, head, heads, tokens, tokens, CHUNK))
            dv = product(tl.trans(qk), dout, COMPUTE, PRECISION)
            if ERASES:
                dak += product(dx, tl.trans(v), COMPUTE, PRECISION)
                ak = tl.load(square(ak_ptr, chunk, head, heads, tokens, tokens, CHUNK))
                dv += product(tl.trans(ak), dx, COMPUTE, PRECISION)
            by_state = tl.zeros([CHUNK, BLOCK], tl.float32)
            for key in range(0, KEYS, KEY_BLOCK):
                dims = key + tl.arange(0, KEY_BLOCK)
                k = store(keys_ptr, first, tokens, length, shared, share, dims, KEYS)
                dstate = load_state(dstates_ptr, place, head, heads, dims, values, KEYS, VALUES)
                by_state += product(k, dstate, COMPUTE, PRECISION)
            dv += by_state * left[:, None]
            store_vectors(dv_ptr, dv, first, tokens, length, head, heads, values, VALUES)
    seen, past = tokens[:, None] >= tokens[None, :], tokens[:, None] > tokens[None, :]
    if PLAIN:
        out = square(dqk_ptr, chunk, head, heads, tokens, tokens, CHUNK)
        tl.store(out, tl.where(seen, dqk, 0.0).to(dqk_ptr.dtype.element_ty))
    if ERASES:
        out = square(dqb_ptr, chunk, head, heads, tokens, tokens, CHUNK)
        tl.store(out, tl.where(seen, dqb, 0.0).to(dqb_ptr.dtype.element_ty))
        out = square(dab_ptr, chunk, head, heads, tokens, tokens, CHUNK)
        tl.store(out, tl.where(past, dab, 0.0).to(dab_ptr.dtype.element_ty))
        if PLAIN:
            out = square(dak_ptr, chunk, head, heads, tokens, tokens, CHUNK)
            tl.store(out, tl.where(past, dak, 0.0).to(dak_ptr.dtype.element_ty))


@triton.jit
def both_ways(
    dscores_ptr, chunk, head, heads, rows, tokens, factor, as_rows, as_columns, by_rows, by_columns,
    CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Add to the gradients of a block's rows and columns those by one kind of scores.

    `as_rows` and `as_columns` [CHUNK, dims] are what all tokens of the chunk multiply the block
    with; `factor` [ROWS, CHUNK] stands beside the scores with a decay for each head.
    """
    one_way = tl.load(square(dscores_ptr, chunk, head, heads, rows, tokens, CHUNK))
    if not CHANNEL:
        one_way = one_way.to(tl.float32) * factor
    other_way = one_way
    if ROWS != CHUNK:
        other_way = tl.load(square(dscores_ptr, chunk, head, heads, tokens, rows, CHUNK))
    by_rows += product(one_way, as_columns, COMPUTE, PRECISION)
    by_columns += product(tl.trans(other_way), as_rows, COMPUTE, PRECISION)
    return by_rows, by_columns


@triton.jit
def replace(
    a_ptr, b_ptr, beta_ptr, first, rows, length, head, heads, dims,
    SIZE: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Load rows of b as float32, which is beta a in a delta rule."""
    if b_ptr is None:
        b = vectors(a_ptr, first, rows, length, head // GROUP, heads // GROUP, dims, SIZE)
        b *= betas(beta_ptr, first, rows, length, head, heads)[:, None]
    else:
        b = vectors(b_ptr, first, rows, length, head, heads, dims, SIZE)
    return b


@triton.jit
def round_to(x, COMPUTE: tl.constexpr):
    """Return what enters a product as a factor, in float32."""
    return x.to(COMPUTE).to(tl.float32)


@triton.jit
def block_gradients(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, u_ptr, dout_ptr, dx_ptr, decay_ptr, sums_ptr,
    states_ptr, dstates_ptr, dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, chunks_ptr, dq_ptr, dk_ptr,
    da_ptr, db_ptr, dbeta_ptr, dsums_ptr, dpast_ptr, block, heads, scale,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr,
    STRONGEST: tl.constexpr, PLAIN: tl.constexpr, ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr,
    SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of q, k, a and b of a block of tokens, and of the sums of decays.

    With a decay for each head the gradients of sums are those of this block of channels, [tokens,
    heads, blocks].

    Returns:
        This block's part of the gradient of the sum at the chunk's end, of each channel.
    """
    chunk, head = tl.program_id(0), tl.program_id(2)
    shared, share = head // GROUP, heads // GROUP
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    place = tl.load(chunks_ptr + chunk * 3 + 2)
    tokens, rows = tl.arange(0, CHUNK), block * ROWS + tl.arange(0, ROWS)
    dims = tl.program_id(1) * KEY_BLOCK + tl.arange(0, KEY_BLOCK)

    dq = tl.zeros([ROWS, KEY_BLOCK], tl.float32)
    dk, da, db = dq, dq, dq
    dend = tl.zeros([KEY_BLOCK], tl.float32)
    for begin in range(0, VALUES, BLOCK):
        values = begin + tl.arange(0, BLOCK)
        dout = store(dout_ptr, first, rows, length, head, heads, values, VALUES)
        state = load_state(states_ptr, place, head, heads, dims, values, KEYS, VALUES)
        dstate = load_state(dstates_ptr, place, head, heads, dims, values, KEYS, VALUES)
        dend += product_sums(state, dstate)
        dq += product(dout, tl.trans(state), COMPUTE, PRECISION)
        if PLAIN:
            v = store(v_ptr, first, rows, length, head, heads, values, VALUES)
            dk += product(v, tl.trans(dstate), COMPUTE, PRECISION)
        if ERASES:
            dx = store(dx_ptr, first, rows, length, head, heads, values, VALUES)
            da += product(dx, tl.trans(state), COMPUTE, PRECISION)
            u = store(u_ptr, first, rows, length, head, heads, values, VALUES)
            db += product(u, tl.trans(dstate), COMPUTE, PRECISION)

    # The factors of reading and of writing: e^G and e^{G_C - G} of what the state gave, a part of
    # each now (`until`, `from_here`) and a part of both kinds of gradients at last.
    w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
    whole = tl.sum(w, 0)[None, :]
    if CHANNEL:
        near, near_w, all_sums, _ = around_the_middle(
            decay_ptr, sums_ptr, first, length, block, head, heads, dims, KEYS, CHUNK, ROWS,
            STRONGEST,
        )  # fmt: skip
        middle = tl.sum(tl.where((tokens <= block * ROWS + ROWS // 2)[:, None], w, 0.0), 0)[None, :]
        until, from_here = tl.exp(middle), tl.exp(whole - middle)
        dq, da, dk, db = dq * until, da * until, dk * from_here, db * from_here
        reading, writing = tl.exp(near), tl.exp(-near)
        erasing = tl.exp(near - near_w) if EXCLUSIVE else reading
        factor = 1.0
    else:
        sums = running(w, False)
        dq *= tl.exp(sums)
        da *= tl.exp(sums)
        dk *= tl.exp(whole - sums)
        db *= tl.exp(whole - sums)
        reading, erasing, writing = 1.0, 1.0, 1.0
        factor = between(decay_ptr, first, length, rows, head, heads, CHUNK, STRONGEST)
    dend = tl.where(block == 0, dend * tl.sum(tl.exp(whole), 0), 0.0)
    if PLAIN:
        k = vectors(k_ptr, first, rows, length, shared, share, dims, KEYS) * writing
        dend += tl.sum(round_to(k, COMPUTE) * dk, 0)
    if ERASES:
        b = replace(a_ptr, b_ptr, beta_ptr, first, rows, length, head, heads, dims, KEYS, GROUP)
        dend += tl.sum(round_to(b * writing, COMPUTE) * db, 0)

    q_all = vectors(q_ptr, first, tokens, length, shared, share, dims, KEYS) * scale
    a_all, k_all, b_all = q_all, q_all, q_all
    if PLAIN:
        k_all = vectors(k_ptr, first, tokens, length, shared, share, dims, KEYS)
    if ERASES:
        a_all = vectors(a_ptr, first, tokens, length, shared, share, dims, KEYS) * SIGN
        b_all = replace(
            a_ptr, b_ptr, beta_ptr, first, tokens, length, head, heads, dims, KEYS, GROUP
        )
    if CHANNEL:
        # rows see no column after their block, and columns no row before it; factors could overflow
        columns = tl.where((tokens < (block + 1) * ROWS)[:, None], tl.exp(-all_sums), 0.0)
        here_on = (tokens >= block * ROWS)[:, None]
        q_all *= tl.where(here_on, tl.exp(all_sums), 0.0)
        a_all *= tl.where(here_on, tl.exp(all_sums - w if EXCLUSIVE else all_sums), 0.0)
        k_all *= columns
        b_all *= columns
    if PLAIN:
        dq, dk = both_ways(
            dqk_ptr, chunk, head, heads, rows, tokens, factor, q_all, k_all, dq, dk, CHUNK, ROWS,
            CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
    if ERASES:
        dq, db = both_ways(
            dqb_ptr, chunk, head, heads, rows, tokens, factor, q_all, b_all, dq, db, CHUNK, ROWS,
            CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
        da, db = both_ways(
            dab_ptr, chunk, head, heads, rows, tokens, factor, a_all, b_all, da, db, CHUNK, ROWS,
            CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
        if PLAIN:
            da, dk = both_ways(
                dak_ptr, chunk, head, heads, rows, tokens, factor, a_all, k_all, da, dk, CHUNK,
                ROWS, CHANNEL, COMPUTE, PRECISION,
            )  # fmt: skip

    # Gradients of sums take the very factors that entered the products, so that what a pair of
    # tokens gives to one sum and takes from the other cancels.
    q = vectors(q_ptr, first, rows, length, shared, share, dims, KEYS) * scale
    dsums = round_to(q * reading, COMPUTE) * dq
    store_vectors(dq_ptr, dq * reading * scale, first, rows, length, head, heads, dims, KEYS)
    if PLAIN:
        k = vectors(k_ptr, first, rows, length, shared, share, dims, KEYS)
        dsums -= round_to(k * writing, COMPUTE) * dk
        store_vectors(dk_ptr, dk * writing, first, rows, length, head, heads, dims, KEYS)
    if ERASES:
        a = vectors(a_ptr, first, rows, length, shared, share, dims, KEYS) * SIGN
        b = replace(a_ptr, b_ptr, beta_ptr, first, rows, length, head, heads, dims, KEYS, GROUP)
        dsums -= round_to(b * writing, COMPUTE) * db
        past = round_to(a * erasing, COMPUTE) * da
        da *= erasing * SIGN
        db *= writing
        if EXCLUSIVE:
            store_sums(dpast_ptr, past, first, rows, length, head, heads, dims, KEYS, CHANNEL)
        else:
            dsums += past
        if b_ptr is None:
            by_beta = a * db * SIGN
            store_sums(dbeta_ptr, by_beta, first, rows, length, head, heads, dims, KEYS, False)
            da += db * betas(beta_ptr, first, rows, length, head, heads)[:, None]
        else:
            store_vectors(db_ptr, db, first, rows, length, head, heads, dims, KEYS)
        store_vectors(da_ptr, da, first, rows, length, head, heads, dims, KEYS)
    store_sums(dsums_ptr, dsums, first, rows, length, head, heads, dims, KEYS, CHANNEL)
    return dend


@triton.jit(do_not_specialize=["heads"])
def input_gradients(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, u_ptr, dout_ptr, dx_ptr, decay_ptr, sums_ptr,
    states_ptr, dstates_ptr, dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, chunks_ptr, dq_ptr, dk_ptr,
    da_ptr, db_ptr, dbeta_ptr, dsums_ptr, dpast_ptr,
    dend_ptr, mild_ptr, heads, scale,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr,
    STRONGEST: tl.constexpr, PLAIN: tl.constexpr, ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr,
    SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the inputs of a chunk, of the sums of its decays and of its end's.

    One program a chunk, a block of channels and a head. Of chunks that are told apart by
    `mild_ptr`, a launch with ROWS the whole chunk computes the mild ones, and one with fewer ROWS
    the others, in blocks.
    """
    chunk, head = tl.program_id(0), tl.program_id(2)
    if mild_ptr is not None:
        mild = tl.load(mild_ptr + chunk * heads + head) != 0
        if mild != (ROWS == CHUNK):
            return
    if ROWS == CHUNK:
        dend = block_gradients(
            q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, u_ptr, dout_ptr, dx_ptr, decay_ptr,
            sums_ptr, states_ptr, dstates_ptr, dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, chunks_ptr,
            dq_ptr, dk_ptr, da_ptr, db_ptr, dbeta_ptr, dsums_ptr, dpast_ptr, 0, heads, scale, KEYS,
            KEY_BLOCK, VALUES, BLOCK, GROUP, CHUNK, CHUNK, CHANNEL, STRONGEST, PLAIN, ERASES,
            EXCLUSIVE, SIGN, COMPUTE, PRECISION,
        )  # fmt: skip
    else:
        dend = tl.zeros([KEY_BLOCK], tl.float32)
        for block in range(CHUNK // ROWS):
            dend += block_gradients(
                q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, beta_ptr, u_ptr, dout_ptr, dx_ptr, decay_ptr,
                sums_ptr, states_ptr, dstates_ptr, dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, chunks_ptr,
                dq_ptr, dk_ptr, da_ptr, db_ptr, dbeta_ptr, dsums_ptr, dpast_ptr, block, heads,
                scale, KEYS, KEY_BLOCK, VALUES, BLOCK, GROUP, CHUNK, ROWS, CHANNEL, STRONGEST,
                PLAIN, ERASES, EXCLUSIVE, SIGN, COMPUTE, PRECISION,
            )  # fmt: skip
    if CHANNEL:
        dims = tl.program_id(1) * KEY_BLOCK + tl.arange(0, KEY_BLOCK)
        store_vectors(dend_ptr, dend[None, :], chunk, tl.arange(0, 1), 1, head, heads, dims, KEYS)
    else:
        at = (chunk * heads + head) * tl.num_programs(1) + tl.program_id(1)
        tl.store(dend_ptr + at, tl.sum(dend, 0))


@triton.jit
def store_sums(
    ptr, x, first, rows, length, head, heads, dims, SIZE: tl.constexpr, CHANNEL: tl.constexpr
):
    """Store gradients of sums of decays: every channel's, or this block of channels' together."""
    if CHANNEL:
        store_vectors(ptr, x, first, rows, length, head, heads, dims, SIZE)
    else:
        at = ((first + rows).to(tl.int64) * heads + head) * tl.num_programs(1) + tl.program_id(1)
        tl.store(ptr + at, tl.sum(x, 1), mask=rows < length)


@triton.jit(do_not_specialize=["heads"])
def decay_gradients(
    decay_ptr, dsums_ptr, dpast_ptr, dend_ptr, chunks_ptr, ddecay_ptr, heads,
    SIZE: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr,
    STRONGEST: tl.constexpr, EXCLUSIVE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of log decays: of all sums from a token on to its chunk's end.

    SIZE is the number of channels, or of the blocks of channels whose sums are added up.
    """
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    tokens, dims = tl.arange(0, CHUNK), tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    dsums = vectors(dsums_ptr, first, tokens, length, head, heads, dims, SIZE)
    past = tl.zeros_like(dsums)
    if EXCLUSIVE:
        past = vectors(dpast_ptr, first, tokens, length, head, heads, dims, SIZE)
    end = vectors(dend_ptr, chunk, tl.arange(0, 1), 1, head, heads, dims, SIZE)
    if CHANNEL:
        dw = tl.cumsum(dsums + past, 0, reverse=True) - past + end
        at = ((first + tokens).to(tl.int64)[:, None] * heads + head) * SIZE + dims[None, :]
        mask = (tokens < length)[:, None] & (dims < SIZE)[None, :]
    else:
        dw = tl.cumsum(tl.sum(dsums + past, 1), 0, reverse=True)
        dw += tl.sum(tl.sum(end, 1), 0) - tl.sum(past, 1)
        at = (first + tokens).to(tl.int64) * heads + head
        mask = tokens < length
    w = tl.load(decay_ptr + at, mask=mask, other=0.0)
    tl.store(ddecay_ptr + at, tl.where(w < STRONGEST, 0.0, dw), mask=mask)
