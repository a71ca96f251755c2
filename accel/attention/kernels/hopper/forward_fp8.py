# mypy: disable-error-code="no-untyped-def"
"""Compute attention forward in FP8 (E4M3) on NVIDIA Hopper (sm_90).

The producer and the claims are those of `forward`; `kernels.portable.quantise` has quantised q and
k by blocks of rows, and laid the values with their keys side by side, permuted as `_weights` leaves
them in registers, so that no weight moves between threads (FlashAttention-3, arXiv 2407.08608,
section 3.3).

The scales of q and k enter the softmax, those of v the factor by which the output is rescaled
anyway. Weights are stored 2**8 times as large, which keeps those of rows with one large score above
E4M3's least number (arXiv 2606.06521). The tensor cores add E4M3's products with about 14 bits, so
long rows are added up in two levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.attention.kernels.geometry import Geometry, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper.descriptors import describe
from gpudeck.accel.attention.kernels.hopper.forward import (
    LOG2E,
    ROWS,
    SHORT_KEYS,
    _barriers,
    _mask,
    _multiprocessors,
    _producer,
    _reach,
    _store,
    _take,
    heads_at_once,
)
from gpudeck.accel.attention.kernels.quantised import (
    E4M3,
    KEYS,
    QUERIES,
    Quantised,
    blocks_of,
    layouts,
    pad_head,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.primitives.tiles.ring import (
    await_tile,
    await_turn,
    pass_turn,
    release_tile,
)
from gpudeck.accel.primitives.tiles.warpgroup import advance, anchor, limit
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

SHARED = gl.constexpr(KEYS)
SHIFT = gl.constexpr(8.0)
"""Weights are 2**SHIFT times as large as they are between 0 and 1: at most 256 of 448."""

_EXPONENTIAL = "ex2.approx.ftz.f32 {0}, {1};"
_POLYNOMIAL = (
    "max.f32 {0}, {1}, 0fC2C80000; add.f32 t, {0}, 0f4B400000; add.f32 w, t, 0fCB400000;"
    " sub.f32 {0}, {0}, w; fma.rn.f32 w, {0}, 0f3E741B54, 0f3F340F8A; fma.rn.f32 {0}, w, {0},"
    " 0f3F800E67; mov.b32 n, t; shl.b32 n, n, 23; mov.b32 r, {0}; add.s32 r, r, n;"
    " mov.b32 {0}, r;"
)
"""2**x by its whole part and a parabola, within 0.2 %, which is far below E4M3's rounding: the
units for exponentials are as busy as the tensor cores, those for sums are not."""


def _quad(polynomials: int) -> str:
    """Return the instructions that exponentiate four scores, `polynomials` of them by one, add
    them up and pack them as E4M3."""
    ways = [_POLYNOMIAL if i >= 4 - polynomials else _EXPONENTIAL for i in range(4)]
    powers = " ".join(way.format(f"e{i}", f"${2 + i}") for i, way in enumerate(ways))
    return (
        "{ .reg .f32 e0, e1, e2, e3, t, w; .reg .b32 n, r; .reg .b16 low, high; "
        + powers
        + " add.f32 t, e0, e1; add.f32 w, e2, e3; add.f32 $1, t, w;"
        " cvt.rn.satfinite.e4m3x2.f32 low, e1, e0; cvt.rn.satfinite.e4m3x2.f32 high, e3, e2;"
        " mov.b32 $0, {low, high}; }"
    )


QUADS = gl.constexpr((_quad(0), _quad(1), _quad(2)))


@gluon.jit
def _fours(x):
    """Return the keys 2t, 2t + 8, 2t + 1 and 2t + 9 of each 16, [rows, keys / 16, 4] each."""
    G: gl.constexpr = x.shape[1] // 16
    even, odd = gl.split(x.reshape([x.shape[0], G, 2, 4, 2]).permute([0, 1, 3, 2, 4]))
    a, c = gl.split(even)
    b, d = gl.split(odd)
    return a, c, b, d


@gluon.jit
def _row_max(s):
    """Return each row's maximum, by a shorter chain of dependent instructions than gl.max's."""
    a, c, b, d = _fours(s)
    most = gl.maximum(gl.maximum(a, b), gl.maximum(c, d))
    most = gl.max(most.reshape([s.shape[0], s.shape[1] // 4]), 1)
    return gl.convert_layout(most, gl.SliceLayout(1, s.type.layout))


@gluon.jit
def _weights(x, POLYNOMIALS: gl.constexpr):
    """Return 2**x as fours of E4M3, int32 [rows, keys / 4], and sums of them [rows, keys / 16, 4].

    Of 16 keys a thread has 2t, 2t + 1, 2t + 8 and 2t + 9. They become its keys 4t to 4t + 3 of the
    left factor of a product.
    """
    G: gl.constexpr = x.shape[1] // 16
    a, c, b, d = _fours(x)
    quads, sums = gl.inline_asm_elementwise(
        QUADS[POLYNOMIALS],
        "=r,=f,f,f,f,f",
        [a, b, c, d],
        dtype=(gl.int32, gl.float32),
        is_pure=False,  # or they would sink behind the wait for the product that they overlap
        pack=1,
    )
    return quads.reshape([x.shape[0], G * 4]), gl.sum(sums, 1)


@gluon.jit
def _factor(quads, LAYOUT: gl.constexpr):
    """Unpack the result of `_weights` as the left factor of a product."""
    two = gl.join(quads, quads)
    four = gl.join(two, two).reshape([quads.shape[0], quads.shape[1] * 4])
    bytes_ = gl.inline_asm_elementwise(
        "mov.b32 $0, $1;",
        "=r,r,r,r,r",
        [gl.convert_layout(four, LAYOUT)],
        dtype=gl.int8,
        is_pure=True,
        pack=4,
    )
    return bytes_.to(gl.float8e4nv, bitcast=True)


@gluon.jit
def _moved(quads):
    """Return a copy in registers of its own.

    The last product's factor may not be overwritten before it was waited for.
    """
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [quads], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _block_scale(scales, base, row, rows, ROWS: gl.constexpr):
    """Load the scale of a block of ROWS rows by its first row; 1 for one that does not exist."""
    return gl.load(scales + (base + row // ROWS), mask=(row >= 0) & (row < rows), other=1.0)


@gluon.jit
def _issue(q, smem, bars, quads, acc, step, CID: gl.constexpr, SUMS: gl.constexpr):
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
    p = _factor(quads, gl.DotOperandLayout(0, acc.type.layout, 4))
    await_tile(k_full, step)
    await_turn(turn, step, CID)
    nothing = gl.zeros(
        [ROWS, BN], gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 32])
    )
    s = warpgroup_mma(
        q, k_smem.index(k_slot).permute((1, 0)), nothing, use_acc=False, is_async=True
    )
    await_tile(v_full, before)
    values = v_smem.index(before % STAGES).permute((1, 0))
    acc = warpgroup_mma(p, values, acc, use_acc=SUMS == "inner", is_async=True)
    pass_turn(turn, CID)
    s = warpgroup_mma_wait(1, deps=(s,))
    release_tile(k_empty, step)
    return s, acc


@gluon.jit
def _softmax(
    s,
    m,
    l,
    block,
    factor,
    place,
    softcap,
    MASKED: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SOFTCAP: gl.constexpr,
    POLYNOMIALS: gl.constexpr,
):
    """Run a step of online softmax in base 2: return the packed weights, the new maxima and sums,
    and the factor of the old output.

    `factor` makes scores of products. The sums l [64,4] are those of each thread's own keys.
    """
    if SOFTCAP:
        cap, scale_in = softcap
        s = limit(s * (factor * scale_in), cap)
        factor = 1.0
    if MASKED:
        s = _mask(s, block, place, RIGHT, LEFT)
    m_new, base = advance(m, _row_max(s) * factor, MASKED)
    quads, sums = _weights(s * factor - gl.expand_dims(base - SHIFT, 1), POLYNOMIALS)
    alpha = gl.exp2(m - base)
    sums = gl.convert_layout(sums, l.type.layout)
    shrink = gl.convert_layout(alpha, gl.SliceLayout(1, l.type.layout))
    return quads, m_new, l * gl.expand_dims(shrink, 1) + sums, alpha


@gluon.jit
def _added(total, part, due, alpha, SUMS: gl.constexpr):
    """Return the output with the last block's, and the factor that it is still to be multiplied by.

    A late factor waits for the next sum, where it costs no instruction of its own.
    """
    if SUMS == "late":
        return total * _of_rows(due, part) + part, alpha
    elif SUMS == "outer":
        return (total + part) * _of_rows(alpha, part), due
    else:
        return part * _of_rows(alpha, part), due


@gluon.jit
def _whole(total, part, due, SUMS: gl.constexpr):
    """Return the output with the last block's."""
    if SUMS == "late":
        return part + total * _of_rows(due, part)
    elif SUMS == "outer":
        return part + total
    else:
        return part


@gluon.jit
def _of_rows(x, like):
    """Return a number for each row as a column beside `like`."""
    return gl.expand_dims(gl.convert_layout(x, gl.SliceLayout(1, like.type.layout)), 1)


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
    scales,
    softcap,
    CID: gl.constexpr,
    MASKED: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    SOFTCAP: gl.constexpr,
    POLYNOMIALS: gl.constexpr,
    SUMS: gl.constexpr,
    PINNED: gl.constexpr,
):
    """Process `count` blocks downwards from `block`.

    The output, times the factor that is due, counts in units of the scale of the values added last.
    """
    acc, due, m, l, quads, k_next, v_now, v_next = state
    k_scales, v_scales, key_base, keys, q_factor = scales
    v_full, v_empty = bars[4], bars[5]
    BN: gl.constexpr = smem[1].shape[1]
    for i in range(count):
        factor = q_factor * k_next
        unit = v_now / v_next
        v_now = v_next
        # Loaded a step ahead of their use.
        k_next = _block_scale(k_scales, key_base, (block - i - 1) * BN, keys, SHARED)
        v_next = _block_scale(v_scales, key_base, (block - i - 1) * BN, keys, SHARED)
        s, part = _issue(q, smem, bars, quads, acc, step + i, CID, SUMS)
        fresh, m, l, alpha = _softmax(
            s, m, l, block - i, factor, place, softcap, MASKED, RIGHT, LEFT, SOFTCAP, POLYNOMIALS
        )
        if PINNED:
            # This wait is over already. It keeps ptxas from moving the next one, which is for the
            # product, in front of the exponentials that are to overlap it.
            await_tile(v_full, step + i - 1)
        part = warpgroup_mma_wait(0, deps=(part,))
        release_tile(v_empty, step + i - 1)
        quads = _moved(fresh)
        acc, due = _added(acc, part, due, alpha * unit, SUMS)
    return acc, due, m, l, quads, k_next, v_now, v_next


@gluon.jit
def _centre(v_centre, sequence, head, numbers, sums, like):
    """Return what the weights' `sums` add to an output for the values' centre."""
    D: gl.constexpr = like.shape[1]
    LAYOUT: gl.constexpr = like.type.layout
    heads, kv_group, rows_in_all = numbers
    row = sequence * (heads // kv_group) + head // kv_group
    centre = gl.load(v_centre + (row * D + gl.arange(0, D, gl.SliceLayout(0, LAYOUT))))
    sums = gl.convert_layout(sums, gl.SliceLayout(1, LAYOUT))
    return gl.expand_dims(sums, 1) * gl.expand_dims(centre, 0)


@gluon.jit
def _kept(workspace, acc, CID: gl.constexpr, C: gl.constexpr):
    """Return where this warpgroup keeps the output of finished segments, like acc."""
    D: gl.constexpr = acc.shape[1]
    LAYOUT: gl.constexpr = acc.type.layout
    rows = (gl.program_id(0) * C + CID) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    cols = gl.arange(0, D, gl.SliceLayout(0, LAYOUT))
    return workspace + (gl.expand_dims(rows, 1) * D + gl.expand_dims(cols, 0))


@gluon.jit
def _fetch(kept, m_kept, m, LAYOUT: gl.constexpr):
    """Return the kept output, for maxima that have become m."""
    base = anchor(m, True)
    alpha = gl.convert_layout(gl.exp2(m_kept - base), gl.SliceLayout(1, LAYOUT))
    return gl.load(kept) * gl.expand_dims(alpha, 1)


@gluon.jit
def _consumer(
    args,
    CID: gl.constexpr,
    RIGHT: gl.constexpr,
    LEFT: gl.constexpr,
    RAGGED: gl.constexpr,
    SOFTCAP: gl.constexpr,
    CUT: gl.constexpr,
    POLYNOMIALS: gl.constexpr,
    SUMS: gl.constexpr,
    SEGMENT: gl.constexpr,
    PINNED: gl.constexpr,
):
    """Compute queries 64 CID to 64 CID + 63 of each tile, from the last block of keys to the
    first.

    The output of a tile's last block is issued with the scores of the next tile's first, so the
    tensor cores work while the tile is written.

    With a SEGMENT above 0, what so many blocks added to the output is put aside in memory, to be
    added up in float32.
    """
    descs, smem, bars, bounds, lse, factors, scales, starts, numbers, workspace = args
    heads, kv_group, rows_in_all = numbers
    q_smem, k_smem, v_smem, o_smem, claimed = smem
    q_full, q_empty, k_full, k_empty, v_full, v_empty, turn, o_turn, claim_full, claim_empty = bars
    seq_q, seq_k, left, right = bounds
    scale, cap, scale_in = factors
    softcap = (cap, scale_in)
    q_scales, k_scales, v_scales, v_centre, q_blocks, k_blocks = scales
    C: gl.constexpr = turn.shape[0]
    STAGES: gl.constexpr = k_smem.shape[0]
    BM: gl.constexpr = C * ROWS
    BN: gl.constexpr = k_smem.shape[1]
    D: gl.constexpr = q_smem.shape[2]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 32])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 32])
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)

    m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
    acc = gl.zeros([ROWS, D], gl.float32, O_LAYOUT)
    quads, l = _weights(gl.full([ROWS, BN], -1000.0, gl.float32, S_LAYOUT), 0)
    none = l * 0.0
    one = gl.full([ROWS], 1.0, gl.float32, ROW)
    due = one
    v_now = 1.0
    kept = 0
    m_kept = m
    if SEGMENT:
        kept = _kept(workspace, acc, CID, C)
    segments = 0
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
        kv_heads = heads // kv_group
        q_base = (sequence * heads + head) * q_blocks
        key_base = (sequence * kv_heads + head // kv_group) * k_blocks
        if RAGGED:
            q_base = head * q_blocks + start_q // ROWS + sequence
            key_base = head // kv_group * k_blocks + gl.load(starts + sequence) // SHARED + sequence
        q_factor = scale * _block_scale(q_scales, q_base, row, seq_q, ROWS)
        k_now = _block_scale(k_scales, key_base, last * BN, seq_k, SHARED)
        v_first = _block_scale(v_scales, key_base, last * BN, seq_k, SHARED)
        k_next = _block_scale(k_scales, key_base, (last - 1) * BN, seq_k, SHARED)
        v_next = _block_scale(v_scales, key_base, (last - 1) * BN, seq_k, SHARED)
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
        s, final = _issue(q, smem, bars, quads, acc, step, CID, SUMS)
        m_before = m
        l_before = l
        m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
        fresh, m, l, alpha = _softmax(
            s, m, none, last, q_factor * k_now, place, softcap, CUT, RIGHT, LEFT, SOFTCAP,
            POLYNOMIALS,
        )  # fmt: skip
        final = warpgroup_mma_wait(0, deps=(final,))
        release_tile(v_empty, gl.maximum(step - 1, 0), step > 0)
        quads = _moved(fresh)
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
            final = _whole(acc, final, due, SUMS)
            final = final * v_now
            if SEGMENT:  # noqa: SIM102 - one is known when the kernel is compiled, one is not
                if segments > 0:
                    final += _fetch(kept, m_kept, m_before, O_LAYOUT)
            sums = gl.convert_layout(gl.sum(l_before, 1), ROW)
            final += _centre(v_centre, sequence_before, head_before, numbers, sums, final)
            _store(
                final, m_before - SHIFT, sums, lse, descs[3], o_smem, o_turn, tile,
                served, CID, RAGGED,
            )  # fmt: skip

        scales_here = (k_scales, v_scales, key_base, seq_k, q_factor)
        acc = gl.zeros([ROWS, D], gl.float32, O_LAYOUT)
        state = (acc, one, m, l, quads, k_next, v_first, v_next)
        if RIGHT:
            state = _sweep(
                state, q, smem, bars, step + 1, last - 1, part - 1, place, scales_here, softcap,
                CID, True, RIGHT, LEFT, SOFTCAP, POLYNOMIALS, SUMS, PINNED,
            )  # fmt: skip
        if SEGMENT:
            segments = 0
            while whole - part > SEGMENT:
                acc, due, m, l, quads, k_next, v_now, v_next = _sweep(
                    state, q, smem, bars, step + part, last - part, SEGMENT, place, scales_here,
                    softcap, CID, False, RIGHT, LEFT, SOFTCAP, POLYNOMIALS, SUMS, PINNED,
                )  # fmt: skip
                part += SEGMENT
                acc = acc * v_now
                if segments > 0:
                    acc += _fetch(kept, m_kept, m, O_LAYOUT)
                gl.store(kept, acc)
                m_kept = m
                segments += 1
                acc = gl.zeros([ROWS, D], gl.float32, O_LAYOUT)
                state = (acc, due, m, l, quads, k_next, v_now, v_next)
        state = _sweep(
            state, q, smem, bars, step + part, last - part, whole - part, place, scales_here,
            softcap, CID, False, RIGHT, LEFT, SOFTCAP, POLYNOMIALS, SUMS, PINNED,
        )  # fmt: skip
        if LEFT:
            state = _sweep(
                state, q, smem, bars, step + whole, last - whole, blocks - whole, place,
                scales_here, softcap, CID, True, RIGHT, LEFT, SOFTCAP, POLYNOMIALS, SUMS,
                PINNED,
            )  # fmt: skip
        acc, due, m, l, quads, k_next, v_now, v_next = state
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
        p = _factor(quads, gl.DotOperandLayout(0, O_LAYOUT, 4))
        values = v_smem.index((step - 1) % STAGES).permute((1, 0))
        final = warpgroup_mma(p, values, acc, use_acc=SUMS == "inner", is_async=True)
        final = warpgroup_mma_wait(0, deps=(final,))
        final = _whole(acc, final, due, SUMS)
        final = final * v_now
        if SEGMENT:  # noqa: SIM102
            if segments > 0:
                final += _fetch(kept, m_kept, m, O_LAYOUT)
        tile = (
            row_before,
            sequence_before,
            head_before,
            start_before,
            seq_before,
            heads,
            rows_in_all,
        )
        sums = gl.convert_layout(gl.sum(l, 1), ROW)
        final += _centre(v_centre, sequence_before, head_before, numbers, sums, final)
        _store(final, m - SHIFT, sums, lse, descs[3], o_smem, o_turn, tile, served, CID, RAGGED)
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
    "q_blocks",
    "k_blocks",
)


@gluon.jit(do_not_specialize=["starts_q", "starts_k", *_NUMBERS])
def hopper_forward_fp8(
    q_desc, k_desc, v_desc, o_desc, lse, claims, workspace, q_scales, k_scales, v_scales, v_centre,
    starts_q, starts_k,
    seq_q, seq_k, left, right, tiles, row_tiles, heads, kv_group, all_heads, group, rows_in_all,
    q_blocks, k_blocks, scale, cap, scale_in, C: gl.constexpr, BN: gl.constexpr, D: gl.constexpr,
    STAGES: gl.constexpr, Q_STAGES: gl.constexpr, O_SLOTS: gl.constexpr, REGISTERS: gl.constexpr,
    SPARE: gl.constexpr, RIGHT: gl.constexpr, LEFT: gl.constexpr, RAGGED: gl.constexpr,
    SOFTCAP: gl.constexpr, CUT: gl.constexpr, COUNT: gl.constexpr, POLYNOMIALS: gl.constexpr,
    SUMS: gl.constexpr, SEGMENT: gl.constexpr, PINNED: gl.constexpr
):  # fmt: skip
    FIELDS: gl.constexpr = 6 if RAGGED else 3
    ROW_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, D], gl.float8e4nv)
    KEY_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, D], gl.float8e4nv)
    VALUE_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([D, BN], gl.float8e4nv)
    OUT_BOX: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, D], o_desc.dtype)
    q_smem = gl.allocate_shared_memory(gl.float8e4nv, [Q_STAGES * C, ROWS, D], ROW_BOX)
    k_smem = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, BN, D], KEY_BOX)
    v_smem = gl.allocate_shared_memory(gl.float8e4nv, [STAGES, D, BN], VALUE_BOX)
    o_smem = gl.allocate_shared_memory(o_desc.dtype, [O_SLOTS, ROWS, D], OUT_BOX)
    claimed = gl.allocate_shared_memory(
        gl.int32, [2 * FIELDS, 1], gl.SwizzledSharedLayout(1, 1, 1, [0])
    )
    bars = _barriers(C, STAGES, Q_STAGES, O_SLOTS)
    descs = (q_desc, k_desc, v_desc, o_desc)
    smem = (q_smem, k_smem, v_smem, o_smem, claimed)
    bounds = (seq_q, seq_k, left, right)
    order = (tiles, row_tiles, heads, kv_group, all_heads, group)
    factors = (scale, cap, scale_in)
    scales = (q_scales, k_scales, v_scales, v_centre, q_blocks, k_blocks)
    numbers = (heads, kv_group, rows_in_all)
    args = (descs, smem, bars, bounds, lse, factors, scales, starts_k, numbers, workspace)
    loads = (descs, smem, bars, bounds, order, (starts_q, starts_k), claims)
    gdc_launch_dependents()
    gdc_wait()
    if C == 2:
        gl.warp_specialize(
            [
                (_consumer, (args, 0, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, POLYNOMIALS, SUMS,
                             SEGMENT, PINNED)),
                (_consumer, (args, 1, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, POLYNOMIALS, SUMS,
                             SEGMENT, PINNED)),
                (_producer, (loads, BN, RIGHT, LEFT, RAGGED, COUNT, SHARED)),
            ],
            [4, 1],
            [REGISTERS, SPARE],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consumer, (args, 0, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, POLYNOMIALS, SUMS,
                             SEGMENT, PINNED)),
                (_consumer, (args, 1, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, POLYNOMIALS, SUMS,
                             SEGMENT, PINNED)),
                (_consumer, (args, 2, RIGHT, LEFT, RAGGED, SOFTCAP, CUT, POLYNOMIALS, SUMS,
                             SEGMENT, PINNED)),
                (_producer, (loads, BN, RIGHT, LEFT, RAGGED, COUNT, SHARED)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, SPARE],
        )  # fmt: skip


@dataclass(frozen=True)
class Schedule:
    """Hold the tile sizes and ways of the kernel for one head size."""

    dim: int
    consumers: int
    """Warpgroups of 64 queries."""
    stages: int
    """Blocks of keys and of values in flight."""
    query_stages: int
    """Tiles of queries in flight."""
    output_slots: int
    registers: int
    """Of each thread of a consumer."""
    spare: int
    """Registers of the producer's threads."""
    registers_at_launch: int
    polynomials: int
    """Of four exponentials so many are computed by a polynomial."""
    keys: int
    """Keys of a block."""
    pinned: bool
    """Whether exponentials may not be moved behind the wait for the product beside them."""
    segment: int
    """Keys that the tensor cores may add up alone, if they add outputs; a multiple of
    `keys`."""
    sums: Literal["inner", "outer", "late"]
    """Who adds a block's output to the others': the tensor cores; other instructions; or these, and
    the factor of new maxima waits for the next addition."""


SCHEDULES = {
    64: Schedule(64, 3, 4, 2, 3, 160, 32, 128, 0, KEYS, True, 0, "late"),
    128: Schedule(128, 2, 3, 2, 2, 240, 24, 168, 1, KEYS, False, 0, "outer"),
    256: Schedule(256, 2, 2, 1, 1, 240, 24, 168, 0, KEYS, False, 8192, "inner"),
}


def forward(
    made: Quantised,
    claims: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rules: Rules,
    ragged: Ragged | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute attention; return out like q, and lse [B,H,Sq].

    Args:
        made: q, k and v after the pre-pass.
        claims: int32 [1], 0.
        q: like k and v as they were before, of which only sizes, strides and dtype are used.

    The other arguments and the results are those of `forward.forward`.
    """
    plan = _plan(geometry_key(q, k, v, rules, ragged))
    out = torch.empty_like(q)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    if plan is None:
        return out.zero_(), lse.fill_(-math.inf)
    starts = () if ragged is None else (ragged.starts_q, ragged.starts_k)
    kept = [torch.empty(plan.kept, device=q.device)] if plan.kept else ()
    plan.attend(*made[:3], out, lse, claims, *kept, *made[3:], *starts)
    return out, lse


class _Plan(NamedTuple):
    attend: Callable[..., None]
    kept: int
    """Elements of the workspace."""


@lru_cache(maxsize=4096)
def _plan(key: tuple[object, ...]) -> _Plan | None:
    g = geometry_of(key)
    if 0 in (*g.q.shape, g.k.shape[2], g.sequences, g.longest[0]):
        return None
    call = forward_call(g, _multiprocessors(g.device), SCHEDULES[pad_head(g.head_dim)])
    return _Plan(prepare(call, g.device), workspace_size(call))


def workspace_size(call: KernelCall) -> int:
    """Return the elements of float32 that a launch keeps the output of segments in, or 0."""
    c = call.constants
    return call.programs[0] * int(c["C"]) * 64 * int(c["D"]) if c["SEGMENT"] else 0  # type: ignore[call-overload]


def forward_call(g: Geometry, processors: int, schedule: Schedule) -> KernelCall:
    """Return the launch for a problem; g describes q, k and v before they were quantised."""
    longest_q, longest_k = g.longest
    left, right = g.limits
    cut = left is not None or right is not None
    ragged = g.ragged is not None
    row_tiles = -(-longest_q // (schedule.consumers * 64))
    all_heads = g.sequences * g.heads
    tiles = row_tiles * all_heads
    q8, k8, v8 = layouts(g)
    sequences = g.ragged and g.ragged[0]
    starts = Pointer(torch.int32, False) if ragged else None
    scales = Pointer(torch.float32)
    segment = (
        0
        if schedule.sums != "inner" or longest_k <= schedule.segment
        else schedule.segment // schedule.keys
    )
    return KernelCall(
        hopper_forward_fp8,
        min(tiles, processors),
        {
            "q_desc": describe(q8, E4M3, 64, schedule.dim, ragged=ragged),
            "k_desc": describe(k8, E4M3, schedule.keys, schedule.dim, ragged=ragged),
            "v_desc": describe(v8, E4M3, schedule.dim, schedule.keys, ragged=False),
            "o_desc": describe(g.q.like(), g.dtype, 64, schedule.dim, ragged=ragged),
            "lse": Pointer(torch.float32),
            "claims": Pointer(torch.int32),
            "workspace": scales if segment else None,
            "q_scales": scales,
            "k_scales": scales,
            "v_scales": scales,
            "v_centre": scales,
            "starts_q": starts,
            "starts_k": starts,
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
            "q_blocks": blocks_of(g.q.shape[2], QUERIES, sequences),
            "k_blocks": blocks_of(g.k.shape[2], KEYS, sequences),
            "scale": 1.0 if g.rules.softcap else g.rules.scale * LOG2E,
            "cap": g.rules.softcap * LOG2E,
            "scale_in": 2 * g.rules.scale * LOG2E / g.rules.softcap if g.rules.softcap else 0.0,
        },
        {
            "C": schedule.consumers,
            "BN": schedule.keys,
            "D": schedule.dim,
            "STAGES": schedule.stages,
            "Q_STAGES": schedule.query_stages,
            "O_SLOTS": schedule.output_slots,
            "REGISTERS": schedule.registers,
            "SPARE": schedule.spare,
            "RIGHT": right is not None,
            "LEFT": left is not None,
            "RAGGED": ragged,
            "SOFTCAP": g.rules.softcap != 0.0,
            "CUT": cut or ragged or g.k.shape[2] % schedule.keys != 0,
            "COUNT": tiles > processors and (cut or ragged or longest_k > SHORT_KEYS),
            "POLYNOMIALS": schedule.polynomials,
            "SUMS": schedule.sums,
            "SEGMENT": segment,
            "PINNED": schedule.pinned,
        },
        {"num_warps": 4, "maxnreg": schedule.registers_at_launch, "launch_pdl": 1},
    )
