# mypy: disable-error-code="no-untyped-def"
"""Compute attention forward with heads of 257 to 512 elements on NVIDIA Hopper (sm_90).

The output of 64 queries fills the registers of two warpgroups. A producer warp loads keys and
values by the copy engine; one warpgroup computes the scores, the weights and the left half of the
output; another takes the weights from shared memory and computes the right half, while the first is
at the next scores.

Source: FlashAttention-3 (arXiv 2407.08608, section 3.1) for the roles of the warps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

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

from gpudeck.accel.attention.kernels.geometry import Geometry, geometry_key, geometry_of
from gpudeck.accel.attention.kernels.hopper.backward_tiles import is_cut, keys_of_queries, sees
from gpudeck.accel.attention.kernels.hopper.descriptors import describe, load_rows, store_rows
from gpudeck.accel.attention.problem import Rules
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
from gpudeck.accel.primitives.tiles.warpgroup import (
    limit,
    pack,
    softmax_end,
    softmax_step,
    unpack,
)
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

LOG2E = 1.4426950408889634
ROWS = gl.constexpr(64)
HALF = gl.constexpr(256)
WIDEST = 512
Run = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
KEYS, STAGES = 64, 1
"""Keys of a block, and blocks on their way. It spills 568 bytes a thread and is 1.2 to 1.26 times
as fast as blocks of 32 keys, of which two are on their way and which spill nothing."""


@gluon.jit
def _own(bounds, heads, BN: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr):
    """Return the sequence, head and first query of this program, the first key that it sees, and
    the number of blocks, at least one. Those that see most keys come first."""
    seq_q, seq_k, left, right = bounds
    sequence = gl.program_id(0) // heads
    query = (gl.num_programs(1) - 1 - gl.program_id(1)) * ROWS
    first, count = keys_of_queries(query, seq_q, seq_k, left, right, ROWS, BN, LEFT, RIGHT)
    return sequence, gl.program_id(0) % heads, query, first * BN, gl.maximum(count, 1)


@gluon.jit
def _produce(
    descs, smem, bars, bounds, heads,
    BN: gl.constexpr, GROUP: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    """Load the queries, then block after block of keys and values, each in two halves."""
    q_desc, k_desc, v_desc, o_desc = descs
    q_smem, k_smem, v_smem, p_smem, factors = smem
    q_full, k_full, k_empty, left_full, left_empty, right_full, right_empty, p_full, p_empty = bars
    STAGES: gl.constexpr = left_full.shape[0]
    sequence, head, query, first, count = _own(bounds, heads, BN, LEFT, RIGHT)
    expect_bytes(q_full, 0, 2 * q_desc.block_type.nbytes)
    for half in gl.static_range(2):
        load_rows(
            q_desc, sequence, head, query, 0, 0, q_full.index(0), q_smem.index(half), False,
            half * HALF,
        )  # fmt: skip
    for step in range(count):
        slot = step % STAGES
        key = first + step * BN
        expect_tile(k_full, k_empty, step, 2 * k_desc.block_type.nbytes)
        for half in gl.static_range(2):
            load_rows(
                k_desc, sequence, head // GROUP, key, 0, 0, k_full.index(slot),
                k_smem.index(slot * 2 + half), False, half * HALF,
            )  # fmt: skip
        expect_tile(left_full, left_empty, step, v_desc.block_type.nbytes)
        load_rows(
            v_desc, sequence, head // GROUP, key, 0, 0, left_full.index(slot),
            v_smem.index(slot * 2), False,
        )  # fmt: skip
        expect_tile(right_full, right_empty, step, v_desc.block_type.nbytes)
        load_rows(
            v_desc, sequence, head // GROUP, key, 0, 0, right_full.index(slot),
            v_smem.index(slot * 2 + 1), False, HALF,
        )  # fmt: skip


@gluon.jit
def _scores(smem, bars, step, BN: gl.constexpr, LAYOUT: gl.constexpr):
    """Issue the scores of a step's block once it is there: two products."""
    q_smem, k_smem, v_smem, p_smem, factors = smem
    k_full = bars[1]
    slot = step % k_full.shape[0]
    none = gl.zeros([ROWS, BN], gl.float32, LAYOUT)
    await_tile(k_full, step)
    left = k_smem.index(slot * 2).permute((1, 0))
    s = warpgroup_mma(q_smem.index(0), left, none, use_acc=False, is_async=True)
    right = k_smem.index(slot * 2 + 1).permute((1, 0))
    return warpgroup_mma(q_smem.index(1), right, s, is_async=True)


@gluon.jit
def _weigh(
    s, m, l, smem, bars, step, query, key, bounds, scales,
    BN: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr,
    CAPPED: gl.constexpr,
):  # fmt: skip
    """Take a step's scores into the softmax, and pass its weights and the factor of earlier sums
    on.

    Returns:
        The weights in pairs, the new m and l, and the factor.
    """
    q_smem, k_smem, v_smem, p_smem, factors = smem
    p_full, p_empty = bars[7], bars[8]
    seq_q, seq_k, left, right = bounds
    scale, scale_in, cap = scales
    if CAPPED:
        s = limit(s * scale_in, cap)
    if MASKED:  # noqa: SIM102
        if is_cut(query, key, seq_q, seq_k, left, right, ROWS, BN, LEFT, RIGHT):
            rows = query + gl.arange(0, ROWS, gl.SliceLayout(1, s.type.layout))
            keys = key + gl.arange(0, BN, gl.SliceLayout(0, s.type.layout))
            seen = sees(
                gl.expand_dims(rows, 1), gl.expand_dims(keys, 0), seq_q, seq_k, left, right, LEFT,
                RIGHT,
            )  # fmt: skip
            s = gl.where(seen, s, -float("inf"))
    weights, m, l, shrink = softmax_step(s, m, l, scale, MASKED)
    await_slot(p_empty, step)
    p_smem.store(weights.to(p_smem.dtype))
    factors.store(shrink)
    fence_async_shared()
    publish_tile(p_full, step)
    return pack(weights, p_smem.dtype), m, l, shrink


@gluon.jit
def _values(pairs, shrink, acc, smem, bars, step, LAYOUT: gl.constexpr):
    """Issue the product of a step's weights and the left half of its values."""
    q_smem, k_smem, v_smem, p_smem, factors = smem
    left_full = bars[3]
    acc = acc * gl.expand_dims(gl.convert_layout(shrink, gl.SliceLayout(1, LAYOUT)), 1)
    p = unpack(pairs, p_smem.dtype, gl.DotOperandLayout(0, LAYOUT, 2))
    await_tile(left_full, step)
    return warpgroup_mma(p, v_smem.index(step % left_full.shape[0] * 2), acc, is_async=True)


@gluon.jit
def _keep(desc, smem, acc, sequence, head, query, seq_q, SIDE: gl.constexpr):
    """Store half of the output by way of the queries' shared memory, which nobody reads now."""
    q = smem[0].index(SIDE)
    q.store(acc.to(q.dtype))
    fence_async_shared()
    store_rows(desc, sequence, head, query, 0, seq_q, q, False, SIDE * HALF)
    tma.store_wait(0)


@gluon.jit
def _first(
    descs, smem, bars, bounds, heads, scales, lse,
    BN: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr, MASKED: gl.constexpr,
    CAPPED: gl.constexpr,
):  # fmt: skip
    """Compute scores, weights, and the left half of the output.

    The scores of a block are issued behind the sums of the one before.
    """
    k_empty, left_empty, p_full, p_empty = bars[2], bars[4], bars[7], bars[8]
    factors = smem[4]
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    ROW: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    sequence, head, query, first, count = _own(bounds, heads, BN, LEFT, RIGHT)
    m = gl.full([ROWS], -float("inf"), gl.float32, ROW)
    l = gl.full([ROWS], 0.0, gl.float32, ROW)
    acc = gl.zeros([ROWS, HALF], gl.float32, O_LAYOUT)
    await_tile(bars[0], 0)
    s = warpgroup_mma_wait(0, [_scores(smem, bars, 0, BN, S_LAYOUT)])
    release_tile(k_empty, 0)
    pairs, m, l, shrink = _weigh(
        s, m, l, smem, bars, 0, query, first, bounds, scales, BN, LEFT, RIGHT, MASKED, CAPPED
    )
    for step in range(1, count):
        acc = _values(pairs, shrink, acc, smem, bars, step - 1, O_LAYOUT)
        s = _scores(smem, bars, step, BN, S_LAYOUT)
        acc = warpgroup_mma_wait(2, [acc])
        release_tile(left_empty, step - 1)
        s = warpgroup_mma_wait(0, [s])
        release_tile(k_empty, step)
        key = first + step * BN
        pairs, m, l, shrink = _weigh(
            s, m, l, smem, bars, step, query, key, bounds, scales, BN, LEFT, RIGHT, MASKED, CAPPED
        )
    acc = warpgroup_mma_wait(0, [_values(pairs, shrink, acc, smem, bars, count - 1, O_LAYOUT)])
    factor, logarithm = softmax_end(m, l)
    await_slot(p_empty, count)
    factors.store(factor)
    publish_tile(p_full, count)
    seq_q = bounds[0]
    rows = query + gl.arange(0, ROWS, ROW)
    place = (sequence * heads + head).to(gl.int64) * seq_q + rows
    gl.store(lse + place, logarithm, mask=rows < seq_q)
    acc = acc * gl.expand_dims(gl.convert_layout(factor, gl.SliceLayout(1, O_LAYOUT)), 1)
    _keep(descs[3], smem, acc, sequence, head, query, seq_q, 0)


@gluon.jit
def _second(
    descs, smem, bars, bounds, heads,
    BN: gl.constexpr, LEFT: gl.constexpr, RIGHT: gl.constexpr,
):  # fmt: skip
    """Compute the right half of the output with the weights that `_first` passes on."""
    q_smem, k_smem, v_smem, p_smem, factors = smem
    right_full, right_empty, p_full, p_empty = bars[5], bars[6], bars[7], bars[8]
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    O_ROW: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    sequence, head, query, first, count = _own(bounds, heads, BN, LEFT, RIGHT)
    acc = gl.zeros([ROWS, HALF], gl.float32, O_LAYOUT)
    for step in range(count):
        await_tile(right_full, step)
        await_tile(p_full, step)
        acc = acc * gl.expand_dims(factors.load(O_ROW), 1)
        v = v_smem.index(step % right_full.shape[0] * 2 + 1)
        acc = warpgroup_mma_wait(0, [warpgroup_mma(p_smem, v, acc, is_async=True)])
        release_tile(p_empty, step)
        release_tile(right_empty, step)
    await_tile(p_full, count)
    acc = acc * gl.expand_dims(factors.load(O_ROW), 1)
    _keep(descs[3], smem, acc, sequence, head, query, bounds[0], 1)


@gluon.jit(do_not_specialize=["heads", "seq_q", "seq_k", "left", "right"])
def hopper_forward_wide(
    q_desc, k_desc, v_desc, o_desc, lse, heads, seq_q, seq_k, left, right, scale, scale_in, cap,
    BN: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr, LEFT: gl.constexpr,
    RIGHT: gl.constexpr, MASKED: gl.constexpr, CAPPED: gl.constexpr,
):  # fmt: skip
    """Compute the output of 64 queries of a head. The grid is [sequences x heads, tiles]."""
    dtype: gl.constexpr = q_desc.dtype
    Q_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, HALF], dtype)
    K_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, HALF], dtype)
    P_LAYOUT: gl.constexpr = gl.NVMMASharedLayout.get_default_for([ROWS, BN], dtype)
    q_smem = gl.allocate_shared_memory(dtype, [2, ROWS, HALF], Q_LAYOUT)
    k_smem = gl.allocate_shared_memory(dtype, [2 * STAGES, BN, HALF], K_LAYOUT)
    v_smem = gl.allocate_shared_memory(dtype, [2 * STAGES, BN, HALF], K_LAYOUT)
    p_smem = gl.allocate_shared_memory(dtype, [ROWS, BN], P_LAYOUT)
    factors = gl.allocate_shared_memory(gl.float32, [ROWS], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    q_full = arrivals(1, 1)
    k_full, k_empty = barriers(STAGES, 1)
    left_full, left_empty = barriers(STAGES, 1)
    right_full, right_empty = barriers(STAGES, 1)
    p_full, p_empty = barriers(1, 1)
    smem = (q_smem, k_smem, v_smem, p_smem, factors)
    bars = (
        q_full, k_full, k_empty, left_full, left_empty, right_full, right_empty, p_full, p_empty
    )  # fmt: skip
    descs = (q_desc, k_desc, v_desc, o_desc)
    bounds = (seq_q, seq_k, left, right)
    scales = (scale, scale_in, cap)
    gdc_launch_dependents()
    gdc_wait()
    gl.warp_specialize(
        [
            (
                _first,
                (descs, smem, bars, bounds, heads, scales, lse, BN, LEFT, RIGHT, MASKED, CAPPED),
            ),
            (_second, (descs, smem, bars, bounds, heads, BN, LEFT, RIGHT)),
            (_produce, (descs, smem, bars, bounds, heads, BN, GROUP, LEFT, RIGHT)),
        ],
        [4, 1],
        [240, 24],
    )


def plan_run(q: Tensor, k: Tensor, v: Tensor, rules: Rules) -> Run:
    """Return a function of q [B,H,Sq,D], k and v [B,Hkv,Sk,D], with 256 < D <= 512, in float16 or
    bfloat16, with any strides that boxes take (`descriptors.fits`).

    It checks nothing, and takes tensors of the sizes, strides, dtype and device of these. It
    returns out like q, and lse float32 [B,H,Sq], the natural logarithm of the sum of exponentials;
    a row that sees no key gives 0 and -inf.
    """
    return _plan(geometry_key(q, k, v, rules))


@lru_cache(maxsize=1024)
def _plan(key: tuple[object, ...]) -> Run:
    g = geometry_of(key)
    empty = 0 in (*g.q.shape, g.k.shape[2])
    launch, shape = None if empty else prepare(forward_wide_call(g), g.device), g.q.shape[:3]

    def run(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.empty_like(q)
        lse = torch.empty(shape, dtype=torch.float32, device=q.device)
        if launch is None:
            return out.zero_(), lse.fill_(-math.inf)
        launch(q, k, v, out, lse)
        return out, lse

    return run


def forward_wide_call(g: Geometry, keys: int = KEYS, stages: int = STAGES) -> KernelCall:
    """Return the launch for a problem."""
    left, right = g.limits
    cap = g.rules.softcap
    half = WIDEST // 2
    return KernelCall(
        hopper_forward_wide,
        (g.sequences * g.heads, math.ceil(g.q.shape[2] / 64), 1),
        {
            "q_desc": describe(g.q, g.dtype, 64, half, ragged=False),
            "k_desc": describe(g.k, g.dtype, keys, half, ragged=False),
            "v_desc": describe(g.v, g.dtype, keys, half, ragged=False),
            "o_desc": describe(g.out, g.dtype, 64, half, ragged=False),
            "lse": Pointer(torch.float32),
            "heads": g.heads,
            "seq_q": g.q.shape[2],
            "seq_k": g.k.shape[2],
            "left": left or 0,
            "right": right or 0,
            "scale": 1.0 if cap else g.rules.scale * LOG2E,
            "scale_in": 2 * g.rules.scale * LOG2E / cap if cap else 0.0,
            "cap": cap * LOG2E,
        },
        {
            **{"BN": keys, "STAGES": stages, "GROUP": g.group, "CAPPED": cap != 0.0},
            **{"LEFT": left is not None, "RIGHT": right is not None},
            "MASKED": left is not None or right is not None or g.k.shape[2] % keys != 0,
        },
        {"num_warps": 4, "maxnreg": 168, "launch_pdl": 1},
    )
