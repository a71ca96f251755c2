"""Matrix products in Triton, for every GPU since Ampere.

A program computes a tile [BM, BN] of one product of a batch, over all of k or, with SPLITS, over a
part of it; `finish` then adds the parts. Tiles that share rows of b run together (GROUP).
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.tiles.products import activate, scale_at, tile_of


@triton.jit
def finish_value(
    acc, bias_ptr, scale_a_ptr, scale_b_ptr, rows, columns, m, n, stride_sam, stride_sbn,
    SCALING: tl.constexpr, STEP_A: tl.constexpr, STEP_B: tl.constexpr, BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Apply scales, bias (along the columns or the rows) and activation to sums."""
    if SCALING == "outer":
        acc *= scale_at(scale_a_ptr, rows, m, stride_sam, STEP_A)[:, None]
        acc *= scale_at(scale_b_ptr, columns, n, stride_sbn, STEP_B)[None, :]
    if BIAS == "columns":
        acc += tl.load(bias_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    elif BIAS == "rows":
        acc += tl.load(bias_ptr + rows, mask=rows < m, other=0.0).to(tl.float32)[:, None]
    return activate(acc, ACTIVATION)


@triton.jit
def product(
    a_ptr, b_ptr, out_ptr, bias_ptr, scale_a_ptr, scale_b_ptr, m, n, k,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_oz, stride_om,
    stride_on, stride_sam, stride_sak, stride_sbk, stride_sbn, stride_split, steps,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    SPLITS: tl.constexpr, SCALING: tl.constexpr, STEP_A: tl.constexpr, STEP_B: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr, WHOLE: tl.constexpr,
):  # fmt: skip
    """Write a tile of the result, or with SPLITS > 1 the sum of a part of k.

    `steps` blocks of k belong to each part. WHOLE: k is a multiple of BK.
    """
    down, right = tile_of(tl.program_id(0), m, n, BM, BN, GROUP)
    batch, part = tl.program_id(1).to(tl.int64), tl.program_id(2)
    rows, columns = down * BM + tl.arange(0, BM), right * BN + tl.arange(0, BN)
    inner = part * steps * BK + tl.arange(0, BK)
    # rows past the end wrap around and are not stored
    a_rows, b_columns = (rows % m).to(tl.int64), (columns % n).to(tl.int64)
    at_a = a_ptr + batch * stride_az + a_rows[:, None] * stride_am + inner[None, :] * stride_ak
    at_b = b_ptr + batch * stride_bz + inner[:, None] * stride_bk + b_columns[None, :] * stride_bn
    acc = tl.zeros([BM, BN], tl.float32)
    last = tl.minimum(part * steps + steps, tl.cdiv(k, BK))
    for step in range(part * steps, last):
        if WHOLE:
            a, b = tl.load(at_a), tl.load(at_b)
        else:
            left = k - step * BK
            places = tl.arange(0, BK)
            a = tl.load(at_a, mask=places[None, :] < left, other=0.0)
            b = tl.load(at_b, mask=places[:, None] < left, other=0.0)
        if SCALING == "block":
            block = step * BK // 128
            sums = tl.dot(a, b)
            by_a = scale_at(scale_a_ptr + block * stride_sak, rows, m, stride_sam, STEP_A)
            if STEP_B == 128 and BN <= 128:
                by_b = tl.load(scale_b_ptr + block * stride_sbk + right * BN // 128 * stride_sbn)
                acc += sums * (by_a * by_b)[:, None]
            else:
                by_b = scale_at(scale_b_ptr + block * stride_sbk, columns, n, stride_sbn, STEP_B)
                acc += sums * by_a[:, None] * by_b[None, :]
        else:
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        at_a += BK * stride_ak
        at_b += BK * stride_bk
    if SPLITS == 1:
        acc = finish_value(
            acc, bias_ptr, scale_a_ptr, scale_b_ptr, rows, columns, m, n, stride_sam, stride_sbn,
            SCALING, STEP_A, STEP_B, BIAS, ACTIVATION,
        )  # fmt: skip
    rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    at = out_ptr + batch * stride_oz + part.to(tl.int64) * stride_split
    at += rows[:, None] * stride_om + columns[None, :] * stride_on
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def finish(
    parts_ptr, out_ptr, bias_ptr, scale_a_ptr, scale_b_ptr, m, n, stride_sam, stride_sbn,
    SPLITS: tl.constexpr, SCALING: tl.constexpr, STEP_A: tl.constexpr, STEP_B: tl.constexpr,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add the parts [SPLITS, batch, m, n] of a row's columns in order, and finish the sums."""
    row = tl.program_id(0)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    every = tl.num_programs(0).to(tl.int64) * n
    at = row.to(tl.int64) * n + columns
    acc = tl.zeros([BN], tl.float32)
    for part in tl.static_range(SPLITS):
        acc += tl.load(parts_ptr + part * every + at, mask=columns < n, other=0.0)
    acc = finish_value(
        acc[None, :], bias_ptr, scale_a_ptr, scale_b_ptr, (row % m) + tl.zeros([1], tl.int32),
        columns, m, n, stride_sam, stride_sbn, SCALING, STEP_A, STEP_B, BIAS, ACTIVATION,
    )  # fmt: skip
    tl.store((out_ptr + at)[None, :], acc.to(out_ptr.dtype.element_ty), mask=(columns < n)[None, :])
