"""Products with a matrix in four bits, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def int4_product(
    weights, scales, zeros, bias, x, out, count, rows, depth, group, groups, steps,
    COUNT: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, SPLITS: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """Write ROWS columns of x [count, depth] times the transposed matrix [rows, depth].

    Two weights are in a byte. DEPTH divides the `group` columns that share a scale. With SPLITS > 1
    each program writes the sum of `steps` blocks of k, float32 [SPLITS, count, rows].
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    vector = tl.program_id(1) * COUNT + tl.arange(0, COUNT)
    split = tl.program_id(2)
    exists, given = row < rows, vector < count
    wide = row.to(tl.int64)
    total = tl.zeros([ROWS, COUNT], tl.float32)
    end = tl.minimum(depth, (split + 1) * steps * DEPTH)
    for start in range(split * steps * DEPTH, end, DEPTH):
        half = start // 2 + tl.arange(0, DEPTH // 2)
        pair = tl.load(weights + wide[:, None] * (depth // 2) + half[None, :], exists[:, None], 0)
        place = wide * groups + start // group
        less = tl.load(zeros + place, exists, 0).to(tl.int8)
        values = tl.join(pair & 15, pair >> 4).reshape(ROWS, DEPTH).to(tl.int8) - less[:, None]
        at = start + tl.arange(0, DEPTH)
        vectors = tl.load(
            x + vector[None, :].to(tl.int64) * depth + at[:, None], given[None, :], 0.0
        )
        sums = tl.dot(values.to(vectors.dtype), vectors)
        total += sums * tl.load(scales + place, exists, 0.0).to(tl.float32)[:, None]
    if BIAS:
        total += tl.load(bias + row, exists, 0.0).to(tl.float32)[:, None]
    out += split.to(tl.int64) * count * rows
    to = out + vector[None, :].to(tl.int64) * rows + row[:, None]
    tl.store(to, total.to(out.dtype.element_ty), exists[:, None] & given[None, :])
