"""Compute one token of many sequences in Triton: four kernels in turn, captured in one CUDA graph.

Activations are small and in fp32; each weight is read once. `project` serves every matrix: a table
tells each program which rows of which matrix to compute, so that matrices of one kind share a
launch. `multiply` does the same for a single sequence. Decays, gates, the recurrence and its group
norm are one kernel. `gpudeck.accel.rwkv.layers` computes the same in torch and is the reference of
the tests.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

COLUMNS = 10
"""Columns of `project`'s table: offsets of weights, scales, x and out; rows and depth; strides of
x, out and weights; activation.

Multiples of 16 are the offsets and strides of weights and x, and of rows and depth the one that is
contiguous in memory.
"""
TANH, SIGMOID, SQUARED_RELU = 1, 2, 3
_TANH, _SIGMOID, _SQUARED_RELU = (
    tl.constexpr(TANH),
    tl.constexpr(SIGMOID),
    tl.constexpr(SQUARED_RELU),
)
_COLUMNS = tl.constexpr(COLUMNS)
LAYER_EPS, GROUP_EPS, FALL = (
    tl.constexpr(1e-5),
    tl.constexpr(64e-5),
    tl.constexpr(-0.6065306597126334),
)


@triton.jit
def sigmoid(x):
    """Return the logistic function of x."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def mix(
    x_ptr, delta_ptr, weight_ptr, bias_ptr, mixes_ptr, shift_ptr, out_ptr, channels, shift_stride,
    BATCH: tl.constexpr, MIXES: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Add the sum of delta [SPLITS, B, C] to x [B, C], and write its mixed LayerNorm to out [MIXES,
    B, C].

    The LayerNorm is mixed with the last token's and takes its place. One program a sequence. With
    MIXES 0, out [B, C] is the LayerNorm itself.
    """
    if EARLY:
        gdc_launch_dependents()
        gdc_wait()
    sequence = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < channels
    here = sequence * channels + at
    x = tl.load(x_ptr + here, mask=inside, other=0.0)
    for split in tl.static_range(SPLITS):
        x += tl.load(delta_ptr + split * BATCH * channels + here, mask=inside, other=0.0)
    if SPLITS > 0:
        tl.store(x_ptr + here, x, mask=inside)
    mean = tl.sum(x, 0) / channels
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, 0) / channels + LAYER_EPS)
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0).to(tl.float32)
    normed = centred * scale * weight + tl.load(bias_ptr + at, mask=inside, other=0.0).to(
        tl.float32
    )
    if MIXES == 0:
        tl.store(out_ptr + here, normed, mask=inside)
    else:
        memory = shift_ptr + sequence * shift_stride + at
        past = tl.load(memory, mask=inside, other=0.0).to(tl.float32) - normed
        tl.store(memory, normed.to(shift_ptr.dtype.element_ty), mask=inside)
        for number in tl.static_range(MIXES):
            share = tl.load(mixes_ptr + number * channels + at, mask=inside, other=0.0).to(
                tl.float32
            )
            tl.store(out_ptr + number * BATCH * channels + here, normed + past * share, mask=inside)


@triton.jit
def activated(x, activation):
    """Return x after the product's activation."""
    if activation == _TANH:
        x = 2.0 * sigmoid(2.0 * x) - 1.0
    elif activation == _SIGMOID:
        x = sigmoid(x)
    elif activation == _SQUARED_RELU:
        x = tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    return x


@triton.jit
def entry(x_ptr, weights_ptr, scales_ptr, out_ptr, table_ptr, TURNED: tl.constexpr):
    """Return this program's row of the table: pointers, then numbers.

    The multiples of 16 that the table guarantees allow wide loads.
    """
    line = table_ptr + tl.program_id(0) * _COLUMNS
    x = x_ptr + tl.multiple_of(tl.load(line + 2), 16)
    weights = weights_ptr + tl.multiple_of(tl.load(line), 16)
    rows, depth = tl.load(line + 4).to(tl.int32), tl.load(line + 5).to(tl.int32)
    if TURNED:
        rows = tl.multiple_of(rows, 16)
    else:
        depth = tl.multiple_of(depth, 16)
    x_stride, out_stride = (
        tl.multiple_of(tl.load(line + 6).to(tl.int32), 16),
        tl.load(line + 7).to(tl.int32),
    )
    stride = tl.multiple_of(tl.load(line + 8).to(tl.int32), 16)
    activation = tl.load(line + 9).to(tl.int32)
    return (
        x,
        weights,
        scales_ptr + tl.load(line + 1),
        out_ptr + tl.load(line + 3),
        rows,
        depth,
        x_stride,
        out_stride,
        stride,
        activation,
    )


@triton.jit
def multiply(
    x_ptr,
    weights_ptr,
    scales_ptr,
    out_ptr,
    table_ptr,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    SCALED: tl.constexpr,
    EARLY: tl.constexpr,
):
    """Compute out [rows] = f(block of a matrix times x [depth]) for one sequence.

    The table names the block. A program takes ROWS rows at a time, each whole in DEPTH, and loads
    the next ones ahead, the first before the previous kernel has ended.
    """
    if EARLY:
        gdc_launch_dependents()
    x_at, weights, scales, out, rows, depth, _, _, stride, activation = entry(
        x_ptr, weights_ptr, scales_ptr, out_ptr, table_ptr, False
    )
    row = tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    deep = k < depth
    at = weights + row[:, None] * stride + k[None, :]
    weight = tl.load(at, mask=(row < rows)[:, None] & deep[None, :], other=0)
    if EARLY:
        gdc_wait()
    x = tl.load(x_at + k, mask=deep, other=0.0)
    for first in range(0, rows, ROWS):
        at += ROWS * stride
        coming = tl.load(at, mask=(first + ROWS + row < rows)[:, None] & deep[None, :], other=0)
        acc = tl.sum(weight.to(tl.float32) * x[None, :], 1)
        there = first + row < rows
        if SCALED:
            acc *= tl.load(scales + first + row, mask=there, other=0.0)
        tl.store(out + first + row, activated(acc, activation), mask=there)
        weight = coming


@triton.jit
def project(
    x_ptr, weights_ptr, scales_ptr, out_ptr, table_ptr,
    BATCH: tl.constexpr, BLOCK_B: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
    LANES: tl.constexpr, TURNED: tl.constexpr,
    SCALED: tl.constexpr, COMPUTE: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute out [B, rows] = f(x [B, depth] times a block of rows of a matrix), as the table says.

    TURNED: the matrix is stored as [depth, rows], and rows where x is 0 are not read. SCALED: it is
    in int8 with a scale for each stored row. A batch is multiplied in COMPUTE; one sequence
    (TURNED) as it is, with LANES threads along the depth.
    """
    if EARLY:
        gdc_launch_dependents()
    x_at, weights, scales, out, rows, depth, x_stride, out_stride, stride, activation = entry(
        x_ptr, weights_ptr, scales_ptr, out_ptr, table_ptr, TURNED
    )
    row = tl.arange(0, ROWS)
    step = tl.arange(0, DEPTH)
    sequence = tl.arange(0, BLOCK_B)
    there = row < rows
    if TURNED:
        at = weights + step[None, :] * stride + row[:, None]
        ahead = DEPTH * stride
    else:
        at = weights + row[:, None] * stride + step[None, :]
        ahead = DEPTH
    if EARLY:
        gdc_wait()
    if BATCH == 1:
        # TURNED: the next block of weights is loaded while this one is used; x decides which of its
        # rows.
        partial = tl.zeros((ROWS, LANES), tl.float32)
        x = tl.load(x_at + step, mask=step < depth, other=0.0)
        after = tl.load(x_at + step + DEPTH, mask=step + DEPTH < depth, other=0.0)
        weight = tl.load(at, mask=there[:, None] & (x != 0.0)[None, :], other=0)
        for start in range(0, depth, DEPTH):
            k = start + step
            later = tl.load(x_at + k + 2 * DEPTH, mask=k + 2 * DEPTH < depth, other=0.0)
            at += ahead
            coming = tl.load(at, mask=there[:, None] & (after != 0.0)[None, :], other=0)
            if SCALED:
                x *= tl.load(scales + k, mask=k < depth, other=0.0)
            product = weight.to(tl.float32) * x[None, :]
            partial += tl.sum(
                tl.reshape(product, (ROWS, DEPTH // LANES, LANES)), 1
            )  # One sum for each thread needs fewer registers.
            x, after, weight = after, later, coming
        acc = tl.sum(partial, 1)[:, None]
    else:
        acc = tl.zeros((ROWS, BLOCK_B), tl.float32)
        for start in range(0, depth, DEPTH):
            k = start + step
            deep = k < depth
            x_there = deep[:, None] & (sequence < BATCH)[None, :]
            x = tl.load(x_at + sequence[None, :] * x_stride + k[:, None], mask=x_there, other=0.0)
            if TURNED and SCALED:
                x *= tl.load(scales + k, mask=deep, other=0.0)[:, None]
            weight = tl.load(at, mask=there[:, None] & deep[None, :], other=0)
            acc = tl.dot(weight.to(COMPUTE), x.to(COMPUTE), acc, input_precision="ieee")
            at += ahead
    if SCALED and not TURNED:
        acc *= tl.load(scales + row, mask=there, other=0.0)[:, None]
    acc = activated(acc, activation)
    if BATCH == 1:
        tl.store(out + row[:, None], acc, mask=there[:, None])
    else:
        tl.store(
            out + sequence[None, :] * out_stride + row[:, None],
            acc,
            mask=there[:, None] & (sequence < BATCH)[None, :],
        )


@triton.jit
def columns(up_ptr, at, channels, RANK: tl.constexpr):
    """Return the columns `at` of up [RANK, C], padded with rows of zeros."""
    k = tl.arange(0, triton.next_power_of_2(RANK))
    return tl.load(
        up_ptr + k[:, None] * channels + at[None, :], mask=(k < RANK)[:, None], other=0.0
    )


@triton.jit
def raised(low_ptr, up, RANK: tl.constexpr):
    """Return low [RANK] times `columns`."""
    k = tl.arange(0, up.shape[0])
    return tl.sum(up.to(tl.float32) * tl.load(low_ptr + k, mask=k < RANK, other=0.0)[:, None], 0)


@triton.jit
def recur(
    projected_ptr, low_ptr, first_ptr, state_ptr, out_ptr, decay_up_ptr, rate_up_ptr, gate_up_ptr,
    residual_up_ptr,
    decay_ptr, rate_ptr, residual_ptr, k_k_ptr, k_a_ptr, r_k_ptr, weight_ptr, bias_ptr, channels,
    BATCH: tl.constexpr, FIRST: tl.constexpr, HEAD: tl.constexpr, RANKS: tl.constexpr,
    INNER: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Compute one head of a sequence: out [B, C] from projections, low-rank maps and the state.

    projected [3, B, C] holds r, k and v. The low-rank maps of decay, rate, gate and residual come
    without their biases. For a batch, low [4, B, C] are the maps themselves. For one sequence they
    are still [4, INNER], and are multiplied here by up [RANKS, C], whose columns are read before
    the previous kernel has ended. first [B, C] keeps the first layer's values; state [B, H, 64,
    64], values by keys, changes in place.
    """
    if EARLY:
        gdc_launch_dependents()
    heads = channels // HEAD
    head = tl.program_id(0) % heads
    sequence = tl.program_id(0) // heads
    lane = tl.arange(0, HEAD)
    at = head * HEAD + lane
    here = sequence * channels + at
    size = BATCH * channels
    memory = (
        state_ptr
        + (sequence * heads + head).to(tl.int64) * HEAD * HEAD
        + lane[:, None] * HEAD
        + lane[None, :]
    )
    state = tl.load(memory)
    if BATCH == 1:
        decay_up, rate_up = (
            columns(decay_up_ptr, at, channels, RANKS[0]),
            columns(rate_up_ptr, at, channels, RANKS[1]),
        )
        gate_up, residual_up = (
            columns(gate_up_ptr, at, channels, RANKS[2]),
            columns(residual_up_ptr, at, channels, RANKS[3]),
        )
    if EARLY:
        gdc_wait()
    if BATCH == 1:
        decay, rate = (
            raised(low_ptr, decay_up, RANKS[0]),
            raised(low_ptr + INNER, rate_up, RANKS[1]),
        )
        gate, share = (
            raised(low_ptr + 2 * INNER, gate_up, RANKS[2]),
            raised(low_ptr + 3 * INNER, residual_up, RANKS[3]),
        )
    else:
        decay, rate = tl.load(low_ptr + here), tl.load(low_ptr + size + here)
        gate, share = tl.load(low_ptr + 2 * size + here), tl.load(low_ptr + 3 * size + here)
    r = tl.load(projected_ptr + here)
    k = tl.load(projected_ptr + size + here)
    v = tl.load(projected_ptr + 2 * size + here)
    w = tl.exp(sigmoid(decay + tl.load(decay_ptr + at).to(tl.float32)) * FALL)
    rate = sigmoid(rate + tl.load(rate_ptr + at).to(tl.float32))
    if FIRST:
        tl.store(first_ptr + here, v)
    else:
        v += (tl.load(first_ptr + here) - v) * sigmoid(
            share + tl.load(residual_ptr + at).to(tl.float32)
        )
    kk = k * tl.load(k_k_ptr + at).to(tl.float32)
    kk = kk / tl.maximum(tl.sqrt(tl.sum(kk * kk, 0)), 1e-12)
    k = k * (1.0 + (rate - 1.0) * tl.load(k_a_ptr + at).to(tl.float32))

    erased = -tl.sum(state * kk[None, :], 1)
    state = state * w[None, :] + erased[:, None] * (kk * rate)[None, :] + v[:, None] * k[None, :]
    tl.store(memory, state)
    y = tl.sum(state * r[None, :], 1)

    mean = tl.sum(y, 0) / HEAD
    scale = 1.0 / tl.sqrt(tl.sum((y - mean) * (y - mean), 0) / HEAD + GROUP_EPS)
    normed = (y - mean) * scale * tl.load(weight_ptr + at).to(tl.float32) + tl.load(
        bias_ptr + at
    ).to(tl.float32)
    bonus = tl.sum(r * k * tl.load(r_k_ptr + at).to(tl.float32), 0)
    tl.store(out_ptr + here, (normed + bonus * v) * gate)
