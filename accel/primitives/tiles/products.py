"""Multiply tiles, choose their order, and finish sums with scales and activations, in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(x, y, COMPUTE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the matrix product in float32 of x and y, which are rounded to COMPUTE."""
    return tl.dot(x.to(COMPUTE), y.to(COMPUTE), input_precision=PRECISION)


@triton.jit
def fine_product(x, y, COMPUTE: tl.constexpr, PRECISION: tl.constexpr):
    """Return the matrix product in float32 of x and y, nearly as exact as they are.

    With COMPUTE of 16 bits each is the sum of two such numbers. Tensor cores want factors of 32
    bits transposed in shared memory, which costs more than three products of 16 bits.
    """
    x_high, y_high = x.to(COMPUTE), y.to(COMPUTE)
    out = tl.dot(x_high, y_high, input_precision=PRECISION)
    if tl.float32 != COMPUTE:
        out += tl.dot(x_high, (y - y_high).to(COMPUTE))
        out += tl.dot((x - x_high).to(COMPUTE), y_high)
    return out


@triton.jit
def tile_of(number, m, n, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Return the row and column of a tile: GROUP rows of tiles take turns along the columns.

    Tiles that run at the same time then find both operands in the L2 cache.
    """
    down, right = tl.cdiv(m, BM), tl.cdiv(n, BN)
    group = number // (GROUP * right)
    size = tl.minimum(down - group * GROUP, GROUP)
    inside = number % (GROUP * right)
    return group * GROUP + inside % size, inside // size


@triton.jit
def scale_at(ptr, places, count, stride, STEP: tl.constexpr):
    """Load the scales of rows (or columns); STEP is how many share one, 0 if all do."""
    if STEP == 0:
        return tl.load(ptr) + tl.zeros_like(places).to(tl.float32)
    return tl.load(ptr + (places // STEP) * stride, mask=places < count, other=0.0)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Apply `relu`, `silu`, `gelu` (exact), `gelu_tanh` (nearly it) or `none` in float32."""
    if ACTIVATION == "relu":
        # written so that a NaN remains one
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":
        x = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    return x


@triton.jit
def slope(x, ACTIVATION: tl.constexpr):
    """Return the derivative of `silu` or `gelu_tanh` in float32."""
    if ACTIVATION == "silu":
        part = 1.0 / (1.0 + tl.exp(-x))
        inner = x
    else:
        part = 1.0 / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
        inner = 1.5957691216057308 * (x + 0.134145 * x * x * x)
    return part + part * (1.0 - part) * inner
