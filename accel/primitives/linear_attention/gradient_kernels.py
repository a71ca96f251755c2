"""The backward pass in Triton: states in reverse, then scores, inputs and decays of every chunk.

Layouts and names are those of `kernels`; d stands for the gradient with respect to what follows.
With x the right side of the chunk's triangular system, T x = u, dx = T^T du, and the scores `ab`
inside T have the gradient dx u^T.

A decay acts only through products e^{G_t - G_s}, so that the gradient of the sum G_t is q_t dq_t +
a_t da_t - k_t dk_t - b_t db_t, a channel at a time, and at a chunk's end also S dS.
"""

from __future__ import annotations

import triton
import triton.language as tl

from accel.primitives.linear_attention.kernels import (
    around_the_middle,
    between,
    decays,
    load_state,
    square,
    store_state,
    store_vectors,
    stored,
    tokens_of,
    vectors,
)
from accel.primitives.tiles.products import product
from accel.primitives.tiles.scans import running


@triton.jit(do_not_specialize=["heads"])
def state_gradients(
    q_ptr, gains_ptr, erases_ptr, qb_ptr, dout_ptr, decay_ptr, chunks_ptr, sequences_ptr, dlast_ptr,
    dstates_ptr, du_ptr, dstart_ptr, heads, scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of the state after each chunk, of the corrections, and of the start."""
    head, sequence = tl.program_id(1), tl.program_id(2)
    values = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    chunk = tl.load(sequences_ptr + sequence * 2)
    begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    dstate = load_state(dlast_ptr, sequence, head, heads, dims, values, KEYS, VALUES)
    for n in range(count):
        before_it = count - 1 - n
        here, first = chunk + before_it, begin + before_it * CHUNK
        length = tl.minimum(end - first, CHUNK)
        store_state(dstates_ptr, dstate, place + before_it, head, heads, dims, values, KEYS, VALUES)
        w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
        sums, whole = running(w, CHANNEL), tl.sum(w, 0)
        q = vectors(q_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
        dout = stored(dout_ptr, first, tokens, length, head, heads, values, VALUES)
        q *= tl.exp(sums) * scale
        before = tl.exp(whole)[:, None] * dstate
        before += product(tl.trans(q), dout, COMPUTE, PRECISION)
        if ERASES:
            gains = stored(gains_ptr, first, tokens, length, head, heads, dims, KEYS)
            qb = tl.load(square(qb_ptr, here, head, heads, tokens, tokens, CHUNK))
            du = product(tl.trans(qb), dout, COMPUTE, PRECISION)
            du += product(gains, dstate, COMPUTE, PRECISION)
            store_vectors(du_ptr, du, first, tokens, length, head, heads, values, VALUES)
            erases = stored(erases_ptr, first, tokens, length, head, heads, dims, KEYS)
            before += product(tl.trans(erases), du, COMPUTE, PRECISION)
        dstate = before
    if dstart_ptr is not None:
        store_state(dstart_ptr, dstate, sequence, head, heads, dims, values, KEYS, VALUES)


@triton.jit(do_not_specialize=["heads"])
def score_gradients(
    k_ptr, v_ptr, u_ptr, dout_ptr, du_ptr, decay_ptr, qk_ptr, ak_ptr, solved_ptr, dstates_ptr,
    chunks_ptr, dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, dx_ptr, dv_ptr, heads,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, CHANNEL: tl.constexpr, STRONGEST: tl.constexpr,
    PLAIN: tl.constexpr, ERASES: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a chunk's scores, of x and of v; one program a chunk and head."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    first, length = tl.load(chunks_ptr + chunk * 3), tl.load(chunks_ptr + chunk * 3 + 1)
    place = tl.load(chunks_ptr + chunk * 3 + 2)
    tokens = tl.arange(0, CHUNK)
    dqk = tl.zeros([CHUNK, CHUNK], tl.float32)
    dqb, dak, dab = dqk, dqk, dqk
    for begin in range(0, VALUES, BLOCK):
        values = begin + tl.arange(0, BLOCK)
        dout = stored(dout_ptr, first, tokens, length, head, heads, values, VALUES)
        dv = tl.zeros([CHUNK, BLOCK], tl.float32)
        dx = dv
        if ERASES:
            u = stored(u_ptr, first, tokens, length, head, heads, values, VALUES)
            du = stored(du_ptr, first, tokens, length, head, heads, values, VALUES)
            solved = tl.load(square(solved_ptr, chunk, head, heads, tokens, tokens, CHUNK))
            dx = product(tl.trans(solved), du, COMPUTE, PRECISION)
            store_vectors(dx_ptr, dx, first, tokens, length, head, heads, values, VALUES)
            dqb += product(dout, tl.trans(u), COMPUTE, PRECISION)
            dab += product(dx, tl.trans(u), COMPUTE, PRECISION)
            dv = dx
        if PLAIN:
            v = stored(v_ptr, first, tokens, length, head, heads, values, VALUES)
            dqk += product(dout, tl.trans(v), COMPUTE, PRECISION)
            qk = tl.load(square(qk_ptr, chunk, head, heads, tokens, tokens, CHUNK))
            dv = product(tl.trans(qk), dout, COMPUTE, PRECISION)
            if ERASES:
                dak += product(dx, tl.trans(v), COMPUTE, PRECISION)
                ak = tl.load(square(ak_ptr, chunk, head, heads, tokens, tokens, CHUNK))
                dv += product(tl.trans(ak), dx, COMPUTE, PRECISION)
            for key in range(0, KEYS, KEY_BLOCK):
                dims = key + tl.arange(0, KEY_BLOCK)
                w = decays(
                    decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST
                )
                k = vectors(k_ptr, first, tokens, length, head // GROUP, heads // GROUP, dims, KEYS)
                k *= tl.exp(tl.sum(w, 0)[None, :] - running(w, CHANNEL))
                dstate = load_state(dstates_ptr, place, head, heads, dims, values, KEYS, VALUES)
                dv += product(k, dstate, COMPUTE, PRECISION)
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
    dscores_ptr, chunk, head, heads, rows, tokens, row_factor, column_factor, as_rows, as_columns,
    CHUNK: tl.constexpr, CHANNEL: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the gradients of a block's rows and columns by those of one kind of scores.

    `as_rows` and `as_columns` [CHUNK, dims] are what all tokens of the chunk multiply the block
    with. The factors stand beside the results, [ROWS, dims], or with a decay for each head beside
    the scores, [ROWS, CHUNK].
    """
    by_rows = tl.load(square(dscores_ptr, chunk, head, heads, rows, tokens, CHUNK)).to(tl.float32)
    by_columns = tl.load(square(dscores_ptr, chunk, head, heads, tokens, rows, CHUNK))
    by_columns = by_columns.to(tl.float32)
    if not CHANNEL:
        by_rows *= row_factor
        by_columns *= column_factor
    drows = product(by_rows, as_columns, COMPUTE, PRECISION)
    dcolumns = product(tl.trans(by_columns), as_rows, COMPUTE, PRECISION)
    if CHANNEL:
        drows *= row_factor
        dcolumns *= column_factor
    return drows, dcolumns


@triton.jit(do_not_specialize=["heads"])
def input_gradients(
    q_ptr, k_ptr, v_ptr, a_ptr, b_ptr, u_ptr, dout_ptr, dx_ptr, decay_ptr, states_ptr, dstates_ptr,
    dqk_ptr, dqb_ptr, dak_ptr, dab_ptr, chunks_ptr, dq_ptr, dk_ptr, da_ptr, db_ptr, dsums_ptr,
    dpast_ptr, dend_ptr, heads, scale,
    KEYS: tl.constexpr, KEY_BLOCK: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    GROUP: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, CHANNEL: tl.constexpr,
    STRONGEST: tl.constexpr, PLAIN: tl.constexpr, ERASES: tl.constexpr, EXCLUSIVE: tl.constexpr,
    SIGN: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of q, k, a and b of a block of tokens, and of the sums of decays.

    One program a block of ROWS tokens, a block of channels and a head. With a decay for each head
    the gradients of sums are those of this block of channels, [tokens, heads, blocks].
    """
    chunk, block = tl.program_id(0) // (CHUNK // ROWS), tl.program_id(0) % (CHUNK // ROWS)
    head = tl.program_id(2)
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
        dout = stored(dout_ptr, first, rows, length, head, heads, values, VALUES)
        state = load_state(states_ptr, place, head, heads, dims, values, KEYS, VALUES)
        dstate = load_state(dstates_ptr, place, head, heads, dims, values, KEYS, VALUES)
        after = load_state(states_ptr, place + 1, head, heads, dims, values, KEYS, VALUES)
        dend += tl.sum(after.to(tl.float32) * dstate.to(tl.float32), 1)
        dq += product(dout, tl.trans(state), COMPUTE, PRECISION)
        if PLAIN:
            v = stored(v_ptr, first, rows, length, head, heads, values, VALUES)
            dk += product(v, tl.trans(dstate), COMPUTE, PRECISION)
        if ERASES:
            dx = stored(dx_ptr, first, rows, length, head, heads, values, VALUES)
            da += product(dx, tl.trans(state), COMPUTE, PRECISION)
            u = stored(u_ptr, first, rows, length, head, heads, values, VALUES)
            db += product(u, tl.trans(dstate), COMPUTE, PRECISION)

    w = decays(decay_ptr, first, tokens, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
    w_rows = decays(decay_ptr, first, rows, length, head, heads, dims, KEYS, CHANNEL, STRONGEST)
    sums = running(w_rows, CHANNEL)
    sums += tl.sum(tl.where((tokens < block * ROWS)[:, None], w, 0.0), 0)[None, :]
    until_end = tl.exp(tl.sum(w, 0)[None, :] - sums)
    dq *= tl.exp(sums)
    da *= tl.exp(sums - w_rows if EXCLUSIVE else sums)
    dk *= until_end
    db *= until_end

    q_rows = vectors(q_ptr, first, rows, length, shared, share, dims, KEYS) * scale
    q_all = vectors(q_ptr, first, tokens, length, shared, share, dims, KEYS) * scale
    a_rows, a_all, k_rows, k_all, b_rows, b_all = q_rows, q_all, q_rows, q_all, q_rows, q_all
    if PLAIN:
        k_rows = vectors(k_ptr, first, rows, length, shared, share, dims, KEYS)
        k_all = vectors(k_ptr, first, tokens, length, shared, share, dims, KEYS)
    if ERASES:
        a_rows = vectors(a_ptr, first, rows, length, shared, share, dims, KEYS) * SIGN
        a_all = vectors(a_ptr, first, tokens, length, shared, share, dims, KEYS) * SIGN
        b_rows = vectors(b_ptr, first, rows, length, head, heads, dims, KEYS)
        b_all = vectors(b_ptr, first, tokens, length, head, heads, dims, KEYS)
    if CHANNEL:
        near, near_w, all_sums = around_the_middle(
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
        q_factor, column_factor = tl.exp(near), tl.exp(-near)
        a_factor = tl.exp(near - near_w) if EXCLUSIVE else q_factor
        # rows see no column after their block, and columns no row before it; factors could overflow
        as_columns = tl.where((tokens < (block + 1) * ROWS)[:, None], tl.exp(-all_sums), 0.0)
        from_here = (tokens >= block * ROWS)[:, None]
        as_rows = tl.where(from_here, tl.exp(all_sums), 0.0)
        as_a_rows = tl.where(from_here, tl.exp(all_sums - w), 0.0) if EXCLUSIVE else as_rows
        k_all *= as_columns
        b_all *= as_columns
        a_all *= as_a_rows
        q_all *= as_rows
        a_column_factor = column_factor
    else:
        q_factor = between(decay_ptr, first, length, rows, head, heads, False, CHUNK, STRONGEST)
        a_factor = q_factor
        if EXCLUSIVE:
            a_factor = between(decay_ptr, first, length, rows, head, heads, True, CHUNK, STRONGEST)
        column_factor, a_column_factor = q_factor, a_factor
    if PLAIN:
        by_q, by_k = both_ways(
            dqk_ptr, chunk, head, heads, rows, tokens, q_factor, column_factor, q_all,
            k_all, CHUNK, CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
        dq += by_q
        dk += by_k
    if ERASES:
        by_q, by_b = both_ways(
            dqb_ptr, chunk, head, heads, rows, tokens, q_factor, column_factor, q_all,
            b_all, CHUNK, CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
        dq += by_q
        db += by_b
        by_a, by_b = both_ways(
            dab_ptr, chunk, head, heads, rows, tokens, a_factor, a_column_factor, a_all,
            b_all, CHUNK, CHANNEL, COMPUTE, PRECISION,
        )  # fmt: skip
        da += by_a
        db += by_b
        if PLAIN:
            by_a, by_k = both_ways(
                dak_ptr, chunk, head, heads, rows, tokens, a_factor, a_column_factor, a_all,
                k_all, CHUNK, CHANNEL, COMPUTE, PRECISION,
            )  # fmt: skip
            da += by_a
            dk += by_k

    dsums = q_rows * dq
    if PLAIN:
        dsums -= k_rows * dk
        store_vectors(dk_ptr, dk, first, rows, length, head, heads, dims, KEYS)
    if ERASES:
        dsums -= b_rows * db
        if EXCLUSIVE:
            store_sums(
                dpast_ptr, a_rows * da, first, rows, length, head, heads, dims, KEYS, CHANNEL
            )
        else:
            dsums += a_rows * da
        store_vectors(da_ptr, da * SIGN, first, rows, length, head, heads, dims, KEYS)
        store_vectors(db_ptr, db, first, rows, length, head, heads, dims, KEYS)
    store_vectors(dq_ptr, dq * scale, first, rows, length, head, heads, dims, KEYS)
    store_sums(dsums_ptr, dsums, first, rows, length, head, heads, dims, KEYS, CHANNEL)
    if block == CHUNK // ROWS - 1:
        one = tl.arange(0, 1)
        if CHANNEL:
            store_vectors(dend_ptr, dend[None, :], chunk, one, 1, head, heads, dims, KEYS)
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
