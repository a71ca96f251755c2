"""Compute outputs or gradients of a sequence in one pass over its chunks, in Triton.

This suffices where only k v^T is written and each head has one decay for all of its tokens. The
output is then e^{w (t - s)} (q_t k_s) v_s summed over s <= t, and the gradients are sums of the
same form: that of q with the values in place of the keys and the keys in place of the values, and
those of k and v from the last chunk to the first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.linear_attention.memory_kernels import (
    store,
    store_vectors,
    tokens_of,
)
from gpudeck.accel.primitives.tiles.products import product


@triton.jit
def pass_over(
    reads_ptr, keys_ptr, values_ptr, decay_ptr, chunks_ptr, sequences_ptr, start_ptr, out_ptr,
    last_ptr, block, blank, back, turned, heads, scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, STRONGEST: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Pass a block of the values of a sequence and head's state from chunk to chunk.

    `reads` are multiplied with the state of `keys` and `values` to give `out`:

        out      reads   keys    values
        outputs  q       k       v
        dq       dout    v       k
        dk       v       dout    q
        dv       k       q       dout

    As in `scan`, the state is held transposed, [BLOCK, WIDTH]. It begins with zeros if it is
    `blank`. `back` begins at the last chunk, and `turned` says that states lie in memory as
    [VALUES, KEYS].
    """
    head, sequence = tl.program_id(1), tl.program_id(2)
    shared, share = head // SHARED, heads // SHARED
    values = block * BLOCK + tl.arange(0, BLOCK)
    tokens, dims = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    chunk, begin, end, place, count = tokens_of(chunks_ptr, sequences_ptr, sequence)
    state_at = (sequence.to(tl.int64) * heads + head) * (KEYS * VALUES)
    state_at += dims[None, :] * tl.where(turned, 1, VALUES)
    state_at += values[:, None] * tl.where(turned, KEYS, 1)
    exists = (dims < KEYS)[None, :] & (values < VALUES)[:, None]
    state = tl.zeros([BLOCK, WIDTH], tl.float32)
    if start_ptr is not None:
        state += tl.load(start_ptr + state_at, mask=exists & (not blank), other=0.0)
    decay = tl.maximum(tl.load(decay_ptr + head), STRONGEST)
    apart = (tokens[None, :] - tokens[:, None]) * tl.where(back, -1, 1)
    between = tl.where(apart >= 0, tl.exp(decay * apart) * scale, 0.0)
    rising = tl.exp(decay * (tokens + 1)) * scale
    falling = tl.exp(decay * (CHUNK - 1 - tokens))
    for n in range(count):
        first = begin + tl.where(back, count - 1 - n, n) * CHUNK
        length = tl.minimum(end - first, CHUNK)
        left = falling
        if length < CHUNK:
            left = tl.exp(decay * tl.maximum(length - 1 - tokens, 0))
        before = state.to(COMPUTE)
        state *= tl.exp(decay * length)
        reads = store(reads_ptr, first, tokens, length, shared, share, dims, KEYS)
        keys = store(keys_ptr, first, tokens, length, shared, share, dims, KEYS)
        v = tl.trans(store(values_ptr, first, tokens, length, head, heads, values, VALUES))
        scores = product(keys, tl.trans(reads), COMPUTE, PRECISION) * between
        out = product(before, tl.trans(reads), COMPUTE, PRECISION)
        out *= tl.where(back, left, rising)[None, :]
        out += product(v, scores, COMPUTE, PRECISION)
        written = v.to(tl.float32) * tl.where(back, rising, left)[None, :]
        state += product(written, keys, COMPUTE, PRECISION)
        store_vectors(out_ptr, tl.trans(out), first, tokens, length, head, heads, values, VALUES)
    if last_ptr is not None:
        tl.store(last_ptr + state_at, state, mask=exists & (not turned))


@triton.jit(do_not_specialize=["heads"])
def outputs(
    q_ptr, k_ptr, v_ptr, decay_ptr, chunks_ptr, sequences_ptr, start_ptr, out_ptr, last_ptr, heads,
    scale,
    KEYS: tl.constexpr, WIDTH: tl.constexpr, VALUES: tl.constexpr, BLOCK: tl.constexpr,
    SHARED: tl.constexpr, CHUNK: tl.constexpr, STRONGEST: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the outputs of a sequence and head and its last state; one program BLOCK values."""
    pass_over(
        q_ptr, k_ptr, v_ptr, decay_ptr, chunks_ptr, sequences_ptr, start_ptr, out_ptr, last_ptr,
        tl.program_id(0), False, False, False, heads, scale, KEYS, WIDTH, VALUES, BLOCK, SHARED,
        CHUNK, STRONGEST, COMPUTE, PRECISION,
    )  # fmt: skip


@triton.jit(do_not_specialize=["heads"])
def gradients(
    q_ptr, k_ptr, v_ptr, dout_ptr, decay_ptr, chunks_ptr, sequences_ptr, start_ptr, dlast_ptr,
    dq_ptr, dk_ptr, dv_ptr, dstart_ptr, heads, scale,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr,
    STRONGEST: tl.constexpr, COMPUTE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of q, k, v and the state before the first token.

    The first third of the programs computes that of q, the second that of k, and the last that of v
    and of the state.
    """
    blocks = tl.num_programs(0) // 3
    role, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    of_q, of_k = role == 0, role == 1
    reads = tl.where(of_q, dout_ptr, tl.where(of_k, v_ptr, k_ptr))
    keys = tl.where(of_q, v_ptr, tl.where(of_k, dout_ptr, q_ptr))
    values = tl.where(of_q, k_ptr, tl.where(of_k, q_ptr, dout_ptr))
    out = tl.where(of_q, dq_ptr, tl.where(of_k, dk_ptr, dv_ptr))
    start, blank = dlast_ptr, of_q
    if start_ptr is not None:
        start, blank = tl.where(of_q, start_ptr, dlast_ptr), role < 0
    pass_over(
        reads, keys, values, decay_ptr, chunks_ptr, sequences_ptr, start, out, dstart_ptr, block,
        blank, role > 0, role < 2, heads, scale, SIZE, WIDTH, SIZE, BLOCK, 1, CHUNK, STRONGEST,
        COMPUTE, PRECISION,
    )  # fmt: skip
