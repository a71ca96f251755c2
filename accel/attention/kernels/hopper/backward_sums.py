"""Convert the float32 sums of `backward_keys` to dQ."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma

from gpudeck.accel.attention.kernels.hopper.backward_tiles import VARYING, first_tile, fragments
from gpudeck.accel.attention.kernels.hopper.descriptors import store_rows


@gluon.jit(do_not_specialize=VARYING)
def backward_sums(
    dq_desc, sums, starts_q, heads, seq_q, tiles_a_head, scale, D: gl.constexpr, TILE: gl.constexpr,
    RAGGED: gl.constexpr
):  # fmt: skip
    """Convert 64 queries.

    The grid is [64 queries, heads, sequences]. `sums` are in tiles of TILE queries, in the
    order of `add_fragments`.
    """
    kind: gl.constexpr = dq_desc.dtype
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    shared = gl.allocate_shared_memory(
        kind, [64, D], gl.NVMMASharedLayout.get_default_for([64, D], kind)
    )
    sequence = gl.program_id(2)
    head = gl.program_id(1)
    query = gl.program_id(0) * 64
    start_q = 0
    if RAGGED:
        start_q = gl.load(starts_q + sequence)
        seq_q = gl.load(starts_q + sequence + 1) - start_q
    tile0 = first_tile(start_q, sequence, head, heads, tiles_a_head, TILE, RAGGED)
    dq = fragments(sums + tile0.to(gl.int64) * (TILE * D), query, seq_q, D, layout)
    shared.store((dq * scale).to(kind))
    fence_async_shared()
    store_rows(dq_desc, sequence, head, query, start_q, seq_q, shared, RAGGED)
    tma.store_wait(0)
