"""Pass tiles through shared memory from warps that write them to warps that read them, in Gluon.

A ring has slots for tiles and two barriers for each: `full` is passed when a tile has arrived, and
`empty` when all computing warpgroups have released the slot. Step s uses slot s % slots; its n-th
use passes the barriers' n-th phase, so that neither side keeps a count besides s. The writer is the
copy engine, which `expect_tile` tells how much will arrive, or a warpgroup that calls `await_slot`
and `publish_tile`. What is written only once has no `empty`, and warpgroups that take turns have a
barrier each.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from gpudeck.accel.runtime.gluon import thread_barrier


@gluon.jit
def arrivals(SLOTS: gl.constexpr, COUNT: gl.constexpr):
    """Return a barrier for each slot, which COUNT arrivals pass."""
    made = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(SLOTS):
        mbarrier.init(made.index(i), count=COUNT)
    return made


@gluon.jit
def barriers(SLOTS: gl.constexpr, READERS: gl.constexpr):
    """Return `full` and `empty` of a ring whose slots READERS warpgroups release."""
    full = arrivals(SLOTS, 1)
    return full, arrivals(SLOTS, READERS)


@gluon.jit
def _of(bars, step):
    """Return the barrier of a step's slot, and the parity of the slot's use."""
    gl.assume(step >= 0)  # or the division takes more instructions
    SLOTS: gl.constexpr = bars.shape[0]
    return bars.index(step % SLOTS), (step // SLOTS) & 1


@gluon.jit
def await_slot(empty, step):
    """Wait until the slot of a step is free."""
    bar, parity = _of(empty, step)
    mbarrier.wait(bar, parity ^ 1)


@gluon.jit
def expect_bytes(full, step, BYTES: gl.constexpr):
    """Announce the bytes that will be loaded into the slot of a step."""
    mbarrier.expect(_of(full, step)[0], BYTES)


@gluon.jit
def expect_tile(full, empty, step, BYTES: gl.constexpr):
    """Wait until the slot of a step is free, and announce the bytes that will be loaded into it."""
    await_slot(empty, step)
    expect_bytes(full, step, BYTES)


@gluon.jit
def publish_tile(full, step):
    """Tell the readers that this warpgroup has written its tile, or its part, of a step."""
    mbarrier.arrive(_of(full, step)[0], count=1)


@gluon.jit
def await_tile(full, step):
    """Wait until the tile of a step has arrived."""
    bar, parity = _of(full, step)
    mbarrier.wait(bar, parity)


@gluon.jit
def release_tile(empty, step, there=True):
    """Give the slot of a step back: this warpgroup has read its tile, if one was there."""
    mbarrier.arrive(_of(empty, step)[0], count=1, pred=there)


@gluon.jit
def pass_tile(full, empty, step):
    """Let the tile of a step pass, of which this warpgroup has no part.

    Its warps wait for each other: the one that gives the slot back must not be a round ahead of
    another that still waits for the tile, as a barrier tells only two phases apart.
    """
    await_tile(full, step)
    thread_barrier()
    release_tile(empty, step)


@gluon.jit
def await_turn(turn, step, CID: gl.constexpr):
    """Wait until it is warpgroup CID's turn for its n-th time, n = step; 0 begins."""
    mbarrier.wait(turn.index(CID), step & 1 if CID else step & 1 ^ 1)


@gluon.jit
def pass_turn(turn, CID: gl.constexpr):
    """Let the next warpgroup have its turn."""
    mbarrier.arrive(turn.index((CID + 1) % turn.shape[0]), count=1)
