"""Compute what lies between the matrix products of a layer over a prompt, in Triton.

One sequence, vectors as rows [T, C]. Activations are in the products' dtype; sums, the residual
stream and the recurrence are in fp32. `gpudeck.accel.rwkv.layers` computes the same in torch and is
the reference of the tests.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.rwkv.gpu_kernels import FALL, GROUP_EPS, LAYER_EPS, sigmoid


@triton.jit
def row(x_ptr, delta_ptr, number, at, inside, channels, ADDED: tl.constexpr):
    """Return row `number` of x [T, C] fp32, plus that of delta [T, C] if ADDED."""
    x = tl.load(x_ptr + number * channels + at, mask=inside, other=0.0)
    if ADDED:
        x += tl.load(delta_ptr + number * channels + at, mask=inside, other=0.0).to(tl.float32)
    return x


@triton.jit
def normed(x, weight, bias, inside, channels):
    """Return the LayerNorm of a row."""
    centred = tl.where(inside, x - tl.sum(x, 0) / channels, 0.0)
    return centred / tl.sqrt(tl.sum(centred * centred, 0) / channels + LAYER_EPS) * weight + bias


@triton.jit(do_not_specialize=["length"])
def mix_rows(
    x_ptr, delta_ptr, weight_ptr, bias_ptr, mixes_ptr, past_ptr, sum_ptr, out_ptr, shift_ptr,
    length, channels,
    MIXES: tl.constexpr, ADDED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write sum [T, C] = x + delta and out [MIXES, T, C], its LayerNorm mixed with the token
    before.

    One program a token. past [C] is the token before the first; shift [C] becomes the last one.
    Without ADDED, sum is x and is not written.
    """
    token = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < channels
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + at, mask=inside, other=0.0).to(tl.float32)
    x = row(x_ptr, delta_ptr, token, at, inside, channels, ADDED)
    if ADDED:
        tl.store(sum_ptr + token * channels + at, x, mask=inside)
    here = normed(x, weight, bias, inside, channels)
    before = normed(
        row(x_ptr, delta_ptr, tl.maximum(token - 1, 0), at, inside, channels, ADDED),
        weight,
        bias,
        inside,
        channels,
    )
    if token == 0:
        before = tl.load(past_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if token == length - 1:
        tl.store(shift_ptr + at, here.to(shift_ptr.dtype.element_ty), mask=inside)
    for number in tl.static_range(MIXES):
        share = tl.load(mixes_ptr + number * channels + at, mask=inside, other=0.0).to(tl.float32)
        mixed = here + (before - here) * share
        tl.store(
            out_ptr + (number * length + token) * channels + at,
            mixed.to(out_ptr.dtype.element_ty),
            mask=inside,
        )


@triton.jit
def block(length, channels, HEAD: tl.constexpr, TOKENS: tl.constexpr):
    """Return a head's channels [1, HEAD], offsets in [T, C] [TOKENS, HEAD], and which of them
    exist.
    """
    heads = channels // HEAD
    head = tl.program_id(0) % heads
    token = tl.program_id(0) // heads * TOKENS + tl.arange(0, TOKENS)
    at = head * HEAD + tl.arange(0, HEAD)[None, :]
    return at, token[:, None] * channels + at, (token < length)[:, None]


@triton.jit
def vector(ptr, at):
    """Load a vector of one head, [1, HEAD]."""
    return tl.load(ptr + at).to(tl.float32)


@triton.jit
def rows(ptr, here, there):
    """Load rows of one head, [TOKENS, HEAD]."""
    return tl.load(ptr + here, mask=there, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["length"])
def prepare_recurrence(
    k_ptr, v_ptr, decay_ptr, rate_ptr, share_ptr, first_ptr, decay_bias_ptr, rate_bias_ptr,
    share_bias_ptr, k_k_ptr, k_a_ptr, w_ptr, out_ptr,
    length, channels, FIRST: tl.constexpr, LOG: tl.constexpr, HEAD: tl.constexpr,
    TOKENS: tl.constexpr,
):  # fmt: skip
    """Prepare the recurrence: k, v and low-rank maps [T, C] -> w [T, C] fp32 and out [4, T, C]: k,
    v, a, b.

    The maps of decay, rate and residual come without their biases. first [T, C] are the first
    layer's values. FIRST: this is that layer, and they are not mixed in. LOG: w is the logarithm.
    """
    at, here, there = block(length, channels, HEAD, TOKENS)
    k, v = rows(k_ptr, here, there), rows(v_ptr, here, there)
    decay = sigmoid(rows(decay_ptr, here, there) + vector(decay_bias_ptr, at)) * FALL
    rate = sigmoid(rows(rate_ptr, here, there) + vector(rate_bias_ptr, at))
    if not FIRST:
        share = sigmoid(rows(share_ptr, here, there) + vector(share_bias_ptr, at))
        v += (rows(first_ptr, here, there) - v) * share
    removal = k * vector(k_k_ptr, at)
    removal = removal / tl.maximum(tl.sqrt(tl.sum(removal * removal, 1)), 1e-12)[:, None]
    size = length * channels
    k *= 1.0 + (rate - 1.0) * vector(k_a_ptr, at)
    tl.store(w_ptr + here, decay if LOG else tl.exp(decay), mask=there)
    tl.store(out_ptr + here, k.to(out_ptr.dtype.element_ty), mask=there)
    tl.store(out_ptr + size + here, v.to(out_ptr.dtype.element_ty), mask=there)
    tl.store(out_ptr + 2 * size + here, (-removal).to(out_ptr.dtype.element_ty), mask=there)
    tl.store(out_ptr + 3 * size + here, (removal * rate).to(out_ptr.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["length"])
def scan(
    r_ptr,
    w_ptr,
    vectors_ptr,
    state_ptr,
    y_ptr,
    length,
    channels,
    HEAD: tl.constexpr,
    ROWS: tl.constexpr,
    AHEAD: tl.constexpr,
):
    """Compute the recurrence of `gpudeck.accel.rwkv.wkv`: y [T, C] fp32, the state in place.

    r is [T, C], w [T, C] fp32; vectors [4, T, C] fp32 are k, v, a, b. A program has ROWS values of
    a head and loads AHEAD tokens ahead. A token's output and what the next one erases are sums over
    the same state, computed side by side, because every token waits for them.
    """
    parts = HEAD // ROWS
    head = tl.program_id(0) // parts
    key = tl.arange(0, HEAD)
    value = tl.program_id(0) % parts * ROWS + tl.arange(0, ROWS)
    memory = state_ptr + head * HEAD * HEAD + value[:, None] * HEAD + key[None, :]
    state = tl.load(memory)
    size = length * channels
    at, own = vectors_ptr + head * HEAD + key, vectors_ptr + size + head * HEAD + value
    r_at, y_at = r_ptr + head * HEAD + key, y_ptr + head * HEAD + value
    w_at = w_ptr + head * HEAD + key
    erased = tl.sum(state * tl.load(at + 2 * size)[None, :], 1)
    for token in tl.range(length, num_stages=AHEAD):
        w, k, v, b = tl.load(w_at), tl.load(at), tl.load(own), tl.load(at + 3 * size)
        r = tl.load(r_at).to(tl.float32)
        a = tl.load(at + 2 * size + tl.where(token + 1 < length, channels, 0))
        state = state * w[None, :] + erased[:, None] * b[None, :] + v[:, None] * k[None, :]
        erased = tl.sum(state * a[None, :], 1)
        tl.store(y_at, tl.sum(state * r[None, :], 1))
        at += channels
        own += channels
        r_at += channels
        w_at += channels
        y_at += channels
    tl.store(memory, state)


@triton.jit(do_not_specialize=["length"])
def finish_recurrence(
    y_ptr,
    r_ptr,
    vectors_ptr,
    gate_ptr,
    r_k_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    length,
    channels,
    HEAD: tl.constexpr,
    TOKENS: tl.constexpr,
):
    """Compute out [T, C] = (GroupNorm of y + the token's own bonus) times the gate; vectors as in
    `scan`.
    """
    at, here, there = block(length, channels, HEAD, TOKENS)
    size = length * channels
    y, r = rows(y_ptr, here, there), rows(r_ptr, here, there)
    k, v = rows(vectors_ptr, here, there), rows(vectors_ptr + size, here, there)
    centred = y - tl.sum(y, 1)[:, None] / HEAD
    y = centred / tl.sqrt(tl.sum(centred * centred, 1)[:, None] / HEAD + GROUP_EPS) * vector(
        weight_ptr, at
    ) + vector(bias_ptr, at)
    bonus = tl.sum(r * k * vector(r_k_ptr, at), 1)[:, None] * v
    tl.store(
        out_ptr + here,
        ((y + bonus) * rows(gate_ptr, here, there)).to(out_ptr.dtype.element_ty),
        mask=there,
    )


@triton.jit
def widen(matrix_ptr, scales_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Convert a matrix [rows, columns] in int8 with row scales to floating point. One program a
    row.
    """
    number = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    here = number.to(tl.int64) * columns + at
    values = tl.load(matrix_ptr + here, mask=at < columns, other=0).to(tl.float32) * tl.load(
        scales_ptr + number
    )
    tl.store(out_ptr + here, values.to(out_ptr.dtype.element_ty), mask=at < columns)
