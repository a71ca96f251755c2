"""Load tiles from memory and store them, in Triton; what does not exist is 0 and is not written.

The compiler passes what it loads in a loop through shared memory ahead of its use (`num_stages`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_tile(ptr, rows, columns, row_count, column_count, stride_row, stride_column):
    """Load the tile [rows, columns] of a matrix with any strides.

    Args:
        ptr: the address of the first element.
        rows, columns: the indices, one-dimensional.
        row_count, column_count: the size of the matrix.
        stride_row, stride_column: the distances of neighbours, in elements.
    """
    at = rows.to(tl.int64)[:, None] * stride_row + columns.to(tl.int64)[None, :] * stride_column
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(ptr + at, mask=inside, other=0.0)


@triton.jit
def store_tile(ptr, x, rows, columns, row_count, column_count):
    """Store the tile [rows, columns] of a contiguous matrix, in the type of the memory."""
    at = rows.to(tl.int64)[:, None] * column_count + columns[None, :]
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    tl.store(ptr + at, x.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def load_vectors(at, indices, limit, SIZE: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    """Load vectors of SIZE elements as a tile [vectors, WIDTH] whose addresses are known.

    Args:
        at: the addresses, [vectors, WIDTH].
        indices: the number of each vector; those from `limit` on do not exist.
        EVEN: whether all exist, which saves the mask.
    """
    inside = tl.arange(0, WIDTH) < SIZE
    if not EVEN:
        return tl.load(at, mask=(indices < limit)[:, None] & inside[None, :], other=0.0)
    if WIDTH != SIZE:
        return tl.load(at, mask=inside[None, :], other=0.0)
    return tl.load(at)
