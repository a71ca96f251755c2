"""Compute dQ without atomics: one CTA owns 128 queries and iterates over the keys that they see."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from gpudeck.accel.attention.kernels.hopper.backward_tiles import (
    VARYING,
    apply_cap,
    first_tile,
    is_cut,
    keys_of_queries,
    own_tile,
    sees,
    sequence_of,
    slope_of,
    tilt_of_keys,
)
from gpudeck.accel.attention.kernels.hopper.descriptors import load_rows, store_rows
from gpudeck.accel.primitives.tiles.ring import (
    arrivals,
    await_tile,
    barriers,
    expect_bytes,
    expect_tile,
    release_tile,
)


@gluon.jit
def _consume(
    q_smem, k_smem, v_smem, do_smem, q_full, k_full, k_empty, v_full, v_empty, rows, dq_desc,
    problem, where,
    W: gl.constexpr, BN: gl.constexpr, D: gl.constexpr, K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr,
    TILE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dq of 64 queries in one warpgroup."""
    query, first, steps, seq_q, seq_k, left, right, scale, scale_log2, cap_log2, tile0 = problem
    sequence, head, start_q, start_k, slopes = where
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    kind: gl.constexpr = q_smem.dtype
    zeros = gl.zeros([64, BN], gl.float32, s_layout)
    dq = gl.zeros([64, D], gl.float32, acc_layout)
    q = q_smem.index(W)
    do = do_smem.index(W)
    row = gl.expand_dims(query + W * 64 + gl.arange(0, 64, gl.SliceLayout(1, s_layout)), 1)
    rows += (tile0 + row // TILE).to(gl.int64) * (2 * TILE) + row % TILE
    minus_lse = gl.load(rows, mask=row < seq_q, other=0.0)
    minus_delta = gl.load(rows + TILE, mask=row < seq_q, other=0.0)
    if not CAPPED:
        minus_lse *= scale_log2
    tilt = slope_of(slopes, 0, ALIBI)
    if steps > 0:
        await_tile(q_full, 0)
    for step in range(steps):
        k_stage = step % K_STAGES
        v_stage = step % V_STAGES
        k = k_smem.index(k_stage)
        await_tile(k_full, step)
        s = warpgroup_mma(q, k.permute((1, 0)), zeros, use_acc=False, is_async=True)
        await_tile(v_full, step)
        dp = warpgroup_mma(
            do, v_smem.index(v_stage).permute((1, 0)), zeros, use_acc=False, is_async=True
        )
        s = warpgroup_mma_wait(1, deps=(s,))
        if CAPPED:
            s, slope = apply_cap(s, minus_lse, scale_log2, cap_log2)
        else:
            s = s * scale_log2 + minus_lse
        key = first + step * BN
        if ALIBI:
            keys = gl.expand_dims(key + gl.arange(0, BN, gl.SliceLayout(0, s_layout)), 0)
            s = s + tilt_of_keys(keys, row // TILE, seq_q, seq_k, tilt, TILE)
        if MASKED:  # noqa: SIM102
            if is_cut(query + W * 64, key, seq_q, seq_k, left, right, 64, BN, LEFT, RIGHT):
                keys = gl.expand_dims(key + gl.arange(0, BN, gl.SliceLayout(0, s_layout)), 0)
                s = gl.where(
                    sees(row, keys, seq_q, seq_k, left, right, LEFT, RIGHT), s, -float("inf")
                )
        p = gl.exp2(s)
        dp = warpgroup_mma_wait(0, deps=(dp,))
        release_tile(v_empty, step)
        ds = p * (dp + minus_delta)
        if CAPPED:
            ds = ds * slope
        dq = warpgroup_mma(
            gl.convert_layout(ds.to(kind), gl.DotOperandLayout(0, acc_layout, 2)),
            k,
            dq,
            is_async=True,
        )
        dq = warpgroup_mma_wait(0, deps=(dq,))
        release_tile(k_empty, step)
    q.store((dq * scale).to(kind))
    fence_async_shared()
    store_rows(dq_desc, sequence, head, query + W * 64, start_q, seq_q, q, RAGGED)
    tma.store_wait(0)


@gluon.jit
def _consume_first(
    args,
    BN: gl.constexpr, D: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
    TILE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    (
        q_smem,
        k_smem,
        v_smem,
        do_smem,
        q_full,
        k_full,
        k_empty,
        v_full,
        v_empty,
        rows,
        dq_desc,
        problem,
        where,
    ) = args
    _consume(q_smem, k_smem, v_smem, do_smem, q_full, k_full, k_empty, v_full, v_empty, rows,
             dq_desc, problem, where,
             0, BN, D, K_STAGES, V_STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI,
             RAGGED)  # fmt: skip


@gluon.jit
def _consume_second(
    args,
    BN: gl.constexpr, D: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
    TILE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    (
        q_smem,
        k_smem,
        v_smem,
        do_smem,
        q_full,
        k_full,
        k_empty,
        v_full,
        v_empty,
        rows,
        dq_desc,
        problem,
        where,
    ) = args
    _consume(q_smem, k_smem, v_smem, do_smem, q_full, k_full, k_empty, v_full, v_empty, rows,
             dq_desc, problem, where,
             1, BN, D, K_STAGES, V_STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI,
             RAGGED)  # fmt: skip


@gluon.jit
def _produce(
    q_desc, k_desc, v_desc, do_desc, args,
    GROUP: gl.constexpr, BN: gl.constexpr, K_STAGES: gl.constexpr, V_STAGES: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Run the warp that copies tiles."""
    (
        q_smem,
        k_smem,
        v_smem,
        do_smem,
        q_full,
        k_full,
        k_empty,
        v_full,
        v_empty,
        rows,
        dq_desc,
        problem,
        where,
    ) = args
    query, first, steps, seq_q, seq_k, left, right, scale, scale_log2, cap_log2, tile0 = problem
    sequence, head, start_q, start_k, slopes = where
    kv_head = head // GROUP
    if steps > 0:
        expect_bytes(q_full, 0, 2 * (q_desc.block_type.nbytes + do_desc.block_type.nbytes))
        q_there = q_full.index(0)
        for w in gl.static_range(2):
            load_rows(
                q_desc,
                sequence,
                head,
                query + w * 64,
                start_q,
                seq_q,
                q_there,
                q_smem.index(w),
                RAGGED,
            )
            load_rows(
                do_desc,
                sequence,
                head,
                query + w * 64,
                start_q,
                seq_q,
                q_there,
                do_smem.index(w),
                RAGGED,
            )
    for step in range(steps):
        k_stage = step % K_STAGES
        v_stage = step % V_STAGES
        key = first + step * BN
        expect_tile(k_full, k_empty, step, k_desc.block_type.nbytes)
        load_rows(
            k_desc,
            sequence,
            kv_head,
            key,
            start_k,
            seq_k,
            k_full.index(k_stage),
            k_smem.index(k_stage),
            RAGGED,
        )
        expect_tile(v_full, v_empty, step, v_desc.block_type.nbytes)
        load_rows(
            v_desc,
            sequence,
            kv_head,
            key,
            start_k,
            seq_k,
            v_full.index(v_stage),
            v_smem.index(v_stage),
            RAGGED,
        )


@gluon.jit(do_not_specialize=VARYING)
def backward_queries(
    q_desc, k_desc, v_desc, do_desc, dq_desc, rows, starts_q, starts_k, slopes,
    heads, seq_q, seq_k, tiles_a_head, left, right, slopes_batch, at_once, scale, scale_log2,
    cap_log2,
    BN: gl.constexpr, D: gl.constexpr, DV: gl.constexpr, K_STAGES: gl.constexpr,
    V_STAGES: gl.constexpr, TILE: gl.constexpr, GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dq of a tile of queries.

    The grid, as `own_tile` reads it, is [query tiles of 128, heads, sequences]. `rows` is as
    `backward_rows.prepare_rows` leaves it, in tiles of TILE queries.
    """
    kind: gl.constexpr = q_desc.dtype
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], kind)
    do_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, DV], kind)
    k_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, D], kind)
    v_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, DV], kind)
    q_smem = gl.allocate_shared_memory(kind, [2, 64, D], q_layout)
    do_smem = gl.allocate_shared_memory(kind, [2, 64, DV], do_layout)
    k_smem = gl.allocate_shared_memory(kind, [K_STAGES, BN, D], k_layout)
    v_smem = gl.allocate_shared_memory(kind, [V_STAGES, BN, DV], v_layout)
    q_full = arrivals(1, 1)
    k_full, k_empty = barriers(K_STAGES, 2)
    v_full, v_empty = barriers(V_STAGES, 2)

    sequence = gl.program_id(2)
    own, head, query_tiles = own_tile(at_once)
    # The longest rows of a causal mask are the last.
    query = (query_tiles - 1 - own) * 128
    start_q, seq_q, start_k, seq_k = sequence_of(starts_q, starts_k, seq_q, seq_k, sequence, RAGGED)
    if ALIBI:
        slopes += sequence * slopes_batch + head
    first, steps = keys_of_queries(query, seq_q, seq_k, left, right, 128, BN, LEFT, RIGHT)
    first *= BN
    tile0 = first_tile(start_q, sequence, head, heads, tiles_a_head, TILE, RAGGED)
    problem = (query, first, steps, seq_q, seq_k, left, right, scale, scale_log2, cap_log2, tile0)
    where = (sequence, head, start_q, start_k, slopes)
    args = (
        q_smem,
        k_smem,
        v_smem,
        do_smem,
        q_full,
        k_full,
        k_empty,
        v_full,
        v_empty,
        rows,
        dq_desc,
        problem,
        where,
    )
    gl.warp_specialize(
        [
            (
                _consume_first,
                (args, BN, D, K_STAGES, V_STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED),
            ),
            (
                _consume_second,
                (args, BN, D, K_STAGES, V_STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED),
            ),
            (
                _produce,
                (q_desc, k_desc, v_desc, do_desc, args, GROUP, BN, K_STAGES, V_STAGES, RAGGED),
            ),
        ],
        [4, 1],
        [240, 24],
    )
