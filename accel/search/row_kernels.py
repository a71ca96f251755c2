"""Row-wise and element-wise operations in Triton, with everything that can be tuned as a constant.

A program computes ROWS rows, which it keeps in registers; BLOCK is the width that holds a row. Each
element is read once and written once.
"""

import triton
import triton.language as tl


@triton.jit
def _combine(OP: tl.constexpr, x, y, w, b, inside, n, eps):
    if OP == "softmax":
        z = x - tl.max(x, 1)[:, None]
        e = tl.where(inside, tl.exp(z), 0.0)
        out = e / tl.sum(e, 1)[:, None]
    elif OP == "rms_norm":
        scale = tl.rsqrt(tl.sum(x * x, 1) / n + eps)
        out = x * scale[:, None] * w
    elif OP == "layer_norm":
        centred = tl.where(inside, x - (tl.sum(x, 1) / n)[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, 1) / n + eps)
        out = centred * scale[:, None] * w + b
    elif OP == "swiglu":
        out = x / (1.0 + tl.exp(-x)) * y
    else:
        tl.static_assert(OP == "gelu")
        out = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return out


@triton.jit
def compute_rows(
    x_at, y_at, w_at, b_at, out_at, rows, columns, eps,
    OP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write out[rows, columns]; y, w and b are None where the operation does not use them."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = tl.load(x_at + at, mask=inside, other=-float("inf") if OP == "softmax" else 0.0).to(
        tl.float32
    )
    if OP == "softmax":
        # a row outside of the matrix is all -inf, and its difference would not be a number
        x = tl.where((row < rows)[:, None], x, 0.0)
    y = x
    w = x
    b = x
    if OP == "swiglu":
        y = tl.load(y_at + at, mask=inside, other=0.0).to(tl.float32)
    if OP == "rms_norm" or OP == "layer_norm":
        w = tl.load(w_at + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    if OP == "layer_norm":
        b = tl.load(b_at + column, mask=column < columns, other=0.0).to(tl.float32)[None, :]
    out = _combine(OP, x, y, w, b, inside, columns, eps)
    tl.store(out_at + at, out.to(out_at.dtype.element_ty), mask=inside)


@triton.jit
def reduce_rows(
    x_at, y_at, out_at, rows, columns, OP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write out[rows]: the sums of rows, or the cross entropy of two rows."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    x = tl.load(x_at + at, mask=inside, other=0.0).to(tl.float32)
    if OP == "row_sum":
        out = tl.sum(x, 1)
    else:
        tl.static_assert(OP == "cross_entropy")
        y = tl.load(y_at + at, mask=inside, other=0.0).to(tl.float32)
        x_top = tl.max(tl.where(inside, x, -float("inf")), 1)
        y_top = tl.max(tl.where(inside, y, -float("inf")), 1)
        x_top = tl.where(row < rows, x_top, 0.0)
        y_top = tl.where(row < rows, y_top, 0.0)
        log = tl.log(tl.sum(tl.where(inside, tl.exp(x - x_top[:, None]), 0.0), 1)) + x_top
        weight = tl.where(inside, tl.exp(y - y_top[:, None]), 0.0)
        out = tl.sum(weight * (log[:, None] - x), 1) / tl.sum(weight, 1)
    tl.store(out_at + row, out.to(out_at.dtype.element_ty), mask=row < rows)
