"""Products of matrices in FP4, in Triton.

On compute capability 10 the tensor cores multiply FP4 with its scales; elsewhere Triton widens both
operands to bfloat16 first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from gpudeck.accel.primitives.tiles.memory import load_tile, store_tile
from gpudeck.accel.primitives.tiles.products import tile_of


@triton.jit
def fp4_product(
    a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, whole_ptr, out_ptr, m, n, packed, blocks,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SHARE: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Write a tile of a bᵀ.

    a [m, packed] and b [n, packed] hold two elements of k in a byte, the first in its lower bits;
    `blocks` scales a row belong to SHARE elements each, and `whole` to the result.
    """
    down, right = tile_of(tl.program_id(0), m, n, BM, BN, GROUP)
    rows, columns = down * BM + tl.arange(0, BM), right * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(tl.cdiv(packed, BK // 2)):
        inner = step * (BK // 2) + tl.arange(0, BK // 2)
        block = step * (BK // SHARE) + tl.arange(0, BK // SHARE)
        a = load_tile(a_ptr, rows, inner, m, packed, packed, 1)
        b = load_tile(b_ptr, columns, inner, n, packed, packed, 1)
        by_a = load_tile(a_scale_ptr, rows, block, m, blocks, blocks, 1)
        by_b = load_tile(b_scale_ptr, columns, block, n, blocks, blocks, 1)
        acc = tl.dot_scaled(a, by_a, "e2m1", tl.trans(b), by_b, "e2m1", acc)
    store_tile(out_ptr, acc * tl.load(whole_ptr), rows, columns, m, n)
