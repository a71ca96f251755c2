"""A kernel in which a producer hands tiles to a consumer as our Hopper kernels do, and next to
nothing else happens.

Two kinds of hand-over: boxes that the copy engine loads, and words that threads store; both by
memory barriers (mbarrier). What the race checker says of this it says of every kernel with warps of
several kinds; so what else it says of ours is the part to look at.
"""

from __future__ import annotations

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from gpudeck.accel.runtime.call import KernelCall, Pointer, TensorBox
from gpudeck.accel.runtime.gluon import tma_load
from gpudeck.accel.runtime.launch import prepare

ROWS, COLUMNS, STEPS = 64, 16, 8


@gluon.jit
def _consume(smem, words, full, empty, out, n: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    row = gl.arange(0, 64, gl.SliceLayout(1, layout))
    column = gl.arange(0, 16, gl.SliceLayout(0, layout))
    total = gl.zeros([64, 16], gl.float32, layout)
    for i in range(n):
        mbarrier.wait(full.index(i % 2), (i // 2) & 1)
        word = gl.max(words.index(i % 2).load(gl.BlockedLayout([1], [32], [4], [0])), 0)
        total += smem.index(i % 2).load(layout) * word
        mbarrier.arrive(empty.index(i % 2), count=1)
    gl.store(out + row[:, None] * 16 + column[None, :], total)


@gluon.jit
def _produce(desc, smem, words, full, empty, n: gl.constexpr):
    for i in range(n):
        mbarrier.wait(empty.index(i % 2), ((i // 2) & 1) ^ 1)
        words.index(i % 2).store(
            gl.full([1], 1, gl.int32, gl.BlockedLayout([1], [32], [1], [0])) + i
        )
        mbarrier.expect(full.index(i % 2), desc.block_type.nbytes)
        tma_load(desc, [i * 64, 0], full.index(i % 2), smem.index(i % 2))
        mbarrier.arrive(full.index(i % 2), count=1)


@gluon.jit
def handed_over(desc, out, n: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.float32, [2, 64, 16], desc.layout)
    words = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=2)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (_consume, (smem, words, full, empty, out, n)),
            (_produce, (desc, smem, words, full, empty, n)),
        ],
        [1],
        [24],
    )


def run() -> float:
    """The largest error of the sum over all tiles, each times its number."""
    x = torch.randn(STEPS * ROWS, COLUMNS, device="cuda")
    out = torch.empty(ROWS, COLUMNS, device="cuda")
    box = TensorBox(
        x.dtype, tuple(x.shape), x.stride(), (ROWS, COLUMNS), gl.NVMMASharedLayout(0, 32, 2)
    )
    call = KernelCall(
        handed_over, 1, {"desc": box, "out": Pointer(out.dtype)}, {"n": STEPS}, {"num_warps": 4}
    )
    prepare(call, x.device)(x, out)
    number = torch.arange(1, STEPS + 1, device="cuda").view(-1, 1, 1)
    return float((out - (x.view(STEPS, ROWS, COLUMNS) * number).sum(0)).abs().max())
