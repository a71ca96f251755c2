# mypy: disable-error-code="no-untyped-def"
"""Decode MLA on NVIDIA Hopper (sm_90): one query of many heads, which share latent keys.

The values are the first 512 of the 576 elements of a key, so that a tile of keys is loaded once for
both products. With 128 heads these, not memory, take the time (`kernel.decode` has no means against
that). Here a producer warp loads tiles by the copy engine; one warpgroup computes the scores of 64
heads, the weights, and the left half of the outputs; another takes the weights from shared memory
and computes the right half, while the first is at the next scores. Parts of a sequence's keys are
combined by a second kernel.

Source: FlashAttention-3 (arXiv 2407.08608, section 3.1) for the roles of the warps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from gpudeck.accel.attention.kernels.geometry import MLA_KEYS, MLA_VALUES, Layout
from gpudeck.accel.attention.kernels.hopper.descriptors import describe, load_rows
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
from gpudeck.accel.primitives.tiles.warpgroup import pack, softmax_end, softmax_step, unpack
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

HEADS = 64
"""Heads of a program, and keys of a tile, of which two fill shared memory."""
ROWS = gl.constexpr(HEADS)
HALF = gl.constexpr(MLA_VALUES // 2)
REST = gl.constexpr(MLA_KEYS - MLA_VALUES)
STAGES = gl.constexpr(2)
LOG2E = 1.4426950408889634
REGISTERS = gl.constexpr(240)
SPARE = gl.constexpr(24)
REGISTERS_AT_LAUNCH = 168
"""As in `forward`: 65536 over the threads launched; the producer gives most of its own up."""


@gluon.jit
def _part(keys, splits, TILES: gl.constexpr):
    """Return the sequence of this program, the first tile of its part of the keys, and the end.

    Programs of the same keys are neighbours.
    """
    number = gl.program_id(0) // TILES
    part = number % splits
    blocks = (keys + ROWS - 1) // ROWS
    span = (blocks + splits - 1) // splits
    return number // splits, part * span, gl.minimum(blocks, (part + 1) * span)


@gluon.jit
def _producer(descs, smem, bars, keys, splits, TILES: gl.constexpr):
    """Load the heads' queries once, then tile after tile of the part's keys."""
    q_desc, q_last, k_desc, k_last = descs
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    sequence, first, end = _part(keys, splits, TILES)
    expect_bytes(q_full, 0, 2 * q_desc.block_type.nbytes + q_last.block_type.nbytes)
    ready = q_full.index(0)
    row = gl.program_id(0) % TILES * ROWS
    load_rows(q_desc, sequence, 0, row, 0, 0, ready, q_smem.index(0), False)
    load_rows(q_desc, sequence, 0, row, 0, 0, ready, q_smem.index(1), False, HALF)
    load_rows(q_last, sequence, 0, row, 0, 0, ready, q_rest, False, 2 * HALF)
    for block in range(first, end):
        step = block - first
        slot = step % STAGES
        key = block * ROWS
        expect_tile(
            left_full, left_empty, step, k_desc.block_type.nbytes + k_last.block_type.nbytes
        )
        ready = left_full.index(slot)
        load_rows(k_desc, sequence, 0, key, 0, 0, ready, k_left.index(slot), False)
        load_rows(k_last, sequence, 0, key, 0, 0, ready, k_rest.index(slot), False, 2 * HALF)
        expect_tile(right_full, right_empty, step, k_desc.block_type.nbytes)
        ready = right_full.index(slot)
        load_rows(k_desc, sequence, 0, key, 0, 0, ready, k_right.index(slot), False, HALF)


@gluon.jit
def _keep(target, stride, acc, COLUMN: gl.constexpr, LAYOUT: gl.constexpr):
    """Store half of the heads' vectors, of which the first is at `target`."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    columns = COLUMN + gl.arange(0, HALF, gl.SliceLayout(0, LAYOUT))
    at = gl.expand_dims(rows * stride, 1) + gl.expand_dims(columns, 0)
    gl.store(target + at, acc)


@gluon.jit
def _target(out, sequence, TILES: gl.constexpr, JOINED: gl.constexpr):
    """Return where this program's results go, and how far its heads are apart."""
    partial, sums, out_ptr, lse, stride_b, stride_h = out
    number = gl.program_id(0)
    if JOINED:
        return partial + number * (ROWS * 2 * HALF), 2 * HALF
    else:
        first = number % TILES * ROWS
        return out_ptr + sequence * stride_b + first * stride_h, stride_h


@gluon.jit
def _scores(smem, bars, step, LAYOUT: gl.constexpr):
    """Issue the scores of a step's tile once it is there: three products."""
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    slot = step % STAGES
    none = gl.zeros([ROWS, ROWS], gl.float32, LAYOUT)
    await_tile(left_full, step)
    left = k_left.index(slot).permute((1, 0))
    s = warpgroup_mma(q_smem.index(0), left, none, use_acc=False, is_async=True)
    s = warpgroup_mma(q_rest, k_rest.index(slot).permute((1, 0)), s, is_async=True)
    await_tile(right_full, step)
    return warpgroup_mma(q_smem.index(1), k_right.index(slot).permute((1, 0)), s, is_async=True)


@gluon.jit
def _pass_on(s, m, l, smem, bars, step, key, keys, scale):
    """Take a step's scores into the softmax and pass its weights and the factor of earlier sums on.

    Returns:
        The weights in pairs, the new m and l, and the factor.
    """
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    if key + ROWS > keys:
        place = key + gl.arange(0, ROWS, gl.SliceLayout(0, s.type.layout))
        s = gl.where(gl.expand_dims(place < keys, 0), s, -float("inf"))
    weights, m, l, shrink = softmax_step(s, m, l, scale, False)
    await_slot(p_empty, step)
    p_smem.store(weights.to(p_smem.dtype))
    shrinks.store(shrink)
    fence_async_shared()
    publish_tile(p_full, step)
    return pack(weights, p_smem.dtype), m, l, shrink


@gluon.jit
def _values(pairs, shrink, acc, smem, step, LAYOUT: gl.constexpr):
    """Issue the product of a step's weights and the left half of its values."""
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    acc = acc * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, LAYOUT)), 1)
    p = unpack(pairs, p_smem.dtype, gl.DotOperandLayout(0, LAYOUT, 2))
    return warpgroup_mma(p, k_left.index(step % STAGES), acc, is_async=True)


@gluon.jit
def _first(smem, bars, out, keys, splits, scale, TILES: gl.constexpr, JOINED: gl.constexpr):
    """Compute scores, weights, and the left half of the sums of values.

    The scores of a tile are issued behind the sums of the one before.
    """
    q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    partial, sums, out_ptr, lse, stride_b, stride_h = out
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    sequence, first, end = _part(keys, splits, TILES)
    m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
    l = gl.full([ROWS], 0.0, gl.float32, ROW)
    acc = gl.zeros([ROWS, HALF], gl.float32, O_LAYOUT)
    await_tile(q_full, 0)
    s = warpgroup_mma_wait(0, [_scores(smem, bars, 0, S_LAYOUT)])
    release_tile(right_empty, 0)
    pairs, m, l, shrink = _pass_on(s, m, l, smem, bars, 0, first * ROWS, keys, scale)
    for block in range(first + 1, end):
        step = block - first
        acc = _values(pairs, shrink, acc, smem, step - 1, O_LAYOUT)
        s = _scores(smem, bars, step, S_LAYOUT)
        acc = warpgroup_mma_wait(3, [acc])
        release_tile(left_empty, step - 1)
        s = warpgroup_mma_wait(0, [s])
        release_tile(right_empty, step)
        pairs, m, l, shrink = _pass_on(s, m, l, smem, bars, step, block * ROWS, keys, scale)
    acc = warpgroup_mma_wait(0, [_values(pairs, shrink, acc, smem, end - first - 1, O_LAYOUT)])
    target, stride = _target(out, sequence, TILES, JOINED)
    rows = gl.program_id(0) * ROWS + gl.arange(0, ROWS, ROW)
    if JOINED:
        gl.store(sums + 2 * rows, m)
        gl.store(sums + 2 * rows + 1, l)
    else:
        factor, logarithm = softmax_end(m, l)
        await_slot(p_empty, end - first)
        shrinks.store(factor)
        publish_tile(p_full, end - first)
        if lse is not None:
            gl.store(lse + rows, logarithm)
        acc = acc * gl.expand_dims(gl.convert_layout(factor, gl.SliceLayout(1, O_LAYOUT)), 1)
        acc = acc.to(p_smem.dtype)
    _keep(target, stride, acc, 0, O_LAYOUT)


@gluon.jit
def _second(smem, bars, out, keys, splits, TILES: gl.constexpr, JOINED: gl.constexpr):
    """Compute the right half of the sums of values with the weights that `_first` passes on."""
    q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks = smem
    q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    O_ROW: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    sequence, first, end = _part(keys, splits, TILES)
    acc = gl.zeros([ROWS, HALF], gl.float32, O_LAYOUT)
    for block in range(first, end):
        step = block - first
        await_tile(right_full, step)
        await_tile(p_full, step)
        acc = acc * gl.expand_dims(shrinks.load(O_ROW), 1)
        acc = warpgroup_mma(p_smem, k_right.index(step % STAGES), acc, is_async=True)
        acc = warpgroup_mma_wait(0, [acc])
        release_tile(p_empty, step)
        release_tile(right_empty, step)
    if not JOINED:
        await_tile(p_full, end - first)
        acc = (acc * gl.expand_dims(shrinks.load(O_ROW), 1)).to(p_smem.dtype)
    target, stride = _target(out, sequence, TILES, JOINED)
    _keep(target, stride, acc, HALF, O_LAYOUT)


@gluon.jit(do_not_specialize=["keys", "splits"])
def decode_latent(
    q_desc, q_last, k_desc, k_last, partial, sums, out, lse, keys, splits, stride_ob, stride_oh,
    scale, TILES: gl.constexpr, JOINED: gl.constexpr
):  # fmt: skip
    """Attend with 64 heads to one part of a sequence's keys, which is not empty.

    The grid is sequences * splits * TILES, with TILES = heads / 64. JOINED: sums of values go to
    `partial`, float32 [parts, heads, 512], and the largest score, in base 2, and the sum of weights
    to `sums` [parts, heads, 2]. Otherwise the answers go to `out`, and logarithms to `lse`.
    """
    dtype: gl.constexpr = q_desc.dtype
    WIDE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, HALF], dtype)
    NARROW: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, REST], dtype)
    q_smem = gl.allocate_shared_memory(dtype, [2, ROWS, HALF], WIDE)
    q_rest = gl.allocate_shared_memory(dtype, [ROWS, REST], NARROW)
    k_left = gl.allocate_shared_memory(dtype, [STAGES, ROWS, HALF], WIDE)
    k_right = gl.allocate_shared_memory(dtype, [STAGES, ROWS, HALF], WIDE)
    k_rest = gl.allocate_shared_memory(dtype, [STAGES, ROWS, REST], NARROW)
    p_smem = gl.allocate_shared_memory(dtype, [ROWS, ROWS], NARROW)
    shrinks = gl.allocate_shared_memory(gl.float32, [ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    q_full = arrivals(1, 1)
    left_full, left_empty = barriers(STAGES, 1)
    right_full, right_empty = barriers(STAGES, 2)
    p_full, p_empty = barriers(1, 1)
    smem = (q_smem, q_rest, k_left, k_right, k_rest, p_smem, shrinks)
    bars = (q_full, left_full, left_empty, right_full, right_empty, p_full, p_empty)
    descs = (q_desc, q_last, k_desc, k_last)
    out = (partial, sums, out, lse, stride_ob, stride_oh)
    gdc_launch_dependents()
    gdc_wait()
    gl.warp_specialize(
        [
            (_first, (smem, bars, out, keys, splits, scale, TILES, JOINED)),
            (_second, (smem, bars, out, keys, splits, TILES, JOINED)),
            (_producer, (descs, smem, bars, keys, splits, TILES)),
        ],
        [4, 1],
        [REGISTERS, SPARE],
    )


class Latent(NamedTuple):
    """Hold the sizes of a problem: the key of a plan."""

    batch: int
    heads: int
    keys: int
    q_strides: tuple[int, int]
    """Of sequences and heads."""
    k_strides: tuple[int, int]
    """Of sequences and keys."""
    out_strides: tuple[int, int]
    """Of sequences and heads."""
    dtype: torch.dtype
    scale: float
    wants_lse: bool


def decode_call(p: Latent, splits: int) -> KernelCall:
    """Return the launch for keys in parts, of which none is empty (`parts`)."""
    sides = (("q", p.heads, p.q_strides), ("k", p.keys, p.k_strides))
    boxes = {
        f"{name}_{which}": describe(
            Layout((p.batch, 1, rows, MLA_KEYS), (strides[0], MLA_KEYS, strides[1], 1)), p.dtype,
            HEADS, width, ragged=False,
        )
        for name, rows, strides in sides
        for which, width in (("desc", MLA_VALUES // 2), ("last", MLA_KEYS - MLA_VALUES))
    }  # fmt: skip
    wide, tiles, joined = Pointer(torch.float32), p.heads // HEADS, splits > 1
    return KernelCall(
        decode_latent,
        p.batch * splits * tiles,
        {
            **boxes,
            "partial": wide if joined else None,
            "sums": wide if joined else None,
            "out": None if joined else Pointer(p.dtype),
            "lse": wide if p.wants_lse and not joined else None,
            "keys": p.keys,
            "splits": splits,
            "stride_ob": p.out_strides[0],
            "stride_oh": p.out_strides[1],
            "scale": p.scale * LOG2E,
        },
        {"TILES": tiles, "JOINED": joined},
        {"num_warps": 4, "maxnreg": REGISTERS_AT_LAUNCH, "launch_pdl": 1},
    )


def parts(keys: int, most: int) -> int:
    """Return into how many parts keys are divided, at most so many, of which none is empty."""
    blocks = -(-keys // HEADS)
    return -(-blocks // -(-blocks // most))


Run = Callable[[Tensor, Tensor, Tensor, Tensor | None], tuple[Tensor, ...]]


def plan_run(p: Latent, splits: int, device: torch.device) -> Run:
    """Return a function of q [B,H,1,576], k [B,1,S,576], out [B,H,1,512] and lse [B,H,1] or None.

    Nothing is checked. If keys are in several parts, it returns the sums of values of each, float32
    [B,splits,H,512], and float32 [B,splits,H,2]: the largest score, in base 2, and the sum of
    weights. Otherwise it writes the answers.
    """
    launch = prepare(decode_call(p, splits), device)
    shape = (p.batch, splits, p.heads)

    def run(q: Tensor, k: Tensor, out: Tensor, lse: Tensor | None) -> tuple[Tensor, ...]:
        if splits == 1:
            launch(q, q, k, k, out, *(() if lse is None else (lse,)))
            return ()
        partial = torch.empty(*shape, MLA_VALUES, dtype=torch.float32, device=device)
        sums = torch.empty(*shape, 2, dtype=torch.float32, device=device)
        launch(q, q, k, k, partial, sums)
        return partial, sums

    return run
