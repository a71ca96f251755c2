"""Compute dQ of short sequences without atomics.

As in `backward_keys_claimed`, a CTA claims tiles of 128 queries until none are left.
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

from gpudeck.accel.attention.kernels.hopper.backward_tiles import (
    apply_cap,
    is_cut,
    keys_of_queries,
    multiply_columns,
    multiply_rows,
    new_sums,
    sees,
    slope_of,
    store_sums,
    tilt_of_keys,
    wait_for,
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
from gpudeck.accel.primitives.tiles.ring import await_tile, barriers, expect_tile, release_tile
from gpudeck.accel.runtime.gluon import thread_barrier


@gluon.jit
def _work(t, order, bounds, BN: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr):
    """Return the sequence, head and first query of a tile, the first key that it sees, and the
    number of tiles of keys. The longest rows of a causal mask are the last."""
    tiles, row_tiles, heads, sequences, group, tiles_a_head = order
    seq_q, seq_k, left, right = bounds
    own, at = locate(t, row_tiles, heads * sequences, group)
    query = (row_tiles - 1 - own) * 128
    first, count = keys_of_queries(query, seq_q, seq_k, left, right, 128, BN, LEFT, RIGHT)
    return at // heads, at % heads, query, first * BN, count


@gluon.jit
def _consume(
    args,
    W: gl.constexpr, BN: gl.constexpr, D: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    TILE: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Compute dq of 64 queries of each tile in one warpgroup."""
    smem, bars, slots, order, bounds, factors, tilts, rows, dq_desc = args
    q_smem, do_smem, k_smem, v_smem = smem
    tiles, row_tiles, heads, sequences, group, tiles_a_head = order
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    seq_q, seq_k, left, right = bounds
    scale, scale_log2, cap_log2 = factors
    slopes, slopes_batch = tilts
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    kind: gl.constexpr = q_smem.dtype
    begun = 0
    served = 0
    t = take_claim(slots, 0)
    while t >= 0:
        sequence, head, query, first, count = _work(t, order, bounds, BN, LEFT, RIGHT)
        tilt = 0.0
        if ALIBI:
            tilt = slope_of(slopes + sequence * slopes_batch + head, 0, ALIBI)
        slot = served & 1
        q = q_smem.index(slot * 2 + W)
        do = do_smem.index(slot * 2 + W)
        row = gl.expand_dims(query + W * 64 + gl.arange(0, 64, gl.SliceLayout(1, s_layout)), 1)
        zeros = gl.zeros([64, BN], gl.float32, s_layout)
        dq = new_sums(D, DEPTH)
        tile0 = (sequence * heads + head) * tiles_a_head
        of_rows = rows + (tile0 + row // TILE).to(gl.int64) * (2 * TILE) + row % TILE
        minus_lse = gl.load(of_rows, mask=row < seq_q, other=0.0)
        minus_delta = gl.load(of_rows + TILE, mask=row < seq_q, other=0.0)
        if not CAPPED:
            minus_lse *= scale_log2
        await_tile(q_full, served)
        end = begun + count
        for step in range(begun, end):
            k = k_smem.index(step % STAGES)
            await_tile(k_full, step)
            s = multiply_rows(q, k, zeros, False, DEPTH)
            await_tile(v_full, step)
            v = v_smem.index(step % STAGES)
            dp = multiply_rows(do, v, zeros, False, DEPTH)
            s = warpgroup_mma_wait(1 if DEPTH == D else 2, deps=(s,))
            if CAPPED:
                s, slope = apply_cap(s, minus_lse, scale_log2, cap_log2)
            else:
                s = s * scale_log2 + minus_lse
            key = first + (step - begun) * BN
            if ALIBI:
                keys = gl.expand_dims(key + gl.arange(0, BN, gl.SliceLayout(0, s_layout)), 0)
                s = s + tilt_of_keys(keys, (query + W * 64) // TILE, seq_q, seq_k, tilt, TILE)
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
            dq = wait_for(multiply_columns(ds.to(kind), k, dq, D, DEPTH), D, DEPTH)
            release_tile(k_empty, step)
        store_sums(dq, scale, q, D, DEPTH)
        fence_async_shared()
        store_rows(dq_desc, sequence, head, query + W * 64, 0, seq_q, q, False)
        tma.store_wait(0)
        thread_barrier()
        release_tile(q_empty, served)
        begun = end
        served += 1
        t = take_claim(slots, served)


@gluon.jit
def _produce(
    descs, smem, bars, slots, order, bounds, claims,
    BN: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, COUNT: gl.constexpr,
):  # fmt: skip
    """Claim tiles, and copy what they need."""
    q_desc, k_desc, v_desc, do_desc = descs
    q_smem, do_smem, k_smem, v_smem = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    tiles, row_tiles, heads, sequences, group, tiles_a_head = order
    begun = 0
    served = 0
    t = gl.program_id(0)
    while t < tiles:
        publish_claim(slots, served, t)
        sequence, head, query, first, count = _work(t, order, bounds, BN, LEFT, RIGHT)
        slot = served & 1
        bytes_of_q: gl.constexpr = 2 * (q_desc.block_type.nbytes + do_desc.block_type.nbytes)
        expect_tile(q_full, q_empty, served, bytes_of_q)
        there = q_full.index(slot)
        for w in gl.static_range(2):
            at = query + w * 64
            load_rows(q_desc, sequence, head, at, 0, 0, there, q_smem.index(slot * 2 + w), False)
            load_rows(do_desc, sequence, head, at, 0, 0, there, do_smem.index(slot * 2 + w), False)
        end = begun + count
        for step in range(begun, end):
            stage = step % STAGES
            key = first + (step - begun) * BN
            expect_tile(k_full, k_empty, step, k_desc.block_type.nbytes)
            load_rows(
                k_desc, sequence, head // GROUP, key, 0, 0, k_full.index(stage),
                k_smem.index(stage), False,
            )  # fmt: skip
            expect_tile(v_full, v_empty, step, v_desc.block_type.nbytes)
            load_rows(
                v_desc, sequence, head // GROUP, key, 0, 0, v_full.index(stage),
                v_smem.index(stage), False,
            )  # fmt: skip
        begun = end
        served += 1
        t = claim_next(claims, t, COUNT)
    publish_claim(slots, served, -1)


@gluon.jit(do_not_specialize=VARYING)
def backward_queries_claimed(
    q_desc, k_desc, v_desc, do_desc, dq_desc, rows, claims, slopes,
    heads, sequences, seq_q, seq_k, tiles_a_head, left, right, slopes_batch,
    tiles, row_tiles, group, scale, scale_log2, cap_log2,
    BN: gl.constexpr, D: gl.constexpr, DEPTH: gl.constexpr, STAGES: gl.constexpr,
    TILE: gl.constexpr, GROUP: gl.constexpr, COUNT: gl.constexpr,
    LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
    ALIBI: gl.constexpr,
):  # fmt: skip
    """Compute dq of all queries, `tiles` tiles of 128 in all.

    The grid is one CTA a multiprocessor. `claims` is a counter that `prepare_rows` has set to 0;
    it has also made `rows`, in tiles of TILE queries.
    """
    kind: gl.constexpr = q_desc.dtype
    q_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, D], kind)
    k_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, D], kind)
    q_smem = gl.allocate_shared_memory(kind, [4, 64, D], q_layout)
    do_smem = gl.allocate_shared_memory(kind, [4, 64, D], q_layout)
    k_smem = gl.allocate_shared_memory(kind, [STAGES, BN, D], k_layout)
    v_smem = gl.allocate_shared_memory(kind, [STAGES, BN, D], k_layout)
    q_full, q_empty = barriers(2, 2)
    k_full, k_empty = barriers(STAGES, 2)
    v_full, v_empty = barriers(STAGES, 2)
    slots = claim_slots()
    descs = (q_desc, k_desc, v_desc, do_desc)
    smem = (q_smem, do_smem, k_smem, v_smem)
    bars = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    order = (tiles, row_tiles, heads, sequences, group, tiles_a_head)
    bounds = (seq_q, seq_k, left, right)
    tilts = (slopes, slopes_batch)
    factors = (scale, scale_log2, cap_log2)
    args = (smem, bars, slots, order, bounds, factors, tilts, rows, dq_desc)
    # What is above ran while the kernel before this one came to its end.
    gdc_launch_dependents()
    gdc_wait()
    gl.warp_specialize(
        [
            (_consume, (args, 0, BN, D, DEPTH, STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI)),
            (_consume, (args, 1, BN, D, DEPTH, STAGES, TILE, LEFT, RIGHT, MASKED, CAPPED, ALIBI)),
            (
                _produce,
                (
                    descs, smem, bars, slots, order, bounds, claims, BN, STAGES, GROUP, LEFT,
                    RIGHT, COUNT,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
