"""Compute dK and dV, and optionally dQ, for head sizes up to 128.

One CTA owns 128 keys and iterates over the queries that see them.
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
    add_fragments,
    apply_cap,
    first_tile,
    is_cut,
    multiply_columns,
    multiply_rows,
    new_sums,
    own_tile,
    place,
    queries_of_keys,
    sees,
    sequence_of,
    slope_of,
    tilt_of_keys,
    wait_for,
)
from gpudeck.accel.attention.kernels.hopper.descriptors import load_rows, store_rows
from gpudeck.accel.primitives.tiles.ring import (
    arrivals,
    await_tile,
    barriers,
    expect_bytes,
    expect_tile,
    publish_tile,
    release_tile,
)
from gpudeck.accel.primitives.tiles.warpgroup import spread, widen
from gpudeck.accel.runtime.gluon import tma_load


@gluon.jit
def _weights(
    s, minus_lse, tile, tilt, problem,
    W: gl.constexpr, BM: gl.constexpr, KIND: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Return P of a warpgroup's 64 keys and a query tile, and the derivative of the softcap
    (any number without one).
    """
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
        begun,
        kv,
    ) = problem
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    slope = 1.0
    if CAPPED:
        s, slope = apply_cap(s, minus_lse, scale_log2, cap_log2)
    else:
        s = s * scale_log2
    if ALIBI:
        keys = gl.expand_dims(key + W * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
        s = s + tilt_of_keys(keys, tile, seq_q, seq_k, tilt, BM)
    if MASKED:  # noqa: SIM102
        if is_cut(tile * BM, key + W * 64, seq_q, seq_k, left, right, BM, 64, LEFT, RIGHT):
            keys = gl.expand_dims(key + W * 64 + gl.arange(0, 64, gl.SliceLayout(1, layout)), 1)
            queries = gl.expand_dims(tile * BM + gl.arange(0, BM, gl.SliceLayout(0, layout)), 0)
            s = gl.where(
                sees(queries, keys, seq_q, seq_k, left, right, LEFT, RIGHT), s, -float("inf")
            )
    return gl.exp2(s).to(KIND), slope


@gluon.jit
def add_step(
    step, dk, dv, shared, bars, problem,
    W: gl.constexpr, BM: gl.constexpr, D: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Process one query tile: add to dk and dv, which are `new_sums`."""
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    q_full, q_empty, do_full, do_empty, ds_full = bars
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
        begun,
        kv,
    ) = problem
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    kind: gl.constexpr = q_smem.dtype
    stage = step % STAGES
    member, tile = place(step - begun, tiles, first, rotation, GROUP)
    tilt = slope_of(slopes, member, ALIBI)
    rows = rows_smem.index(stage)
    zeros = gl.zeros([64, BM], gl.float32, s_layout)
    q = q_smem.index(stage)
    do = do_smem.index(stage)

    # The accumulators begin with -lse and -delta.
    await_tile(q_full, step)
    s = zeros if CAPPED else spread(rows.slice(0, 1).load(s_layout), zeros)
    dp = spread(rows.slice(1, 1).load(s_layout), zeros)
    s = multiply_rows(k_smem.index(kv + W), q, s, not CAPPED, DEPTH)
    await_tile(do_full, step)
    dp = multiply_rows(v_smem.index(kv + W), do, dp, True, DEPTH)
    s = warpgroup_mma_wait(1 if DEPTH == D else 2, deps=(s,))
    p, slope = _weights(
        s, rows.slice(0, 1).load(s_layout), tile, tilt, problem, W, BM, kind, LEFT, RIGHT, MASKED,
        CAPPED, ALIBI,
    )  # fmt: skip
    dv = multiply_columns(p, do, dv, D, DEPTH)
    dp = warpgroup_mma_wait(1 if DEPTH == D else 2, deps=(dp,))
    ds = widen(p) * dp
    if CAPPED:
        ds = ds * slope
    dk = multiply_columns(ds.to(kind), q, dk, D, DEPTH)
    dv = wait_for(dv, D, DEPTH)
    dk = wait_for(dk, D, DEPTH)
    release_tile(q_empty, step)
    release_tile(do_empty, step)
    return dk, dv


@gluon.jit
def add_step_with_dq(
    step, dk, dv, shared, bars, problem, dq,
    W: gl.constexpr, BM: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Process one query tile: add to dk and dv, and to the dq of the step before.

    Both warpgroups contribute to dq, so a warpgroup waits for the other's dS of the step
    before, and multiplies by it during its exponentials. The first step multiplies whatever is
    in shared memory, and drops the result.
    """
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    q_full, q_empty, do_full, do_empty, ds_full = bars
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
        begun,
        kv,
    ) = problem
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BM, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    kind: gl.constexpr = q_smem.dtype
    stage = step % STAGES
    member, tile = place(step - begun, tiles, first, rotation, GROUP)
    tilt = slope_of(slopes, member, ALIBI)
    rows = rows_smem.index(stage)
    zeros = gl.zeros([64, BM], gl.float32, s_layout)
    q = q_smem.index(stage)
    do = do_smem.index(stage)

    await_tile(q_full, step)
    s = zeros if CAPPED else spread(rows.slice(0, 1).load(s_layout), zeros)
    s = warpgroup_mma(k_smem.index(kv + W), q.permute((1, 0)), s, use_acc=not CAPPED, is_async=True)
    part = multiply_dq(step - 1, shared, bars, kv, W, D)
    s = warpgroup_mma_wait(2, deps=(s,))
    p, slope = _weights(
        s, rows.slice(0, 1).load(s_layout), tile, tilt, problem, W, BM, kind, LEFT, RIGHT, MASKED,
        CAPPED, ALIBI,
    )  # fmt: skip
    part = warpgroup_mma_wait(0, deps=(part,))
    if step > begun:
        add_dq(step - 1, part, problem, dq, W, BM, D, GROUP)
    dp = spread(rows.slice(1, 1).load(s_layout), zeros)
    await_tile(do_full, step)
    dp = warpgroup_mma(v_smem.index(kv + W), do.permute((1, 0)), dp, is_async=True)
    dv = warpgroup_mma(gl.convert_layout(p, operand), do, dv, is_async=True)
    dp = warpgroup_mma_wait(1, deps=(dp,))
    ds = widen(p) * dp
    if CAPPED:
        ds = ds * slope
    ds = ds.to(kind)
    # This slot has the dS of two steps ago. The other warpgroup was done with it before it gave
    # that of the last step, waited for above.
    ds_smem.index(step % 2 * 2 + W).store(ds)
    fence_async_shared()
    publish_tile(ds_full, step)
    dk = warpgroup_mma(gl.convert_layout(ds, operand), q, dk, is_async=True)
    dk, dv = warpgroup_mma_wait(0, deps=(dk, dv))
    release_tile(q_empty, step)
    release_tile(do_empty, step)
    return dk, dv


@gluon.jit
def multiply_dq(step, shared, bars, kv, W: gl.constexpr, D: gl.constexpr):
    """Begin dq [64,64] of a step (-1: none) over all 128 keys.

    For D = 128 each warpgroup computes half of the columns, for D = 64 half of the rows.
    """
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    q_full, q_empty, do_full, do_empty, ds_full = bars
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    part = gl.zeros([64, 64], gl.float32, layout)
    step += 4  # two rounds on, of the same slot and parity: passed at once for -1
    slot = step % 2
    await_tile(ds_full, step)
    for w in gl.static_range(2):
        ds = ds_smem.index(slot * 2 + w)
        k = k_smem.index(kv + w)
        if D == 128:
            k = k.slice(W * 64, 64, dim=1)
        else:
            ds = ds.slice(W * 64, 64, dim=1)
        part = warpgroup_mma(ds.permute((1, 0)), k, part, use_acc=w > 0, is_async=True)
    return part


@gluon.jit
def add_dq(
    step, part, problem, dq, W: gl.constexpr, BM: gl.constexpr, D: gl.constexpr, GROUP: gl.constexpr
):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
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
        begun,
        kv,
    ) = problem
    member, tile = place(step - begun, tiles, first, rotation, GROUP)
    add_fragments(
        dq + (tile0 + member * stride_head + tile).to(gl.int64) * (BM * D) + W * 4096, part, layout
    )


@gluon.jit
def _consume(
    shared, bars, once, problem, dq, dk_desc, dv_desc, steps, out,
    W: gl.constexpr, BM: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    ATOMIC: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of 64 keys in one warpgroup."""
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    kv_full, done = once
    sequence, head, start_k, scale = out
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
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
        begun,
        kv,
    ) = problem
    kind: gl.constexpr = q_smem.dtype
    await_tile(kv_full, 0)
    if not ATOMIC:
        dks = new_sums(D, D)
        dvs = new_sums(D, D)
        for step in range(steps):
            dks, dvs = add_step(
                step,
                dks,
                dvs,
                shared,
                bars,
                problem,
                W,
                BM,
                D,
                D,
                STAGES,
                GROUP,
                LEFT,
                RIGHT,
                MASKED,
                CAPPED,
                ALIBI,
            )
        dk = dks[0]
        dv = dvs[0]
    else:
        dk = gl.zeros([64, D], gl.float32, acc_layout)
        dv = gl.zeros([64, D], gl.float32, acc_layout)
        for step in range(steps):
            dk, dv = add_step_with_dq(
                step,
                dk,
                dv,
                shared,
                bars,
                problem,
                dq,
                W,
                BM,
                D,
                STAGES,
                GROUP,
                LEFT,
                RIGHT,
                MASKED,
                CAPPED,
                ALIBI,
            )
        if steps > 0:
            part = multiply_dq(steps - 1, shared, bars, 0, W, D)
            part = warpgroup_mma_wait(0, deps=(part,))
            add_dq(steps - 1, part, problem, dq, W, BM, D, GROUP)
    v_smem.index(W).store(dv.to(kind))
    fence_async_shared()
    store_rows(dv_desc, sequence, head, key + W * 64, start_k, seq_k, v_smem.index(W), RAGGED)
    if ATOMIC:
        # The other warpgroup reads these keys for its part of dq.
        publish_tile(done, 0)
        await_tile(done, 0)
    k_smem.index(W).store((dk * scale).to(kind))
    fence_async_shared()
    store_rows(dk_desc, sequence, head, key + W * 64, start_k, seq_k, k_smem.index(W), RAGGED)
    tma.store_wait(0)


@gluon.jit
def _consume_first(
    args,
    BM: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    ATOMIC: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    _consume(*args, 0, BM, D, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED)


@gluon.jit
def _consume_second(
    args,
    BM: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    ATOMIC: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    _consume(*args, 1, BM, D, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED)


@gluon.jit
def _produce(
    q_desc, k_desc, v_desc, do_desc, rows_desc, shared, bars, kv_full, problem, where, steps,
    BM: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, RAGGED: gl.constexpr,
):  # fmt: skip
    """Run the warp that copies tiles."""
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    q_full, q_empty, do_full, do_empty, ds_full = bars
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
        begun,
        kv,
    ) = problem
    sequence, head, kv_head, start_q, start_k = where
    expect_bytes(kv_full, 0, 4 * k_desc.block_type.nbytes)
    kv_there = kv_full.index(0)
    for w in gl.static_range(2):
        row = key + w * 64
        load_rows(k_desc, sequence, kv_head, row, start_k, seq_k, kv_there, k_smem.index(w), RAGGED)
        load_rows(v_desc, sequence, kv_head, row, start_k, seq_k, kv_there, v_smem.index(w), RAGGED)
    for step in range(steps):
        stage = step % STAGES
        member, tile = place(step - begun, tiles, first, rotation, GROUP)
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
        row = 2 * (tile0 + member * stride_head + tile)
        tma_load(rows_desc, [row, 0], q_full.index(stage), rows_smem.index(stage))
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
def backward_keys(
    q_desc, k_desc, v_desc, do_desc, rows_desc, dk_desc, dv_desc, dq, starts_q, starts_k,
    slopes, heads, seq_q, seq_k, tiles_a_head, left, right, slopes_batch, at_once, scale,
    scale_log2, cap_log2,
    BM: gl.constexpr, D: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    SPLIT: gl.constexpr, ATOMIC: gl.constexpr, ROTATE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
    RAGGED: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of a tile of keys.

    The grid, as `own_tile` reads it, is [key tiles of 128, kv heads x SPLIT, sequences]: of the
    query heads that share a key head, each CTA takes GROUP. With ATOMIC it also adds to dq;
    otherwise `backward_queries` computes that. `rows_desc` and `dq` are as
    `backward_rows.prepare_rows` leaves them.
    """
    kind: gl.constexpr = q_desc.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], kind)
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, D], kind)
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BM], kind)
    k_smem = gl.allocate_shared_memory(kind, [2, 64, D], tile_layout)
    v_smem = gl.allocate_shared_memory(kind, [2, 64, D], tile_layout)
    q_smem = gl.allocate_shared_memory(kind, [STAGES, BM, D], q_layout)
    do_smem = gl.allocate_shared_memory(kind, [STAGES, BM, D], q_layout)
    rows_smem = gl.allocate_shared_memory(gl.float32, [STAGES, 2, BM], rows_desc.layout)
    ds_smem = gl.allocate_shared_memory(kind, [4 if ATOMIC else 1, 64, BM], ds_layout)
    q_full, q_empty = barriers(STAGES, 2)
    do_full, do_empty = barriers(STAGES, 2)
    kv_full = arrivals(1, 1)
    # a barrier that nobody uses would share its memory
    ds_full = arrivals(2, 2) if ATOMIC else q_full
    done = arrivals(1, 2) if ATOMIC else kv_full

    sequence = gl.program_id(2)
    own, head, key_tiles = own_tile(at_once)
    key = own * 128
    start_q, seq_q, start_k, seq_k = sequence_of(starts_q, starts_k, seq_q, seq_k, sequence, RAGGED)
    if ALIBI:
        slopes += sequence * slopes_batch + head * GROUP
    first, tiles = queries_of_keys(key, seq_q, seq_k, left, right, BM, 128, LEFT, RIGHT)
    tile0 = first_tile(start_q, sequence, head * GROUP, heads, tiles_a_head, BM, RAGGED)
    rotation = 0
    if ROTATE:
        rotation = own * tiles // key_tiles
    steps = tiles * GROUP
    shared = (k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem)
    bars = (q_full, q_empty, do_full, do_empty, ds_full)
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
        0,
        0,
    )
    args = (
        shared,
        bars,
        (kv_full, done),
        problem,
        dq,
        dk_desc,
        dv_desc,
        steps,
        (sequence, head, start_k, scale),
    )
    where = (sequence, head, head // SPLIT, start_q, start_k)
    gl.warp_specialize(
        [
            (
                _consume_first,
                (args, BM, D, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED),
            ),
            (
                _consume_second,
                (args, BM, D, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED, ALIBI, RAGGED),
            ),
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
                    kv_full,
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
