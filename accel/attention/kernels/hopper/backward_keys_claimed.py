"""Compute dK and dV, and optionally dQ, of short sequences with heads of up to 64 elements.

The products are those of `backward_keys`. A CTA stays on its multiprocessor and claims tiles of
128 keys until none are left: the next tile's loads run during the last products of the one before,
and its results are stored during the next one's. Of sequences of 1,024 tokens a CTA of
`backward_keys` has 4 or 5 steps under a causal mask, and start and end take as long as one.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.attention.kernels.hopper.backward_keys import (
    add_dq,
    add_step,
    add_step_with_dq,
    multiply_dq,
)
from gpudeck.accel.attention.kernels.hopper.backward_tiles import (
    new_sums,
    place,
    queries_of_keys,
    store_sums,
)
from gpudeck.accel.attention.kernels.hopper.claims import (
    VARYING,
    claim_next,
    claim_slots,
    locate,
    publish_claim,
    take_claim,
)
from gpudeck.accel.attention.kernels.hopper.descriptors import load_rows, store_rows
from gpudeck.accel.primitives.tiles.ring import (
    arrivals,
    await_tile,
    barriers,
    expect_tile,
    publish_tile,
    release_tile,
)
from gpudeck.accel.runtime.gluon import thread_barrier, tma_load


@gluon.jit
def _work(t, order, bounds, BM: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr):
    """Return the sequence, key head and first key of a tile, the first tile of queries that sees
    it, and the number of these."""
    tiles, row_tiles, heads, kv_heads, sequences, group, tiles_a_head = order
    seq_q, seq_k, left, right = bounds
    own, at = locate(t, row_tiles, kv_heads * sequences, group)
    first, count = queries_of_keys(own * 128, seq_q, seq_k, left, right, BM, 128, LEFT, RIGHT)
    return at // kv_heads, at % kv_heads, own * 128, first, count


@gluon.jit
def _consume(
    args,
    W: gl.constexpr, BM: gl.constexpr, D: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr, ATOMIC: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of 64 keys of each tile in one warpgroup."""
    shared, bars, kv_bars, slots, order, bounds, factors, tilts, dq, dk_desc, dv_desc = args
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    kv_full, kv_empty, done = kv_bars
    tiles, row_tiles, heads, kv_heads, sequences, group, tiles_a_head = order
    seq_q, seq_k, left, right = bounds
    scale, scale_log2, cap_log2 = factors
    slopes, slopes_batch = tilts
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    begun = 0
    served = 0
    t = take_claim(slots, 0)
    while t >= 0:
        sequence, head, key, first, count = _work(t, order, bounds, BM, LEFT, RIGHT)
        tile0 = (sequence * heads + head * GROUP) * tiles_a_head
        tilt = 0
        if ALIBI:
            tilt = slopes + (sequence * slopes_batch + head * GROUP)
        kv = (served & 1) * 2
        problem = (
            key, count, first, 0, seq_q, seq_k, left, right, scale_log2, cap_log2, tile0,
            tiles_a_head, tilt, begun, kv,
        )  # fmt: skip
        end = begun + count * GROUP
        await_tile(kv_full, served)
        if ATOMIC:
            dk = gl.zeros([64, D], gl.float32, acc_layout)
            dv = gl.zeros([64, D], gl.float32, acc_layout)
            for step in range(begun, end):
                dk, dv = add_step_with_dq(
                    step, dk, dv, shared, bars, problem, dq, W, BM, D, STAGES, GROUP, LEFT, RIGHT,
                    MASKED, CAPPED, ALIBI,
                )  # fmt: skip
            if end > begun:
                part = multiply_dq(end - 1, shared, bars, kv, W, D)
                part = warpgroup_mma_wait(0, deps=(part,))
                add_dq(end - 1, part, problem, dq, W, BM, D, GROUP)
            dks = (dk,)
            dvs = (dv,)
        else:
            dks = new_sums(D, DEPTH)
            dvs = new_sums(D, DEPTH)
            for step in range(begun, end):
                dks, dvs = add_step(
                    step, dks, dvs, shared, bars, problem, W, BM, D, DEPTH, STAGES, GROUP, LEFT,
                    RIGHT, MASKED, CAPPED, ALIBI,
                )  # fmt: skip
        row = key + W * 64
        store_sums(dvs, 1.0, v_smem.index(kv + W), D, DEPTH)
        fence_async_shared()
        store_rows(dv_desc, sequence, head, row, 0, seq_k, v_smem.index(kv + W), False)
        if ATOMIC:
            # The other warpgroup reads these keys for its part of dq.
            publish_tile(done, served)
            await_tile(done, served)
        store_sums(dks, scale, k_smem.index(kv + W), D, DEPTH)
        fence_async_shared()
        store_rows(dk_desc, sequence, head, row, 0, seq_k, k_smem.index(kv + W), False)
        tma.store_wait(0)
        thread_barrier()
        release_tile(kv_empty, served)
        begun = end
        served += 1
        t = take_claim(slots, served)


@gluon.jit
def _produce(
    descs, shared, bars, kv_bars, slots, order, bounds, claims,
    BM: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, SPLIT: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, COUNT: gl.constexpr,
):  # fmt: skip
    """Claim tiles, and copy what they need."""
    q_desc, k_desc, v_desc, do_desc, rows_desc = descs
    k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem = shared
    q_full, q_empty, do_full, do_empty, ds_full = bars
    kv_full, kv_empty, done = kv_bars
    tiles, row_tiles, heads, kv_heads, sequences, group, tiles_a_head = order
    begun = 0
    served = 0
    t = gl.program_id(0)
    while t < tiles:
        publish_claim(slots, served, t)
        sequence, head, key, first, count = _work(t, order, bounds, BM, LEFT, RIGHT)
        tile0 = (sequence * heads + head * GROUP) * tiles_a_head
        expect_tile(kv_full, kv_empty, served, 4 * k_desc.block_type.nbytes)
        slot = served & 1
        for w in gl.static_range(2):
            where = (sequence, head // SPLIT, key + w * 64)
            load_rows(
                k_desc, where[0], where[1], where[2], 0, 0, kv_full.index(slot),
                k_smem.index(slot * 2 + w), False,
            )  # fmt: skip
            load_rows(
                v_desc, where[0], where[1], where[2], 0, 0, kv_full.index(slot),
                v_smem.index(slot * 2 + w), False,
            )  # fmt: skip
        end = begun + count * GROUP
        for step in range(begun, end):
            stage = step % STAGES
            member, tile = place(step - begun, count, first, 0, GROUP)
            q_head = head * GROUP + member
            bytes_of_q: gl.constexpr = q_desc.block_type.nbytes + rows_desc.block_type.nbytes
            expect_tile(q_full, q_empty, step, bytes_of_q)
            load_rows(
                q_desc, sequence, q_head, tile * BM, 0, 0, q_full.index(stage),
                q_smem.index(stage), False,
            )  # fmt: skip
            row = 2 * (tile0 + member * tiles_a_head + tile)
            tma_load(rows_desc, [row, 0], q_full.index(stage), rows_smem.index(stage))
            expect_tile(do_full, do_empty, step, do_desc.block_type.nbytes)
            load_rows(
                do_desc, sequence, q_head, tile * BM, 0, 0, do_full.index(stage),
                do_smem.index(stage), False,
            )  # fmt: skip
        begun = end
        served += 1
        t = claim_next(claims, t, COUNT)
    publish_claim(slots, served, -1)


@gluon.jit(do_not_specialize=[*VARYING, "kv_heads"])
def backward_keys_claimed(
    q_desc, k_desc, v_desc, do_desc, rows_desc, dk_desc, dv_desc, dq, claims, slopes,
    heads, kv_heads, sequences, seq_q, seq_k, tiles_a_head, left, right, slopes_batch,
    tiles, row_tiles, group, scale, scale_log2, cap_log2,
    BM: gl.constexpr, D: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr, SPLIT: gl.constexpr, ATOMIC: gl.constexpr, COUNT: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Compute dk and dv of all keys, `tiles` tiles of 128 in all.

    The grid is one CTA a multiprocessor. `kv_heads` are those of dk and dv: key heads x SPLIT, of
    GROUP query heads each. `claims` is a counter that `prepare_rows` has set to 0, as it has set
    `rows_desc` and dq.
    """
    kind: gl.constexpr = q_desc.dtype
    tile_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], kind)
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BM, D], kind)
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BM], kind)
    k_smem = gl.allocate_shared_memory(kind, [4, 64, D], tile_layout)
    v_smem = gl.allocate_shared_memory(kind, [4, 64, D], tile_layout)
    q_smem = gl.allocate_shared_memory(kind, [STAGES, BM, D], q_layout)
    do_smem = gl.allocate_shared_memory(kind, [STAGES, BM, D], q_layout)
    rows_smem = gl.allocate_shared_memory(gl.float32, [STAGES, 2, BM], rows_desc.layout)
    ds_smem = gl.allocate_shared_memory(kind, [4 if ATOMIC else 1, 64, BM], ds_layout)
    q_full, q_empty = barriers(STAGES, 2)
    do_full, do_empty = barriers(STAGES, 2)
    kv_full, kv_empty = barriers(2, 2)
    # a barrier that nobody uses would share its memory
    ds_full = arrivals(2, 2) if ATOMIC else q_full
    done = arrivals(1, 2) if ATOMIC else kv_full
    slots = claim_slots()
    descs = (q_desc, k_desc, v_desc, do_desc, rows_desc)
    shared = (k_smem, v_smem, q_smem, do_smem, rows_smem, ds_smem)
    bars = (q_full, q_empty, do_full, do_empty, ds_full)
    kv_bars = (kv_full, kv_empty, done)
    order = (tiles, row_tiles, heads, kv_heads, sequences, group, tiles_a_head)
    bounds = (seq_q, seq_k, left, right)
    factors = (scale, scale_log2, cap_log2)
    tilts = (slopes, slopes_batch)
    args = (
        shared, bars, kv_bars, slots, order, bounds, factors, tilts, dq, dk_desc, dv_desc
    )  # fmt: skip
    # What is above ran while the kernel before this one came to its end.
    gdc_launch_dependents()
    gdc_wait()
    gl.warp_specialize(
        [
            (
                _consume,
                (
                    args, 0, BM, D, DEPTH, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED,
                    ALIBI,
                ),
            ),
            (
                _consume,
                (
                    args, 1, BM, D, DEPTH, STAGES, GROUP, ATOMIC, LEFT, RIGHT, MASKED, CAPPED,
                    ALIBI,
                ),
            ),
            (
                _produce,
                (
                    descs, shared, bars, kv_bars, slots, order, bounds, claims, BM, STAGES, GROUP,
                    SPLIT, LEFT, RIGHT, COUNT,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
