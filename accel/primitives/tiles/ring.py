"""Move tiles through shared memory between a loading warp and computing warpgroups, in Gluon.

A ring has slots for tiles and two barriers for each: `full` is passed when a tile has arrived, and
`empty` when all computing warpgroups have released the slot. Step s uses slot s % slots; its n-th
use passes the barriers' n-th phase, so that neither side keeps a count besides s.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from accel.runtime.gluon import thread_barrier


@gluon.jit
def barriers(SLOTS: gl.constexpr, READERS: gl.constexpr):
    """Return `full` and `empty` of a ring whose slots READERS warpgroups release."""
    full = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=READERS)
    return full, empty


@gluon.jit
def expect_tile(full, empty, step, BYTES: gl.constexpr):
    """Wait until the slot of a step is free, and announce the bytes that will be loaded into it."""
    SLOTS: gl.constexpr = full.shape[0]
    mbarrier.wait(empty.index(step % SLOTS), (step // SLOTS) & 1 ^ 1)
    mbarrier.expect(full.index(step % SLOTS), BYTES)


@gluon.jit
def await_tile(full, step):
    """Wait until the tile of a step has arrived."""
    SLOTS: gl.constexpr = full.shape[0]
    mbarrier.wait(full.index(step % SLOTS), (step // SLOTS) & 1)


@gluon.jit
def release_tile(empty, step):
    """Give the slot of a step back: this warpgroup has read its tile."""
    SLOTS: gl.constexpr = empty.shape[0]
    mbarrier.arrive(empty.index(step % SLOTS), count=1)


@gluon.jit
def pass_tile(full, empty, step):
    """Let the tile of a step pass, of which this warpgroup has no part.

    Its warps wait for each other: the one that gives the slot back must not be a round ahead of
    another that still waits for the tile, as a barrier tells only two phases apart.
    """
    await_tile(full, step)
    thread_barrier()
    release_tile(empty, step)
