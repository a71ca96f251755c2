"""Share code of the backward kernels.

It covers which tiles see which, the fragment order of dq's accumulator, and the softmax of a tile.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from gpudeck.accel.primitives.tiles.warpgroup import limit

VARYING = ["heads", "seq_q", "seq_k", "tiles_a_head", "left", "right", "slopes_batch", "at_once"]
"""The numbers that no kernel is compiled anew for."""


@gluon.jit
def own_tile(at_once):
    """Return this CTA's tile and head, and the number of tiles of a head.

    The grid is [tiles x at_once, heads / at_once, sequences]: the heads that run at once begin with
    their first tiles, which a causal mask makes the longest.
    """
    place = gl.program_id(0)
    tiles = gl.num_programs(0) // at_once
    return place // at_once, gl.program_id(1) * at_once + place % at_once, tiles


@gluon.jit
def sequence_of(starts_q, starts_k, seq_q, seq_k, sequence, RAGGED: gl.constexpr):
    """Return where the sequence's queries and keys begin in their tensors, and their numbers."""
    start_q = 0
    start_k = 0
    if RAGGED:
        start_q = gl.load(starts_q + sequence)
        start_k = gl.load(starts_k + sequence)
        seq_q = gl.load(starts_q + sequence + 1) - start_q
        seq_k = gl.load(starts_k + sequence + 1) - start_k
    return start_q, seq_q, start_k, seq_k


@gluon.jit
def first_tile(start_q, sequence, head, heads, tiles, BM: gl.constexpr, RAGGED: gl.constexpr):
    """Return the number of a head's first query tile in the scratch tensors.

    These hold `tiles` tiles of BM queries per head. Ragged sequences begin at tile start // BM
    + sequence, so the tiles of one sequence never reach those of the next.
    """
    if RAGGED:
        return head * tiles + start_q // BM + sequence
    else:
        return (sequence * heads + head) * tiles


@gluon.jit
def queries_of_keys(
    key,
    seq_q,
    seq_k,
    left,
    right,
    BM: gl.constexpr,
    BN: gl.constexpr,
    LEFT: gl.constexpr,
    RIGHT: gl.constexpr,
):
    """Return the first query tile that sees the keys [key, key + BN), and the number of such
    tiles.
    """
    shift = seq_k - seq_q
    first = 0
    end = seq_q
    if RIGHT:
        first = gl.maximum(key - shift - right, 0)
    if LEFT:
        end = gl.minimum(gl.minimum(key + BN, seq_k) - shift + left, seq_q)
    end = gl.where(key < seq_k, end, 0)
    first = first // BM
    return first, gl.maximum((end + BM - 1) // BM - first, 0)


@gluon.jit
def keys_of_queries(
    query,
    seq_q,
    seq_k,
    left,
    right,
    BM: gl.constexpr,
    BN: gl.constexpr,
    LEFT: gl.constexpr,
    RIGHT: gl.constexpr,
):
    """Return the first key tile that the queries [query, query + BM) see, and the number of
    such tiles.
    """
    shift = seq_k - seq_q
    first = 0
    end = seq_k
    if LEFT:
        first = gl.maximum(query + shift - left, 0)
    if RIGHT:
        end = gl.minimum(gl.minimum(query + BM, seq_q) + shift + right, seq_k)
    end = gl.where(query < seq_q, end, 0)
    first = first // BN
    return first, gl.maximum((end + BN - 1) // BN - first, 0)


@gluon.jit
def place(step, tiles, first, rotation, GROUP: gl.constexpr):
    """Return the head within the group, and its query tile, of a step."""
    member = 0
    if GROUP > 1:
        member = step // tiles
        step -= member * tiles
    step += rotation
    step = gl.where(step >= tiles, step - tiles, step)
    return member, first + step


@gluon.jit
def is_cut(
    query,
    key,
    seq_q,
    seq_k,
    left,
    right,
    BM: gl.constexpr,
    BN: gl.constexpr,
    LEFT: gl.constexpr,
    RIGHT: gl.constexpr,
):
    """Return True if some query of a tile must not see some key of a tile."""
    shift = seq_k - seq_q
    cut = key + BN > seq_k
    if RIGHT:
        cut = cut | (query + shift + right < key + BN - 1)
    if LEFT:
        cut = cut | (query + BM - 1 + shift - left > key)
    return cut


@gluon.jit
def sees(query, key, seq_q, seq_k, left, right, LEFT: gl.constexpr, RIGHT: gl.constexpr):
    """Return which query sees which key; `query` and `key` are int32 and broadcast together."""
    shift = seq_k - seq_q
    seen = key < seq_k
    if RIGHT:
        seen = seen & (key <= query + (shift + right))
    if LEFT:
        seen = seen & (key >= query + (shift - left))
    return seen


@gluon.jit
def apply_cap(s, minus_lse, scale_log2, cap_log2):
    """Return log2 of the weights under a softcap, and the softcap's derivative.

    `minus_lse` is in log2 units, scale_log2 = scale / cap * log2 e.
    """
    t = limit(s * (2.0 * scale_log2), 1.0)
    return t * cap_log2 + minus_lse, 1.0 - t * t


@gluon.jit
def slope_of(slopes, member, ALIBI: gl.constexpr):
    """Return ALiBi's slope of a head of the group in base 2; 0 without ALiBi."""
    if ALIBI:
        return gl.load(slopes + member) * 1.4426950408889634
    else:
        return 0.0


@gluon.jit
def tilt_of_keys(keys, tile, seq_q, seq_k, slope, BM: gl.constexpr):
    """Return slope x (key - position of the first query of a tile); `prepare_rows` did the rest."""
    return slope * (keys - (tile * BM + seq_k - seq_q)).to(gl.float32)


@gluon.jit
def fragments(pointer, first, end, D: gl.constexpr, LAYOUT: gl.constexpr):
    """Return rows `first` to `first` + 63, up to `end`, of the sums of `add_fragments` at
    `pointer` as float32 [64,D].
    """
    row = gl.expand_dims(gl.arange(0, 64, gl.SliceLayout(1, LAYOUT)), 1)
    column = gl.expand_dims(gl.arange(0, D, gl.SliceLayout(0, LAYOUT)), 0)
    place = (
        (row >> 4) * 128
        + (row & 7) * 16
        + ((row >> 3) & 1) * 2
        + (column >> 3) * 512
        + ((column & 7) >> 1) * 4
        + (column & 1)
    )
    return gl.load(pointer + first * D + place, mask=first + row < end, other=0.0)


@gluon.jit
def add_fragments(pointer, acc, LAYOUT: gl.constexpr):
    """Add acc float32 [64,N], an accumulator of wgmma, to 64 * N floats at `pointer`.

    The floats keep the order of the registers. The four registers of a thread for each 16 x 8
    piece (rows r and r + 8, columns c and c + 1) are adjacent and take one vector reduction, so
    a warp adds 512 contiguous bytes.
    """
    row = gl.expand_dims(gl.arange(0, acc.shape[0], gl.SliceLayout(1, LAYOUT)), 1)
    column = gl.expand_dims(gl.arange(0, acc.shape[1], gl.SliceLayout(0, LAYOUT)), 0)
    # First all that differs between threads, then what is known at compile time: it becomes the
    # offset in the instruction.
    thread = ((row >> 4) * 32 + (row & 7) * 4 + ((column & 7) >> 1)) * 16
    target = (
        pointer.to(gl.int64, bitcast=True) + thread.to(gl.int64) + (column >> 3).to(gl.int64) * 2048
    )
    gl.inline_asm_elementwise(
        "red.relaxed.gpu.global.add.v4.f32 [$1], {$5, $6, $7, $8}; mov.u32 $0, 0;",
        "=r,l,l,l,l,f,f,f,f",
        [target, acc],
        dtype=gl.int8,
        is_pure=False,
        pack=4,
    )


@gluon.jit
def multiply_rows(a, b, acc, use_acc: gl.constexpr, DEPTH: gl.constexpr):
    """Start acc + a bᵀ over the first DEPTH columns of tiles in shared memory.

    It is one group of asynchronous products if these are all columns, otherwise two: one of 64
    columns, one of the rest. The columns behind them are zeros.
    """
    if a.shape[1] == DEPTH:
        return warpgroup_mma(a, b.permute((1, 0)), acc, use_acc=use_acc, is_async=True)
    else:
        REST: gl.constexpr = DEPTH - 64
        first = b.slice(0, 64, dim=1).permute((1, 0))
        rest = b.slice(64, REST, dim=1).permute((1, 0))
        acc = warpgroup_mma(a.slice(0, 64, dim=1), first, acc, use_acc=use_acc, is_async=True)
        return warpgroup_mma(a.slice(64, REST, dim=1), rest, acc, is_async=True)


@gluon.jit
def new_sums(D: gl.constexpr, DEPTH: gl.constexpr):
    """Return zeros for 64 rows of DEPTH columns: one tensor if these are all D, otherwise two, of
    64 columns and of the rest."""
    if DEPTH == D:
        layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
        return (gl.zeros([64, D], gl.float32, layout),)
    else:
        REST: gl.constexpr = DEPTH - 64
        first: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
        rest: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, REST, 16])
        return gl.zeros([64, 64], gl.float32, first), gl.zeros([64, REST], gl.float32, rest)


@gluon.jit
def multiply_columns(a, b, sums, D: gl.constexpr, DEPTH: gl.constexpr):
    """Start sums + a b, for a in registers: a group of asynchronous products for each tensor."""
    of_first: gl.constexpr = gl.DotOperandLayout(0, sums[0].type.layout, 2)
    if DEPTH == D:
        return (warpgroup_mma(gl.convert_layout(a, of_first), b, sums[0], is_async=True),)
    else:
        of_rest: gl.constexpr = gl.DotOperandLayout(0, sums[1].type.layout, 2)
        columns = b.slice(0, 64, dim=1)
        first = warpgroup_mma(gl.convert_layout(a, of_first), columns, sums[0], is_async=True)
        columns = b.slice(64, DEPTH - 64, dim=1)
        rest = warpgroup_mma(gl.convert_layout(a, of_rest), columns, sums[1], is_async=True)
        return first, rest


@gluon.jit
def wait_for(sums, D: gl.constexpr, DEPTH: gl.constexpr):
    """Wait for all products; return the sums of `multiply_columns`."""
    if DEPTH == D:
        return (warpgroup_mma_wait(0, deps=sums),)
    else:
        return warpgroup_mma_wait(0, deps=sums)


@gluon.jit
def store_sums(sums, factor, tile, D: gl.constexpr, DEPTH: gl.constexpr):
    """Store sums times a factor into a tile in shared memory, in its dtype."""
    if DEPTH == D:
        tile.store((sums[0] * factor).to(tile.dtype))
    else:
        tile.slice(0, 64, dim=1).store((sums[0] * factor).to(tile.dtype))
        tile.slice(64, DEPTH - 64, dim=1).store((sums[1] * factor).to(tile.dtype))
