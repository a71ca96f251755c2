# mypy: disable-error-code="no-untyped-def"
"""Compute attention forward on NVIDIA Hopper (sm_90).

One producer warp loads tiles with the copy engine (TMA); two or three consumer warpgroups of 64
queries each multiply, exponentiate and accumulate (FlashAttention-3, arXiv 2407.08608, sections 3.1
and 3.2). Each issues the scores of one block of keys together with the product of the block before
and the values, in turn with the others, so that one's softmax overlaps the other's products.

The kernel is persistent: each multiprocessor claims tiles until none are left, those that see most
keys first, and continues with the next without draining its pipeline. If tiles are alike and short
it takes every n-th instead. It begins while the kernel before it on the stream ends (programmatic
dependent launch), and waits for that before it accesses memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.attention.kernels.geometry import (
    Geometry,
    bias_pointer,
    geometry_key,
    geometry_of,
)
from gpudeck.accel.attention.kernels.hopper.descriptors import (
    describe,
    load_rows,
    store_rows,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.primitives.tiles.ring import (
    arrivals,
    await_slot,
    await_tile,
    await_turn,
    barriers,
    expect_tile,
    pass_turn,
    publish_tile,
    release_tile,
)
from gpudeck.accel.primitives.tiles.warpgroup import (
    advance,
    limit,
    pack,
    softmax_end,
    softmax_step,
    unpack,
    widen,
)
from gpudeck.accel.runtime.call import KernelCall, Pointer, TensorBox
from gpudeck.accel.runtime.gluon import tma_load
from gpudeck.accel.runtime.launch import prepare

LOG2E = 1.4426950408889634
BASE_2 = gl.constexpr(LOG2E)
ROWS = gl.constexpr(64)
"""Queries of a consumer warpgroup: one row of wgmma instructions."""
CLAIM_BEFORE = gl.constexpr(3)
"""The next tile is claimed so many blocks of keys before a tile's last loads."""


@gluon.jit
def _barriers(C: gl.constexpr, STAGES: gl.constexpr, Q_STAGES: gl.constexpr, O_SLOTS: gl.constexpr):
    """Return the barriers of queries, keys, values, of the consumers' turns to multiply and to
    store, and of claims.

    Consumers that have room for an output each take no turns to store, and there is no barrier for
    it: the memory of one that nobody uses is given to data that is allocated later, which PTX
    forbids before `mbarrier.inval`.
    """
    q_full, q_empty = barriers(Q_STAGES * C, 1)
    k_full, k_empty = barriers(STAGES, C)
    v_full, v_empty = barriers(STAGES, C)
    turn = arrivals(C, 1)
    o_turn = arrivals(C, 1) if O_SLOTS == 1 else turn
    claim_full, claim_empty = barriers(2, C)
    return (
        q_full, q_empty, k_full, k_empty, v_full, v_empty, turn, o_turn, claim_full, claim_empty
    )  # fmt: skip


@gluon.jit
def _reach(
    row,
    seq_q,
    seq_k,
    left,
    right,
    BM: gl.constexpr,
    BN: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
):
    """Return the last block of keys that the tile at `row` sees, and the number of blocks.

    The number is at least one, even if no row sees a key: such a block is handled like any
    other masked block.
    """
    shift = seq_k - seq_q
    end = seq_k
    low = 0
    if RIGHT:
        end = gl.minimum(end, gl.minimum(row + BM, seq_q) + shift + right)
    if LEFT:
        low = gl.maximum(row + shift - left, 0) // BN
    blocks = gl.maximum((end + BN - 1) // BN - low, 1)
    return low + blocks - 1, blocks


@gluon.jit
def _field(claimed, i):
    return gl.max(claimed.index(i).load(gl.BlockedLayout([1], [32], [4], [0])), 0)


@gluon.jit
def _take(claimed, claim_full, claim_empty, served, seq_q, seq_k, RAGGED: gl.constexpr):
    """Return tile number `served` once it is published: row (-1: none), sequence, head, and the
    sequence's start and length.
    """
    FIELDS: gl.constexpr = 6 if RAGGED else 3
    at = (served & 1) * FIELDS
    await_tile(claim_full, served)
    row = _field(claimed, at)
    sequence = _field(claimed, at + 1)
    head = _field(claimed, at + 2)
    start_q = 0
    if RAGGED:
        start_q = _field(claimed, at + 3)
        seq_q = _field(claimed, at + 4)
        seq_k = _field(claimed, at + 5)
    release_tile(claim_empty, served)
    return row, sequence, head, start_q, seq_q, seq_k


@gluon.jit
def _claim(claims, t, COUNT: gl.constexpr):
    """Return the tile after `t`, which may be past the last one.

    It is the next unclaimed tile or, if they are not counted, a fixed number further on.
    """
    if COUNT:
        t = gl.atomic_add(claims, 1, sem="relaxed")
    return gl.num_programs(0) + t


@gluon.jit
def _locate(
    t,
    order,
    starts,
    claims,
    seq_q,
    seq_k,
    BM: gl.constexpr,
    RAGGED: gl.constexpr,
    COUNT: gl.constexpr,
):
    """Return row (-1: past the last tile), sequence, head, start and length of queries and of
    keys.

    Heads form rounds (`group` heads); in a round the tiles that see most keys come first. A ragged
    tile past the end of its sequence is skipped, with those of the sequence's next heads, which
    nobody need claim then.
    """
    tiles, row_tiles, heads, kv_group, all_heads, group = order
    row = -1
    sequence = 0
    head = 0
    start_q = 0
    start_k = 0
    while (t < tiles) & (row < 0):
        first = (t // (group * row_tiles)) * group
        place = t - first * row_tiles
        together = gl.minimum(group, all_heads - first)
        row = (row_tiles - 1 - place // together) * BM
        head = first + place % together
        sequence = head // heads
        head = head % heads
        if RAGGED:
            starts_q, starts_k = starts
            start_q = gl.load(starts_q + sequence)
            start_k = gl.load(starts_k + sequence)
            seq_q = gl.load(starts_q + sequence + 1) - start_q
            seq_k = gl.load(starts_k + sequence + 1) - start_k
            if row >= seq_q:
                row = -1
                if COUNT:
                    alike = gl.minimum(heads - head, together - place % together)
                    gl.atomic_max(claims, t + alike - gl.num_programs(0), sem="relaxed")
                t = _claim(claims, t, COUNT)
    return row, sequence, head, start_q, seq_q, start_k, seq_k


@gluon.jit
def _publish(claimed, claim_full, claim_empty, served, tile, RAGGED: gl.constexpr):
    """Publish the location of tile number `served` to the consumers; it stays until they have
    taken it.
    """
    row, sequence, head, start_q, seq_q, start_k, seq_k = tile
    FIELDS: gl.constexpr = 6 if RAGGED else 3
    nil = gl.full([1], 0, gl.int32, gl.BlockedLayout([1], [32], [1], [0]))
    at = (served & 1) * FIELDS
    await_slot(claim_empty, served)
    claimed.index(at).store(nil + row)
    claimed.index(at + 1).store(nil + sequence)
    claimed.index(at + 2).store(nil + head)
    if RAGGED:
        claimed.index(at + 3).store(nil + start_q)
        claimed.index(at + 4).store(nil + seq_q)
        claimed.index(at + 5).store(nil + seq_k)
    publish_tile(claim_full, served)


@gluon.jit
def _load(
    desc,
    shared,
    full,
    empty,
    step,
    sequence,
    head,
    key,
    start,
    length,
    RAGGED: gl.constexpr,
    TURNED: gl.constexpr = 0,
    rest=None,
    E: gl.constexpr = 0,
):
    """Load the block of keys or of values of this step as soon as there is room.

    `rest` has the box of the E last elements of each head, and where they go. TURNED values lie
    with their keys side by side; there each ragged sequence begins a block of TURNED keys.
    """
    STAGES: gl.constexpr = shared.shape[0]
    slot = step % STAGES
    if E:
        expect_tile(full, empty, step, desc.block_type.nbytes + rest[0].block_type.nbytes)
        load_rows(
            rest[0], sequence, head, key, start, length, full.index(slot), rest[1].index(slot),
            RAGGED, shared.shape[2],
        )  # fmt: skip
    else:
        expect_tile(full, empty, step, desc.block_type.nbytes)
    if TURNED:
        if RAGGED:
            key += (start // TURNED + sequence) * TURNED
            sequence = 0
        tma_load(desc, [sequence, head, 0, key], full.index(slot), shared.index(slot))
    else:
        load_rows(
            desc, sequence, head, key, start, length, full.index(slot), shared.index(slot), RAGGED
        )


@gluon.jit
def _producer(
    loads,
    BN: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    RAGGED: gl.constexpr,
    COUNT: gl.constexpr,
    TURNED: gl.constexpr = 0,
    rest=None,
    E: gl.constexpr = 0,
    EV: gl.constexpr = 0,
):
    """Claim tiles, publish them to the consumers, and load what they need.

    `rest` has the boxes and the shared memory of the E last elements of each head, of values EV.
    """
    q_rest = rest
    k_rest = rest
    v_rest = rest
    if E:
        q_rest = (rest[0][0], rest[1][0])
        k_rest = (rest[0][1], rest[1][1])
        v_rest = (rest[0][2], rest[1][2])
    descs, smem, bars, bounds, order, starts, claims = loads
    q_desc, k_desc, v_desc, o_desc = descs
    q_smem, k_smem, v_smem, o_smem, claimed = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turn, o_turn, claim_full, claim_empty = bars
    seq_q, seq_k, left, right = bounds
    tiles, row_tiles, heads, kv_group, all_heads, group = order
    C: gl.constexpr = turn.shape[0]
    BM: gl.constexpr = C * ROWS
    step = 0
    served = 0
    t = gl.program_id(0)
    tile = _locate(t, order, starts, claims, seq_q, seq_k, BM, RAGGED, COUNT)
    _publish(claimed, claim_full, claim_empty, served, tile, RAGGED)
    while tile[0] >= 0:
        row, sequence, head, start_q, length_q, start_k, length_k = tile
        last, blocks = _reach(row, length_q, length_k, left, right, BM, BN, RIGHT, LEFT)
        kv_head = head // kv_group
        _load(
            k_desc,
            k_smem,
            k_full,
            k_empty,
            step,
            sequence,
            kv_head,
            last * BN,
            start_k,
            length_k,
            RAGGED,
            0,
            k_rest,
            E,
        )
        for c in gl.static_range(C):
            part = served * C + c
            slot = part % q_smem.shape[0]
            if E:
                expect_tile(
                    q_full, q_empty, part, q_desc.block_type.nbytes + q_rest[0].block_type.nbytes
                )
                load_rows(
                    q_rest[0], sequence, head, row + c * ROWS, start_q, length_q,
                    q_full.index(slot), q_rest[1].index(slot), RAGGED, q_smem.shape[2],
                )  # fmt: skip
            else:
                expect_tile(q_full, q_empty, part, q_desc.block_type.nbytes)
            load_rows(
                q_desc,
                sequence,
                head,
                row + c * ROWS,
                start_q,
                length_q,
                q_full.index(slot),
                q_smem.index(slot),
                RAGGED,
            )
        _load(
            v_desc,
            v_smem,
            v_full,
            v_empty,
            step,
            sequence,
            kv_head,
            last * BN,
            start_k,
            length_k,
            RAGGED,
            TURNED,
            v_rest,
            EV,
        )
        # Claimed late, so that who has the longest tile does not have the longest of the next ones,
        # too, but early enough that the next tile's loads follow this one's without a pause.
        soon = gl.maximum(blocks - CLAIM_BEFORE, 1)
        keys = (last, sequence, kv_head, start_k, length_k)
        _load_blocks(loads, keys, step, 1, soon, BN, RAGGED, TURNED, k_rest, v_rest, E, EV)
        served += 1
        t = _claim(claims, t, COUNT)
        tile = _locate(t, order, starts, claims, seq_q, seq_k, BM, RAGGED, COUNT)
        _publish(claimed, claim_full, claim_empty, served, tile, RAGGED)
        _load_blocks(loads, keys, step, soon, blocks, BN, RAGGED, TURNED, k_rest, v_rest, E, EV)
        step += blocks


@gluon.jit
def _load_blocks(
    loads, keys, step, begin, end, BN: gl.constexpr, RAGGED: gl.constexpr, TURNED: gl.constexpr,
    k_rest, v_rest, E: gl.constexpr, EV: gl.constexpr,
):  # fmt: skip
    """Load the blocks `begin` to `end` - 1 of keys and values, counted from the last one."""
    descs, smem, bars = loads[0], loads[1], loads[2]
    last, sequence, kv_head, start_k, length_k = keys
    for i in range(begin, end):
        key = (last - i) * BN
        _load(
            descs[1], smem[1], bars[2], bars[3], step + i, sequence, kv_head, key, start_k,
            length_k, RAGGED, 0, k_rest, E,
        )  # fmt: skip
        _load(
            descs[2], smem[2], bars[4], bars[5], step + i, sequence, kv_head, key, start_k,
            length_k, RAGGED, TURNED, v_rest, EV,
        )  # fmt: skip


@gluon.jit
def _mask(s, block, place, RIGHT: gl.constexpr, LEFT: gl.constexpr):
    """Put -inf where the rows do not see the keys of the block.

    `place` holds the first row, as aligned with the keys, their number, and the window.
    """
    BN: gl.constexpr = s.shape[1]
    LAYOUT: gl.constexpr = s.type.layout
    first, seq_k, left, right = place
    rows = gl.expand_dims(first - block * BN + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT)), 1)
    cols = gl.expand_dims(gl.arange(0, BN, gl.SliceLayout(0, LAYOUT)), 0)
    end = seq_k - block * BN
    if RIGHT:
        end = gl.minimum(end, rows + right + 1)
    seen = cols < end
    if LEFT:
        seen = seen & (cols >= rows - left)
    return gl.where(seen, s, -float("inf"))


@gluon.jit
def _store(
    acc, m, l, lse, o_desc, o_smem, o_turn, tile, stored, CID: gl.constexpr, RAGGED: gl.constexpr,
    sinks=None, SINK: gl.constexpr = False, last=None, rest=None, E: gl.constexpr = 0,
):  # fmt: skip
    """Write 64 rows of output and of the logarithms of the sums.

    A row that sees no key has l = 0 and m = -inf, which gives output 0 and lse -inf. With SINK, one
    more score of each row enters its sum, to which no value belongs. `last` are the E last columns,
    and `rest` their box and shared memory.
    """
    row, sequence, head, start_q, seq_q, heads, rows_in_all = tile
    O_LAYOUT: gl.constexpr = acc.type.layout
    O_SLOTS: gl.constexpr = o_smem.shape[0]
    shrink = 1.0
    if SINK:
        sink = gl.load(sinks + head) * BASE_2
        before = m
        m, base = advance(m, sink, True)
        shrink = gl.exp2(before - base)
        l = l * shrink + gl.exp2(sink - base)
    mean, logs = softmax_end(m, l)
    mean = mean * shrink
    acc = acc * gl.expand_dims(gl.convert_layout(mean, gl.SliceLayout(1, O_LAYOUT)), 1)
    rows = row + gl.arange(0, ROWS, m.type.layout)
    place = (sequence * heads + head).to(gl.int64) * seq_q
    if RAGGED:
        place = head.to(gl.int64) * rows_in_all + start_q
    gl.store(lse + place + rows, logs, mask=rows < seq_q)
    if O_SLOTS == 1:
        await_turn(o_turn, stored, CID)
        box = o_smem.index(0)
    else:
        tma.store_wait(0)
        box = o_smem.index(CID)
    box.store(acc.to(o_smem.dtype))
    if E:
        E_LAYOUT: gl.constexpr = last.type.layout
        last = last * gl.expand_dims(gl.convert_layout(mean, gl.SliceLayout(1, E_LAYOUT)), 1)
        rest[1].index(CID if O_SLOTS > 1 else 0).store(last.to(o_smem.dtype))
    fence_async_shared()
    store_rows(o_desc, sequence, head, row, start_q, seq_q, box, RAGGED)
    if E:
        store_rows(
            rest[0], sequence, head, row, start_q, seq_q, rest[1].index(CID if O_SLOTS > 1 else 0),
            RAGGED, o_smem.shape[2],
        )  # fmt: skip
    if O_SLOTS == 1:
        tma.store_wait(0)
        pass_turn(o_turn, CID)


@gluon.jit
def _empty(D: gl.constexpr, E: gl.constexpr):
    """Return the output of 64 rows, in columns 0 to D - 1 and, if there are more, the E last."""
    acc = gl.zeros([ROWS, D], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16]))
    if E:
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, E, 16])
        return acc, gl.zeros([ROWS, E], gl.float32, layout)
    else:
        return (acc,)


@gluon.jit
def _add(p, values, accs, rest, slot, E: gl.constexpr):
    """Issue the products of weights and values."""
    acc = warpgroup_mma(p, values, accs[0], is_async=True)
    if E:
        layout: gl.constexpr = gl.DotOperandLayout(0, accs[1].type.layout, 2)
        p = gl.convert_layout(p, layout)
        return acc, warpgroup_mma(p, rest[2].index(slot), accs[1], is_async=True)
    else:
        return (acc,)


@gluon.jit
def _added(accs, E: gl.constexpr):
    """Return the output once the products are done."""
    if E:
        return warpgroup_mma_wait(0, deps=accs)
    else:
        return (warpgroup_mma_wait(0, deps=accs),)


@gluon.jit
def _shrunk(accs, factor, E: gl.constexpr):
    """Return the output, its rows multiplied by a factor."""
    at: gl.constexpr = gl.SliceLayout(1, accs[0].type.layout)
    acc = accs[0] * gl.expand_dims(gl.convert_layout(factor, at), 1)
    if E:
        at_last: gl.constexpr = gl.SliceLayout(1, accs[1].type.layout)
        return acc, accs[1] * gl.expand_dims(gl.convert_layout(factor, at_last), 1)
    else:
        return (acc,)


@gluon.jit
def _issue(
    q, smem, bars, p, accs, step, CID: gl.constexpr, rest, E: gl.constexpr, EV: gl.constexpr
):  # fmt: skip
    """Issue the scores of this step's block and the output of the step before, and wait for the
    scores.

    Consumers issue in turn.
    """
    k_smem, v_smem = smem[1], smem[2]
    k_full, k_empty, v_full, turn = bars[2], bars[3], bars[4], bars[6]
    STAGES: gl.constexpr = k_smem.shape[0]
    BN: gl.constexpr = k_smem.shape[1]
    k_slot = step % STAGES
    # The very first step has no block before it: it multiplies zeros, and the result is forgotten.
    before = gl.maximum(step - 1, 0)
    await_tile(k_full, step)
    await_turn(turn, step, CID)
    nothing = gl.zeros(
        [ROWS, BN], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    )
    s = warpgroup_mma(
        q, k_smem.index(k_slot).permute((1, 0)), nothing, use_acc=False, is_async=True
    )
    if E:
        q_last, k_last, v_last = rest
        keys = k_last.index(k_slot).permute((1, 0))
        s = warpgroup_mma(q_last, keys, s, is_async=True)
    await_tile(v_full, before)
    accs = _add(p, v_smem.index(before % STAGES), accs, rest, before % STAGES, EV)
    pass_turn(turn, CID)
    if EV:
        s = warpgroup_mma_wait(2, deps=(s,))
    else:
        s = warpgroup_mma_wait(1, deps=(s,))
    release_tile(k_empty, step)
    return s, accs


@gluon.jit
def _fresh(x):
    """Return x, of which the compiler does not know that it is the same as in the last block."""
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def _divisible(number, STEP: gl.constexpr):
    """Return the number, of which the compiler then knows that STEP divides it."""
    return number // STEP * STEP


@gluon.jit
def _biases_of(added, sequence, head, row, seq_q, S_LAYOUT: gl.constexpr, STEP: gl.constexpr):
    """Return the addresses of the first keys' biases, of 64 rows or, for a stride of None, of all.

    Rows past the last have its bias: they are not stored.
    """
    bias, batch_stride, head_stride, row_stride = added
    first = sequence.to(gl.int64) * batch_stride + head.to(gl.int64) * head_stride
    at = bias + _divisible(first, STEP)
    cols = gl.expand_dims(gl.arange(0, 1, gl.SliceLayout(0, S_LAYOUT)), 0)
    if row_stride is None:
        return at + cols
    else:
        rows = gl.minimum(row + gl.arange(0, ROWS, gl.SliceLayout(1, S_LAYOUT)), seq_q - 1)
        return at + gl.expand_dims(rows.to(gl.int64) * _divisible(row_stride, STEP), 1)


@gluon.jit
def _load_biases(
    at, block, seq_k, BN: gl.constexpr, S_LAYOUT: gl.constexpr, MASKED: gl.constexpr,
    BIAS: gl.constexpr, STEP: gl.constexpr
):  # fmt: skip
    """Load the biases of a block of keys, into the registers where the scores will be.

    They are issued before the block's products, during which they arrive.
    """
    if BIAS == "none":
        return 0
    else:
        cols = gl.arange(0, BN, gl.SliceLayout(0, S_LAYOUT))
        first = gl.minimum(block * BN, (seq_k - 1) // BN * BN)  # a tile may see no key at all
        if MASKED:  # keys past the last have another one's bias: they are hidden
            there = gl.minimum((seq_k + STEP - 1) // STEP * STEP - first, BN)
            cols = gl.where(cols < there, cols, cols % STEP)
            cols = gl.max_contiguous(gl.multiple_of(cols, [STEP]), [STEP])
        return gl.load(at + first + gl.expand_dims(cols, 0))


@gluon.jit
def _tilted(s, block, first, scale, slope):
    """Return the scores in base 2 plus slope x (key - the tile's first row), and what is to be
    taken off again: slope x (row within the tile).

    Eight keys side by side have a term of their own, which changes from block to block, and each
    group of eight adds a constant: a term for every key would stay in registers that are missing.
    """
    BN: gl.constexpr = s.shape[1]
    LAYOUT: gl.constexpr = s.type.layout
    s = (s * scale).reshape([ROWS, BN // 8, 8])
    EIGHTS: gl.constexpr = s.type.layout
    group = gl.arange(0, BN // 8, gl.SliceLayout(0, gl.SliceLayout(2, EIGHTS)))
    place = gl.arange(0, 8, gl.SliceLayout(0, gl.SliceLayout(1, EIGHTS)))
    near = (place + (block * BN - first)).to(gl.float32) * slope
    near = gl.expand_dims(gl.expand_dims(near, 0), 1)
    far = gl.expand_dims(gl.expand_dims(group.to(gl.float32), 0), 2)
    s = s + (far * _fresh(near * 0.0 + 8.0 * slope) + near)
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    return gl.convert_layout(s.reshape([ROWS, BN]), LAYOUT), rows.to(gl.float32) * slope


@gluon.jit
def _softmax(
    s,
    m,
    l,
    block,
    place,
    factors,
    MASKED: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SOFTCAP: gl.constexpr,
    ALIBI: gl.constexpr,
    biases,
    BIAS: gl.constexpr,
):
    """Run a step of online softmax in base 2: return the weights, the new maxima and sums, and
    the factor of the old output.
    """
    scale, cap, scale_in, slope = factors
    if SOFTCAP:
        s = limit(s * scale_in, cap)
    if BIAS == "bool":
        s = gl.where(biases != 0, s, -float("inf"))
    elif BIAS == "float":
        s = s * scale + widen(biases) * BASE_2
        scale = 1.0
    if MASKED:
        s = _mask(s, block, place, RIGHT, LEFT)
    if ALIBI:
        # slope x (key - row): the keys' part of each score, the rows' part of their maximum.
        s, tilt = _tilted(s, block, place[0], scale, slope)
        weights, m, l, alpha = softmax_step(s, m + tilt, l, 1.0, MASKED or BIAS != "none")
        return weights, m - tilt, l, alpha
    else:
        return softmax_step(s, m, l, scale, MASKED or BIAS != "none")


@gluon.jit
def _sweep(
    state,
    q,
    smem,
    bars,
    step,
    block,
    count,
    place,
    factors,
    CID: gl.constexpr,
    MASKED: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SOFTCAP: gl.constexpr,
    ALIBI: gl.constexpr,
    biases_at,
    BIAS: gl.constexpr,
    STEP: gl.constexpr,
    rest,
    E: gl.constexpr,
    EV: gl.constexpr,
):
    """Process `count` blocks downwards from `block`."""
    accs, m, l, pairs = state
    v_empty = bars[5]
    O_LAYOUT: gl.constexpr = accs[0].type.layout
    BN: gl.constexpr = smem[1].shape[1]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    for i in range(count):
        biases = _load_biases(biases_at, block - i, place[1], BN, S_LAYOUT, MASKED, BIAS, STEP)
        p = unpack(pairs, q.dtype, gl.DotOperandLayout(0, O_LAYOUT, 2))
        s, accs = _issue(q, smem, bars, p, accs, step + i, CID, rest, E, EV)
        weights, m, l, alpha = _softmax(
            s, m, l, block - i, place, factors, MASKED, RIGHT, LEFT, SOFTCAP, ALIBI, biases, BIAS
        )
        accs = _added(accs, EV)
        release_tile(v_empty, step + i - 1)
        accs = _shrunk(accs, alpha, EV)
        pairs = pack(weights, q.dtype)
    return accs, m, l, pairs


@gluon.jit
def _consumer(
    args,
    CID: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    RAGGED: gl.constexpr,
    SOFTCAP: gl.constexpr,
    CUT: gl.constexpr,
    ALIBI: gl.constexpr,
    SINK: gl.constexpr,
    BIAS: gl.constexpr,
    STEP: gl.constexpr,
    E: gl.constexpr,
    EV: gl.constexpr,
):
    """Compute queries 64 CID to 64 CID + 63 of each tile, from the last block of keys to the
    first.

    The output of a tile's last block is issued with the scores of the next tile's first, so the
    tensor cores work while the tile is written.
    """
    descs, smem, bars, bounds, lse, units, heads, rows_in_all, slopes, rest = args
    scale, cap, scale_in = units
    slopes_ptr, slopes_batch, sinks, added = slopes
    q_smem, k_smem, v_smem, o_smem, claimed = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turn, o_turn, claim_full, claim_empty = bars
    seq_q, seq_k, left, right = bounds
    C: gl.constexpr = turn.shape[0]
    STAGES: gl.constexpr = k_smem.shape[0]
    BM: gl.constexpr = C * ROWS
    BN: gl.constexpr = k_smem.shape[1]
    D: gl.constexpr = q_smem.shape[2]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    o_rest = (rest[0][3], rest[1][3])

    m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
    l = gl.full([ROWS], 0.0, gl.float32, ROW)
    accs = _empty(D, EV)
    pairs = pack(gl.zeros([ROWS, BN], gl.float32, S_LAYOUT), q_smem.dtype)
    step = 0
    served = 0
    row_before = 0
    sequence_before = 0
    head_before = 0
    start_q = 0
    start_before = 0
    seq_before = seq_q
    if RAGGED:
        seq_before = 0
    row, sequence, head, start_q, seq_q, seq_k = _take(
        claimed, claim_full, claim_empty, served, seq_q, seq_k, RAGGED
    )
    while row >= 0:
        last, blocks = _reach(row, seq_q, seq_k, left, right, BM, BN, RIGHT, LEFT)
        row += CID * ROWS
        shift = seq_k - seq_q
        place = (row + shift, seq_k, left, right)
        slope = 0.0
        if ALIBI:
            slope = gl.load(slopes_ptr + sequence * slopes_batch + head) * BASE_2
        factors = (scale, cap, scale_in, slope)
        biases_at = 0
        if BIAS != "none":
            biases_at = _biases_of(added, sequence, head, row, seq_q, S_LAYOUT, STEP)
        # Blocks that some row sees only in part come first and, at the window's left edge, last:
        # `part` and from `whole` on.
        part = 1
        whole = blocks
        if RIGHT:
            part = last + 1 - gl.maximum(gl.minimum(seq_k, row + shift + right + 1), 0) // BN
            part = gl.minimum(gl.maximum(part, 1), blocks)
        if LEFT:
            whole = last + 1 - (gl.maximum(row + ROWS - 1 + shift - left, 0) + BN - 1) // BN
            whole = gl.minimum(gl.maximum(whole, part), blocks)

        q_part = served * C + CID
        q_slot = q_part % q_smem.shape[0]
        q = q_smem.index(q_slot)
        await_tile(q_full, q_part)
        biases = _load_biases(biases_at, last, seq_k, BN, S_LAYOUT, CUT, BIAS, STEP)
        sides = (rest[1][0].index(q_slot), rest[1][1], rest[1][2])
        p = unpack(pairs, q.dtype, P_LAYOUT)
        s, accs = _issue(q, smem, bars, p, accs, step, CID, sides, E, EV)
        m_before = m
        l_before = l
        m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
        l = gl.full([ROWS], 0.0, gl.float32, ROW)
        weights, m, l, alpha = _softmax(
            s, m, l, last, place, factors, CUT, RIGHT, LEFT, SOFTCAP, ALIBI, biases, BIAS
        )
        accs = _added(accs, EV)
        release_tile(v_empty, gl.maximum(step - 1, 0), step > 0)
        if step > 0:
            tile = (
                row_before,
                sequence_before,
                head_before,
                start_before,
                seq_before,
                heads,
                rows_in_all,
            )
            _store(
                accs[0], m_before, l_before, lse, descs[3], o_smem, o_turn, tile, served, CID,
                RAGGED, sinks, SINK, accs[-1], o_rest, EV,
            )  # fmt: skip

        state = (_empty(D, EV), m, l, pack(weights, q.dtype))
        if RIGHT:
            state = _sweep(
                state,
                q,
                smem,
                bars,
                step + 1,
                last - 1,
                part - 1,
                place,
                factors,
                CID,
                True,
                RIGHT,
                LEFT,
                SOFTCAP,
                ALIBI,
                biases_at,
                BIAS,
                STEP,
                sides,
                E,
                EV,
            )
        state = _sweep(
            state,
            q,
            smem,
            bars,
            step + part,
            last - part,
            whole - part,
            place,
            factors,
            CID,
            False,
            RIGHT,
            LEFT,
            SOFTCAP,
            ALIBI,
            biases_at,
            BIAS,
            STEP,
            sides,
            E,
            EV,
        )
        if LEFT:
            state = _sweep(
                state,
                q,
                smem,
                bars,
                step + whole,
                last - whole,
                blocks - whole,
                place,
                factors,
                CID,
                True,
                RIGHT,
                LEFT,
                SOFTCAP,
                ALIBI,
                biases_at,
                BIAS,
                STEP,
                sides,
                E,
                EV,
            )
        accs, m, l, pairs = state
        release_tile(q_empty, q_part)
        step += blocks
        served += 1
        row_before = row
        sequence_before = sequence
        head_before = head
        if RAGGED:
            start_before = start_q
            seq_before = seq_q
        row, sequence, head, start_q, seq_q, seq_k = _take(
            claimed, claim_full, claim_empty, served, seq_q, seq_k, RAGGED
        )
    if step > 0:
        await_tile(v_full, step - 1)
        p = unpack(pairs, q_smem.dtype, P_LAYOUT)
        slot = (step - 1) % STAGES
        ends = (rest[1][0], rest[1][1], rest[1][2])
        accs = _added(_add(p, v_smem.index(slot), accs, ends, slot, EV), EV)
        tile = (
            row_before,
            sequence_before,
            head_before,
            start_before,
            seq_before,
            heads,
            rows_in_all,
        )
        _store(
            accs[0], m, l, lse, descs[3], o_smem, o_turn, tile, served, CID, RAGGED, sinks, SINK,
            accs[-1], o_rest, EV,
        )  # fmt: skip
        tma.store_wait(0)


_NUMBERS = (
    "seq_q",
    "seq_k",
    "left",
    "right",
    "tiles",
    "row_tiles",
    "heads",
    "kv_group",
    "all_heads",
    "group",
    "rows_in_all",
    "slopes_batch",
    "bias_batch",
    "bias_head",
    "bias_row",
)


@gluon.jit(do_not_specialize=["starts_q", "starts_k", "slopes", "sinks", *_NUMBERS])
def hopper_forward(
    q_desc, k_desc, v_desc, o_desc, q_last, k_last, v_last, o_last, lse, claims, starts_q, starts_k,
    slopes, sinks, bias,
    seq_q, seq_k, left, right, tiles, row_tiles, heads, kv_group,
    all_heads, group, rows_in_all, slopes_batch, bias_batch, bias_head, bias_row,
    scale, cap, scale_in,
    C: gl.constexpr, BN: gl.constexpr,
    D: gl.constexpr, E: gl.constexpr, EV: gl.constexpr, STAGES: gl.constexpr,
    Q_STAGES: gl.constexpr, O_SLOTS: gl.constexpr, REGISTERS: gl.constexpr, SPARE: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr, RAGGED: gl.constexpr, SOFTCAP: gl.constexpr, CUT: gl.constexpr,
    COUNT: gl.constexpr, ALIBI: gl.constexpr, SINK: gl.constexpr, BIAS: gl.constexpr,
    STEP: gl.constexpr
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    FIELDS: gl.constexpr = 6 if RAGGED else 3
    ROW_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, D], dtype)
    KEY_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, D], dtype)
    q_smem = gl.allocate_shared_memory(dtype, [Q_STAGES * C, ROWS, D], ROW_BOX)
    k_smem = gl.allocate_shared_memory(dtype, [STAGES, BN, D], KEY_BOX)
    v_smem = gl.allocate_shared_memory(dtype, [STAGES, BN, D], KEY_BOX)
    o_smem = gl.allocate_shared_memory(dtype, [O_SLOTS, ROWS, D], ROW_BOX)
    claimed = gl.allocate_shared_memory(
        gl.int32, [2 * FIELDS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    bars = _barriers(C, STAGES, Q_STAGES, O_SLOTS)
    descs = (q_desc, k_desc, v_desc, o_desc)
    smem = (q_smem, k_smem, v_smem, o_smem, claimed)
    rest = (descs, (q_smem, k_smem, v_smem, o_smem))
    if E:
        LAST_ROWS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, E], dtype)
        LAST_KEYS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, E], dtype)
        q_end = gl.allocate_shared_memory(dtype, [Q_STAGES * C, ROWS, E], LAST_ROWS)
        k_end = gl.allocate_shared_memory(dtype, [STAGES, BN, E], LAST_KEYS)
        rest = ((q_last, k_last, v_desc, o_desc), (q_end, k_end, v_smem, o_smem))
        if EV:
            v_end = gl.allocate_shared_memory(dtype, [STAGES, BN, EV], LAST_KEYS)
            o_end = gl.allocate_shared_memory(dtype, [O_SLOTS, ROWS, EV], LAST_ROWS)
            rest = ((q_last, k_last, v_last, o_last), (q_end, k_end, v_end, o_end))
    bounds = (seq_q, seq_k, left, right)
    order = (tiles, row_tiles, heads, kv_group, all_heads, group)
    factors = (scale, cap, scale_in)
    # The compile-time values must stand in the calls themselves: in an assigned tuple they would
    # become run-time values.
    tilts = (slopes, slopes_batch, sinks, (bias, bias_batch, bias_head, bias_row))
    args = (descs, smem, bars, bounds, lse, factors, heads, rows_in_all, tilts, rest)
    loads = (descs, smem, bars, bounds, order, (starts_q, starts_k), claims)
    # What is above ran while the kernel before this one on the stream came to its end; what is
    # below may need what that one wrote.
    gdc_launch_dependents()
    gdc_wait()
    if C == 2:
        gl.warp_specialize(
            [
                (
                    _consumer,
                    (args, 0, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, ALIBI, SINK, BIAS, STEP, E, EV),
                ),
                (
                    _consumer,
                    (args, 1, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, ALIBI, SINK, BIAS, STEP, E, EV),
                ),
                (_producer, (loads, BN, RIGHT, LEFT, RAGGED, COUNT, 0, rest, E, EV)),
            ],
            [4, 1],
            [REGISTERS, SPARE],
        )
    else:
        gl.warp_specialize(
            [
                (
                    _consumer,
                    (args, 0, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, ALIBI, SINK, BIAS, STEP, E, EV),
                ),
                (
                    _consumer,
                    (args, 1, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, ALIBI, SINK, BIAS, STEP, E, EV),
                ),
                (
                    _consumer,
                    (args, 2, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, ALIBI, SINK, BIAS, STEP, E, EV),
                ),
                (_producer, (loads, BN, RIGHT, LEFT, RAGGED, COUNT, 0, rest, E, EV)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, SPARE],
        )


@dataclass(frozen=True)
class _Shape:
    """Hold the tile sizes of the kernel for heads of up to `dim` elements."""

    dim: int
    consumers: int
    """Warpgroups of 64 queries."""
    keys: int
    """Keys of a block."""
    stages: int
    """Blocks of keys and of values in flight."""
    query_stages: int
    """Tiles of queries in flight."""
    output_slots: int
    """Room for the output of so many consumers: of all, or of one, which they then use in turn."""
    registers: int
    """Of each thread of a consumer."""
    spare: int
    """Registers of the producer's threads."""
    registers_at_launch: int
    """65536 over the threads launched: of these the producer gives up most."""
    more: int = 0
    """Elements of a head beyond `dim`, in boxes and accumulators of their own, because all widths
    are powers of two."""
    more_values: int = 0
    """The same of values."""


SHAPES = {
    64: _Shape(64, 3, 128, 2, 2, 3, 160, 32, 128),
    80: _Shape(64, 2, 128, 3, 2, 2, 240, 24, 168, 16, 16),
    96: _Shape(64, 2, 128, 2, 2, 2, 240, 24, 168, 32, 32),
    128: _Shape(128, 2, 128, 2, 2, 2, 240, 24, 168),
    160: _Shape(128, 2, 128, 2, 1, 1, 240, 24, 168, 32, 32),
    192: _Shape(128, 2, 64, 2, 2, 1, 240, 24, 168, 64, 64),
    256: _Shape(256, 2, 64, 2, 1, 1, 240, 24, 168),
}
"""By the largest head size."""
NARROW = _Shape(128, 2, 128, 2, 1, 1, 240, 24, 168, 64)
"""The tile sizes for keys of up to 192 elements with values of up to 128 (MLA)."""
SHORT = _Shape(64, 2, 128, 3, 2, 2, 240, 24, 168)
"""The tile sizes for heads of up to 64 elements where 192 queries at once leave too much of the
last tile, or of the diagonal's blocks, unused."""
SHORT_KEYS = 1024
"""Up to here a tile takes so little time that a counter costs more than claiming gains, where all
tiles are alike."""
ROUND = 8
"""The key heads whose tiles are claimed together, if they are enough tiles: the keys and values of
many more do not stay in the L2 cache."""


def _shape(
    dim: int,
    longest_q: int,
    *,
    masked: bool,
    window: bool = False,
    added: bool = False,
    values: int = 0,
) -> _Shape:
    """Return the faster tile sizes as measured at 512, 2048, and from 8192 queries on.

    What is added to scores, a bias or ALiBi, and the second side of a window take registers, of
    which only two consumers leave enough: with three, ALiBi spilled 352 bytes a thread, a window
    472.
    """
    if 128 < dim <= 192 and 0 < values <= 128:
        return NARROW
    if dim <= 64 and (added or window):
        return SHORT
    if dim <= 64 and longest_q <= (4096 if masked else 512):
        return SHORT
    return next(shape for most, shape in SHAPES.items() if dim <= most)


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    *,
    ragged: Ragged | None = None,
    slopes: Tensor | None = None,
    sink: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute attention; return out like q, and lse [B,H,Sq].

    Shapes: q is [B,H,Sq,D], k and v are [B,Hkv,Sk,D], float16 or bfloat16, with any strides that
    boxes take (`fits`); the heads of v, which are those of out, may be smaller. lse is float32, the
    natural logarithm of the sum of exponentials; a row that sees no key gives 0 and lse -inf.
    With `ragged`, B is 1 and the sequences lie end to end. `slopes` are ALiBi's, float32 [H] or
    [B,H]: slope x (key - position of the query) is added to the scores. `sink` float32 [H] is one
    more score of each row. `bias` [B,H,Sq,Sk], expanded where broadcast, but with its keys side by
    side, is added to the scores, or bool, True where a query sees a key; not with `ragged`.
    """
    plan = _plan(geometry_key(q, k, v, rules, ragged, bias, slopes, sink=sink))
    starts = () if ragged is None else (ragged.starts_q, ragged.starts_k)
    if bias is not None and bias.dtype == torch.bool:
        bias = bias.view(torch.uint8)
    return plan.run(q, k, v, *starts, *(x for x in (slopes, sink, bias) if x is not None))


def plan_run(q: Tensor, k: Tensor, v: Tensor, rules: Rules) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return `forward` for tensors of one kind, which it does not check.

    They have the sizes, strides, dtype, device and alignment of these.
    """
    return _plan(geometry_key(q, k, v, rules)).run


class _Plan(NamedTuple):
    lse: Tensor
    """One element, expanded: torch.empty_like of it takes half the time of torch.empty with a
    shape, a dtype and a device."""
    attend: Callable[..., None] | None
    counts: bool
    """True if claimed tiles are counted."""
    value_dim: int
    """The head size of values and of the output."""
    again: int = 0
    """How many of q, k, v and the output have a second box for the last elements of each head."""

    def run(self, q: Tensor, k: Tensor, v: Tensor, *more: Tensor) -> tuple[Tensor, Tensor]:
        """Allocate the results and launch the kernel; `more` are starts and slopes."""
        narrow = q if self.value_dim == q.shape[3] else q[..., : self.value_dim]
        out, lse = torch.empty_like(narrow), torch.empty_like(self.lse)
        if self.attend is None:
            return out.zero_(), lse.fill_(-math.inf)
        # Where nothing is counted nobody reads it: any address will do.
        claims = torch.zeros(1, dtype=torch.int32, device=q.device) if self.counts else lse
        boxed = (q, k, v, out)
        self.attend(*boxed, *boxed[: self.again], lse, claims, *more)
        return out, lse


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...]) -> _Plan:
    g = geometry_of(key)
    lse = torch.empty(1, dtype=torch.float32, device=g.device).expand(g.q.shape[:3])
    if 0 in (*g.q.shape, g.k.shape[2], g.sequences, g.longest[0]):
        return _Plan(lse, None, False, g.v.shape[3])
    call = forward_call(g, _multiprocessors(g.device))
    again = sum(call.arguments[f"{name}_last"] is not None for name in "qkvo")
    return _Plan(lse, prepare(call, g.device), bool(call.constants["COUNT"]), g.v.shape[3], again)


def forward_call(g: Geometry, processors: int) -> KernelCall:
    """Return the launch for a problem."""
    longest_q, longest_k = g.longest
    left, right = g.limits
    cut = left is not None or right is not None
    shape = _shape(
        g.head_dim,
        longest_q,
        masked=cut,
        window=left is not None,
        added=g.bias is not None or g.slopes is not None,
        values=g.v.shape[3],
    )
    row_tiles = -(-longest_q // (shape.consumers * 64))
    all_heads = g.sequences * g.heads
    tiles = row_tiles * all_heads
    ragged = g.ragged is not None
    sides = (
        ("q", g.q, 64, shape.more),
        ("k", g.k, shape.keys, shape.more),
        ("v", g.v, shape.keys, shape.more_values),
        ("o", g.out, 64, shape.more_values),
    )
    boxes: dict[str, TensorBox | None] = {
        f"{name}_desc": describe(x, g.dtype, rows, shape.dim, ragged=ragged)
        for name, x, rows, _ in sides
    }
    boxes |= {
        f"{name}_last": describe(x, g.dtype, rows, more, ragged=ragged) if more else None
        for name, x, rows, more in sides
    }
    starts = Pointer(torch.int32, False) if ragged else None
    numbers = {
        "seq_q": g.q.shape[2],
        "seq_k": g.k.shape[2],
        "left": left or 0,
        "right": right or 0,
        "tiles": tiles,
        "row_tiles": row_tiles,
        "heads": g.heads,
        "kv_group": g.group,
        "all_heads": all_heads,
        "group": heads_at_once(g, row_tiles, processors),
        "rows_in_all": g.q.shape[2],
        "slopes_batch": g.slopes or 0,
        "bias_batch": g.bias.strides[0] if g.bias else 0,
        "bias_head": g.bias.strides[1] if g.bias else 0,
        "bias_row": (g.bias.strides[2] or None) if g.bias else 0,
        "scale": 1.0 if g.rules.softcap else g.rules.scale * LOG2E,
        "cap": g.rules.softcap * LOG2E,
        "scale_in": 2 * g.rules.scale * LOG2E / g.rules.softcap if g.rules.softcap else 0.0,
    }
    constants = {
        "C": shape.consumers,
        "BN": shape.keys,
        "D": shape.dim,
        "E": shape.more,
        "EV": shape.more_values,
        "STAGES": shape.stages,
        "Q_STAGES": shape.query_stages,
        "O_SLOTS": shape.output_slots,
        "REGISTERS": shape.registers,
        "SPARE": shape.spare,
        "RIGHT": right is not None,
        "LEFT": left is not None,
        "RAGGED": ragged,
        "SOFTCAP": g.rules.softcap != 0.0,
        "ALIBI": g.slopes is not None,
        "SINK": g.sink,
        "BIAS": "none" if g.bias is None else "bool" if g.bias.dtype == torch.bool else "float",
        "STEP": g.bias.step if g.bias else 1,
        # Whether some block has keys that a row does not see.
        "CUT": cut or ragged or g.k.shape[2] % shape.keys != 0,
        # Another kernel must set the counter to 0 first. Ragged batches need one: `_locate` claims,
        # too.
        "COUNT": tiles > processors and (cut or ragged or longest_k > SHORT_KEYS),
    }
    pointers = {
        "lse": Pointer(torch.float32),
        "claims": Pointer(torch.int32),
        "starts_q": starts,
        "starts_k": starts,
        "slopes": None if g.slopes is None else Pointer(torch.float32, False),
        "sinks": Pointer(torch.float32, False) if g.sink else None,
        "bias": bias_pointer(g.bias) if g.bias else None,
    }
    options = {"num_warps": 4, "maxnreg": shape.registers_at_launch, "launch_pdl": 1}
    return KernelCall(
        hopper_forward, min(tiles, processors), {**boxes, **pointers, **numbers}, constants, options
    )


def heads_at_once(g: Geometry, row_tiles: int, processors: int) -> int:
    """Return the query heads of a round, whose tiles are claimed together, longest first.

    A round has two tiles or more for each multiprocessor. All rounds have about one size: a small
    last one, whose few tiles begin with the longest, would leave multiprocessors without work.
    """
    kv_heads = g.sequences * g.k.shape[1]
    least = max(ROUND, 2 * processors // (row_tiles * g.group))
    return -(-kv_heads // max(1, kv_heads // least)) * g.group


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
