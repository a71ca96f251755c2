"""Reduce tiles along rows or as a whole, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def finite_size(x):
    """Return |x|, 0 where x is not finite."""
    size = tl.abs(x)
    return tl.where(size < float("inf"), size, 0.0)


@triton.jit
def largest_size(x):
    """Return the largest finite magnitude of a tile."""
    return tl.max(tl.max(finite_size(x), 1), 0)


@triton.jit
def product_sums(x, y):
    """Return the sums of x * y along the rows of two tiles, in float32."""
    return tl.sum(x.to(tl.float32) * y.to(tl.float32), 1)
