"""Compute dK and dV for head sizes up to 256, with values of up to DV elements.

One CTA owns 64 keys; one warpgroup computes their dV, the other their dK, as a gradient of 64 x 256
fills the registers of a warpgroup. The first computes the scores and the weights P, the second dP;
only P is exchanged.
"""

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
    own_tile,
    place,
    queries_of_keys,
    sees,
    sequence_of,
    slope_of,
    tilt_of_keys,
)
from gpudeck.accel.attention.kernels.hopper.descriptors import load_rows, store_rows
from gpudeck.accel.primitives.tiles.ring import (
    arrivals,
    await_slot,
    await_tile,
    barriers,
    expect_bytes,
    expect_tile,
    publish_tile,
    release_tile,
)
from gpudeck.accel.primitives.tiles.warpgroup import spread, widen
from gpudeck.accel.runtime.gluon import tma_load

KEYS = gl.constexpr(64)


@gluon.jit
def _weights(
    args,
    BM: gl.constexpr, D: gl.constexpr, DV: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute P and dv in the first warpgroup."""
    shared, bars, problem, dk_desc, dv_desc, steps, out = args
    k_smem, v_smem, q_smem, do_smem, rows_smem, p_smem, slope_smem = shared
    q_full, q_empty, do_full, do_empty, p_full, p_empty, kv_full = bars
    (
        key,
        tiles,
        first,
        rotation,
        seq_q,
        seq_k,
        left,
        right,
        scale_log2,
        cap_log2,
        tile0,
        stride_head,
        slopes,
    ) = problem
    sequence, head, start_k, scale = out
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, DV, 16])
    kind: gl.constexpr = q_smem.dtype
    zeros = gl.zeros([KEYS, BM], gl.float32, s_layout)
    dv = gl.zeros([KEYS, DV], gl.float32, acc_layout)
    await_tile(kv_full, 0)
    for step in range(steps):
        stage = step % STAGES
        slot = step % 2
        rows = rows_smem.index(stage)
        await_tile(q_full, step)
        s = zeros if CAPPED else spread(rows.slice(0, 1).load(s_layout), zeros)
        s = warpgroup_mma(
            k_smem, q_smem.index(stage).permute((1, 0)), s, use_acc=not CAPPED, is_async=True
        )
        s = warpgroup_mma_wait(0, deps=(s,))
        if CAPPED:
            s, slope = apply_cap(s, rows.slice(0, 1).load(s_layout), scale_log2, cap_log2)
        else:
            s = s * scale_log2
        release_tile(q_empty, step)
        member, tile = place(step, tiles, first, rotation, GROUP)
        if ALIBI:
            keys = gl.expand_dims(key + gl.arange(0, KEYS, gl.SliceLayout(1, s_layout)), 1)
            tilt = slope_of(slopes, member, ALIBI)
            s = s + tilt_of_keys(keys, tile, seq_q, seq_k, tilt, BM)
        if MASKED:  # noqa: SIM102
            if is_cut(tile * BM, key, seq_q, seq_k, left, right, BM, KEYS, LEFT, RIGHT):
                keys = gl.expand_dims(key + gl.arange(0, KEYS, gl.SliceLayout(1, s_layout)), 1)
                queries = gl.expand_dims(
                    tile * BM + gl.arange(0, BM, gl.SliceLayout(0, s_layout)), 0
                )
                s = gl.where(
                    sees(queries, keys, seq_q, seq_k, left, right, LEFT, RIGHT), s, -float("inf")
                )
        p = gl.exp2(s).to(kind)
        await_slot(p_empty, step)
        p_smem.index(slot).store(p)
        if CAPPED:
            slope_smem.index(slot).store(slope.to(kind))
        publish_tile(p_full, step)
        await_tile(do_full, step)
        dv = warpgroup_mma(
            gl.convert_layout(p, gl.DotOperandLayout(0, acc_layout, 2)),
            do_smem.index(stage),
            dv,
            is_async=True,
        )
        dv = warpgroup_mma_wait(0, deps=(dv,))
        release_tile(do_empty, step)
    if steps > 0:
        # The other warpgroup has multiplied by v for the last time.
        await_slot(p_empty, steps + 1)
    v_smem.store(dv.to(kind))
    fence_async_shared()
    store_rows(dv_desc, sequence, head, key, start_k, seq_k, v_smem, RAGGED)
    tma.store_wait(0)


@gluon.jit
def _slopes(
    args,
    BM: gl.constexpr, D: gl.constexpr, DV: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dS and dk in the second warpgroup."""
    shared, bars, problem, dk_desc, dv_desc, steps, out = args
    k_smem, v_smem, q_smem, do_smem, rows_smem, p_smem, slope_smem = shared
    q_full, q_empty, do_full, do_empty, p_full, p_empty, kv_full = bars
    (
        key,
        tiles,
        first,
        rotation,
        seq_q,
        seq_k,
        left,
        right,
        scale_log2,
        cap_log2,
        tile0,
        stride_head,
        slopes,
    ) = problem
    sequence, head, start_k, scale = out
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    kind: gl.constexpr = q_smem.dtype
    zeros = gl.zeros([KEYS, BM], gl.float32, s_layout)
    dk = gl.zeros([KEYS, D], gl.float32, acc_layout)
    await_tile(kv_full, 0)
    for step in range(steps):
        stage = step % STAGES
        slot = step % 2
        rows = rows_smem.index(stage)
        await_tile(q_full, step)
        dp = spread(rows.slice(1, 1).load(s_layout), zeros)
        await_tile(do_full, step)
        dp = warpgroup_mma(v_smem, do_smem.index(stage).permute((1, 0)), dp, is_async=True)
        await_tile(p_full, step)
        p = p_smem.index(slot).load(s_layout)
        dp = warpgroup_mma_wait(0, deps=(dp,))
        ds = widen(p) * dp
        if CAPPED:
            ds = ds * widen(slope_smem.index(slot).load(s_layout))
        release_tile(p_empty, step)
        release_tile(do_empty, step)
        dk = warpgroup_mma(
            gl.convert_layout(ds.to(kind), gl.DotOperandLayout(0, acc_layout, 2)),
            q_smem.index(stage),
            dk,
            is_async=True,
        )
        dk = warpgroup_mma_wait(0, deps=(dk,))
        release_tile(q_empty, step)
    # The first warpgroup needed k for P, which is here.
    k_smem.store((dk * scale).to(kind))
    fence_async_shared()
    store_rows(dk_desc, sequence, head, key, start_k, seq_k, k_smem, RAGGED)
    tma.store_wait(0)


@gluon.jit
def _produce(
    q_desc, k_desc, v_desc, do_desc, rows_desc, shared, bars, problem, where, steps,
    BM: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Run the warp that copies tiles."""
    k_smem, v_smem, q_smem, do_smem, rows_smem, p_smem, slope_smem = shared
    q_full, q_empty, do_full, do_empty, p_full, p_empty, kv_full = bars
    (
        key,
        tiles,
        first,
        rotation,
        seq_q,
        seq_k,
        left,
        right,
        scale_log2,
        cap_log2,
        tile0,
        stride_head,
        slopes,
    ) = problem
    sequence, head, kv_head, start_q, start_k = where
    expect_bytes(kv_full, 0, k_desc.block_type.nbytes + v_desc.block_type.nbytes)
    kv_there = kv_full.index(0)
    load_rows(k_desc, sequence, kv_head, key, start_k, seq_k, kv_there, k_smem, RAGGED)
    load_rows(v_desc, sequence, kv_head, key, start_k, seq_k, kv_there, v_smem, RAGGED)
    for step in range(steps):
        stage = step % STAGES
        member, tile = place(step, tiles, first, rotation, GROUP)
        q_head = head * GROUP + member
        expect_tile(q_full, q_empty, step, q_desc.block_type.nbytes + rows_desc.block_type.nbytes)
        load_rows(
            q_desc,
            sequence,
            q_head,
            tile * BM,
            start_q,
            seq_q,
            q_full.index(stage),
            q_smem.index(stage),
            RAGGED,
        )
        tma_load(
            rows_desc,
            [2 * (tile0 + member * stride_head + tile), 0],
            q_full.index(stage),
            rows_smem.index(stage),
        )
        expect_tile(do_full, do_empty, step, do_desc.block_type.nbytes)
        load_rows(
            do_desc,
            sequence,
            q_head,
            tile * BM,
            start_q,
            seq_q,
            do_full.index(stage),
            do_smem.index(stage),
            RAGGED,
        )


@gluon.jit(do_not_specialize=VARYING)
def backward_wide(
    q_desc, k_desc, v_desc, do_desc, rows_desc, dk_desc, dv_desc, starts_q, starts_k,
    slopes, heads, seq_q, seq_k, tiles_a_head, left, right, slopes_batch, at_once, scale,
    scale_log2, cap_log2,
    BM: gl.constexpr, D: gl.constexpr, DV: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    SPLIT: gl.constexpr, ROTATE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a tile of keys.

    The grid, as `own_tile` reads it, is [key tiles of 64, kv heads x SPLIT, sequences]: of the
    query heads that share a key head, each CTA takes GROUP. `rows_desc` is as
    `backward_rows.prepare_rows` leaves it.
    """
    kind: gl.constexpr = q_desc.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, D], kind)
    v_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, DV], kind)
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, D], kind)
    do_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, DV], kind)
    p_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([KEYS, BM], kind)
    k_smem = gl.allocate_shared_memory(kind, [KEYS, D], tile_layout)
    v_smem = gl.allocate_shared_memory(kind, [KEYS, DV], v_layout)
    q_smem = gl.allocate_shared_memory(kind, [STAGES, BM, D], q_layout)
    do_smem = gl.allocate_shared_memory(kind, [STAGES, BM, DV], do_layout)
    rows_smem = gl.allocate_shared_memory(gl.float32, [STAGES, 2, BM], rows_desc.layout)
    p_smem = gl.allocate_shared_memory(kind, [2, KEYS, BM], p_layout)
    slope_smem = gl.allocate_shared_memory(kind, [2, KEYS if CAPPED else 8, BM], p_layout)
    q_full, q_empty = barriers(STAGES, 2)
    do_full, do_empty = barriers(STAGES, 2)
    p_full, p_empty = barriers(2, 1)
    kv_full = arrivals(1, 1)

    sequence = gl.program_id(2)
    own, head, key_tiles = own_tile(at_once)
    key = own * KEYS
    start_q, seq_q, start_k, seq_k = sequence_of(starts_q, starts_k, seq_q, seq_k, sequence, RAGGED)
    if ALIBI:
        slopes += sequence * slopes_batch + head * GROUP
    first, tiles = queries_of_keys(key, seq_q, seq_k, left, right, BM, KEYS, LEFT, RIGHT)
    tile0 = first_tile(start_q, sequence, head * GROUP, heads, tiles_a_head, BM, RAGGED)
    rotation = 0
    if ROTATE:
        rotation = own * tiles // key_tiles
    steps = tiles * GROUP
    shared = (k_smem, v_smem, q_smem, do_smem, rows_smem, p_smem, slope_smem)
    bars = (q_full, q_empty, do_full, do_empty, p_full, p_empty, kv_full)
    problem = (
        key,
        tiles,
        first,
        rotation,
        seq_q,
        seq_k,
        left,
        right,
        scale_log2,
        cap_log2,
        tile0,
        tiles_a_head,
        slopes,
    )
    args = (shared, bars, problem, dk_desc, dv_desc, steps, (sequence, head, start_k, scale))
    where = (sequence, head, head // SPLIT, start_q, start_k)
    gl.warp_specialize(
        [
            (
                _weights,
                (args, BM, D, DV, STAGES, GROUP, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED),
            ),
            (_slopes, (args, BM, D, DV, STAGES, GROUP, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED)),
            (
                _produce,
                (
                    q_desc,
                    k_desc,
                    v_desc,
                    do_desc,
                    rows_desc,
                    shared,
                    bars,
                    problem,
                    where,
                    steps,
                    BM,
                    STAGES,
                    GROUP,
                    RAGGED,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )
