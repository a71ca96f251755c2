"""Let CTAs that stay on their multiprocessor claim one tile of the backward pass after another."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gpudeck.accel.primitives.tiles.ring import (
    await_slot,
    await_tile,
    barriers,
    publish_tile,
    release_tile,
)

VARYING = [
    "heads", "sequences", "seq_q", "seq_k", "tiles_a_head", "left", "right", "slopes_batch",
    "tiles", "row_tiles", "group",
]  # fmt: skip
"""The numbers that no kernel is compiled anew for."""


@gluon.jit
def claim_slots():
    """Return shared memory for two claims and its barriers, for two warpgroups that compute."""
    claimed = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full, empty = barriers(2, 2)
    return claimed, full, empty


@gluon.jit
def claim_next(claims, t, COUNT: gl.constexpr):
    """Return the tile after `t`, which may be past the last one: the next unclaimed one or, if
    claims are not counted, a fixed number further on.
    """
    if COUNT:
        t = gl.atomic_add(claims, 1, sem="relaxed")
    return gl.num_programs(0) + t


@gluon.jit
def publish_claim(slots, served, t):
    """Tell the computing warpgroups their tile number `served`; -1 for no more."""
    claimed, full, empty = slots
    nil = gl.full([1], 0, gl.int32, gl.BlockedLayout([1], [32], [1], [0]))
    await_slot(empty, served)
    claimed.index(served & 1).store(nil + t)
    publish_tile(full, served)


@gluon.jit
def take_claim(slots, served):
    """Return tile number `served` once it is published."""
    claimed, full, empty = slots
    await_tile(full, served)
    t = gl.max(claimed.index(served & 1).load(gl.BlockedLayout([1], [32], [4], [0])), 0)
    release_tile(empty, served)
    return t


@gluon.jit
def locate(t, row_tiles, all_heads, group):
    """Return the place of a tile within its head, and its head among those of all sequences.

    Heads form rounds of `group`; in a round the first tiles of all heads come first.
    """
    first = (t // (group * row_tiles)) * group
    place = t - first * row_tiles
    together = gl.minimum(group, all_heads - first)
    return place // together, first + place % together
