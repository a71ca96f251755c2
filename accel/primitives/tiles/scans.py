"""Sum along the rows of tiles, and solve what depends on all rows before, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.tiles.products import product


@triton.jit
def running(x, WIDE: tl.constexpr):
    """Return running sums down the columns of a tile; not WIDE: it has one column."""
    if WIDE:
        sums = tl.cumsum(x, 0)
    else:
        sums = tl.cumsum(tl.sum(x, 1), 0)[:, None]
    return sums


@triton.jit
def joins(i, j, size):
    """Return where an element joins two neighbouring diagonal blocks of a size."""
    return (i // (2 * size) == j // (2 * size)) & (i // size != j // size)


@triton.jit
def join_inverses(
    inverse, lower, i, j, FIRST: tl.constexpr, END: tl.constexpr, COMPUTE: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return (I - L)^-1 of the diagonal blocks of 2^END from that of the blocks of 2^FIRST.

    [[X, 0], [Y L X, Y]] is the inverse of a block whose diagonal has the inverses X and Y.

    Args:
        inverse: the inverse of each block; the identity for FIRST = 0.
        lower: L, strictly lower triangular, [size, size] or [blocks, size, size].
        i, j: the numbers of rows and columns, which broadcast to the last two dimensions.
        COMPUTE, PRECISION: of the products; see `product`.
    """
    for level in tl.static_range(FIRST, END):
        joint = tl.where(joins(i, j, 1 << level), lower, 0.0)
        if level == 0:
            inverse += joint
        else:
            added = product(inverse, joint, COMPUTE, PRECISION)
            inverse += product(added, inverse, COMPUTE, PRECISION)
    return inverse
