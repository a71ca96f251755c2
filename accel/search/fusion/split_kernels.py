"""Split matrices of float32 into two of float16, whose products tensor cores sum.

A row is scaled by a power of two so that its largest element lies below 2^15. Then high + low has
22 bits of an element, and at least 2^-38 of the row's largest element: three products of float16
(the fourth is too small to count) are as exact as one of float32.
Source: Ootomo and Yokota 2022, Recovering single precision accuracy from tensor cores
(arXiv 2203.03341), which also tells why sums must be added outside of the tensor cores.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows"])
def split(
    x_at, high_at, low_at, scale_at, rows, depth, padded, x_row, x_depth, x_batch, to_row, to_depth,
    to_batch, ROWS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Write high and low [batch, rows, padded] and scale [batch, rows] with
    x = scale (high + low), and zeros beside x."""
    batch = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    here = x_at + batch * x_batch + row.to(tl.int64)[:, None] * x_row
    top = tl.zeros((ROWS,), tl.float32)
    for begin in range(0, depth, DEPTH):
        at = begin + k
        inside = (row < rows)[:, None] & (at < depth)[None, :]
        x = tl.load(here + at.to(tl.int64)[None, :] * x_depth, mask=inside, other=0.0)
        top = tl.maximum(top, tl.max(tl.abs(x), 1))
    exponent = top.to(tl.int32, bitcast=True) & 0x7F800000
    power = tl.maximum(exponent.to(tl.float32, bitcast=True), 1e-30)
    # both are powers of two, so that dividing by one is exact
    power = (power.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    scale = power * (1.0 / 16384.0)
    there = batch * to_batch + row.to(tl.int64)[:, None] * to_row
    for begin in range(0, padded, DEPTH):
        at = begin + k
        inside = (row < rows)[:, None] & (at < depth)[None, :]
        x = tl.load(here + at.to(tl.int64)[None, :] * x_depth, mask=inside, other=0.0)
        x = x / scale[:, None]
        high = x.to(tl.float16)
        low = (x - high.to(tl.float32)).to(tl.float16)
        to = there + at.to(tl.int64)[None, :] * to_depth
        written = (at < padded)[None, :] & (row >= 0)[:, None]
        tl.store(high_at + to, high, mask=written)
        tl.store(low_at + to, low, mask=written)
    tl.store(scale_at + batch * tl.num_programs(0) * ROWS + row, scale)
