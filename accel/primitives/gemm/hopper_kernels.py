"""Matrix products on NVIDIA Hopper (sm_90), written in Gluon.

A producer warp loads tiles with the copy engine (TMA); two or three consumer warpgroups multiply 64
rows each. The kernel is persistent: the producer loads for the next tile while this one is stored.
With scales of blocks, the sum of each 128 elements of k is promoted to float32 registers, while the
tensor cores work for the other consumers (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    warpgroup_mma,
    warpgroup_mma_wait,
)

from gpudeck.accel.primitives.tiles.ring import (
    await_tile,
    barriers,
    expect_tile,
    pass_tile,
    release_tile,
)
from gpudeck.accel.primitives.tiles.warpgroup import activate, scale_at
from gpudeck.accel.runtime.gluon import tma_load

ROWS = gl.constexpr(64)
"""Rows of a consumer: those of one wgmma."""


@gluon.jit
def _turns(tiles):
    """Return the most tiles that a program computes."""
    return (tiles + gl.num_programs(0) - 1) // gl.num_programs(0)


@gluon.jit
def _number(turn):
    """Return the tile that this program computes in a turn.

    Every other turn goes the other way round, so that who has got a large tile of a product of
    experts last does not always get the next one.
    """
    count, place = gl.num_programs(0), gl.program_id(0)
    if turn % 2 == 1:
        place = count - 1 - place
    return turn * count + place


@gluon.jit
def _locate(
    number, sizes, table, BM: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr,
    EXPERTS: gl.constexpr,
):  # fmt: skip
    """Return the batch of b, that of a, the first row, the first column and the last row's end.

    GROUP rows of tiles take turns along the columns, so that they find both operands in the L2
    cache. Of a product of experts a line of `table` is (expert, first row, end of its rows).
    """
    m, n, down, right = sizes
    batch = number // (down * right)
    number = number % (down * right)
    group = number // (GROUP * right)
    size = gl.minimum(down - group * GROUP, GROUP)
    inside = number % (GROUP * right)
    row = group * GROUP + inside % size
    column = inside // size * BN
    if EXPERTS:
        expert = gl.load(table + row * 3)
        return expert, batch, gl.load(table + row * 3 + 1), column, gl.load(table + row * 3 + 2)
    else:
        return batch, batch, row * BM, column, m


@gluon.jit
def _load(desc, batch, outer, inner, ALONG: gl.constexpr, barrier, shared):
    """Load a box of rows `outer` and of k from `inner`; ALONG: k lies side by side."""
    if ALONG:
        tma_load(desc, [batch, outer, inner], barrier, shared)
    else:
        tma_load(desc, [batch, inner, outer], barrier, shared)


@gluon.jit
def _producer(
    loads, C: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr,
    GROUP: gl.constexpr, EXPERTS: gl.constexpr, A_ALONG: gl.constexpr, B_ALONG: gl.constexpr,
):  # fmt: skip
    """Load what each tile of this program needs, as soon as there is room."""
    descs, smem, bars, sizes, counts, table = loads
    a_desc, b_desc = descs
    a_smem, b_smem = smem
    full, empty = bars
    tiles, steps = counts
    STAGES: gl.constexpr = b_smem.shape[0]
    step = 0
    for turn in range(_turns(tiles)):
        number = _number(turn)
        if number < tiles:
            batch_b, batch_a, row, column, _ = _locate(number, sizes, table, BM, BN, GROUP, EXPERTS)
            for k in range(steps):
                slot = step % STAGES
                expect_tile(
                    full, empty, step, C * a_desc.block_type.nbytes + b_desc.block_type.nbytes
                )
                for c in gl.static_range(C):
                    _load(
                        a_desc, batch_a, row + c * ROWS, k * BK, A_ALONG, full.index(slot),
                        a_smem.index(slot * C + c),
                    )  # fmt: skip
                _load(b_desc, batch_b, column, k * BK, B_ALONG, full.index(slot),
                      b_smem.index(slot))  # fmt: skip
                step += 1


@gluon.jit
def _product(
    smem, slot, acc, CID: gl.constexpr, C: gl.constexpr, A_ALONG: gl.constexpr,
    B_ALONG: gl.constexpr, ADD: gl.constexpr,
):  # fmt: skip
    """Issue the product of the boxes in a slot."""
    a_smem, b_smem = smem
    a = a_smem.index(slot * C + CID)
    b = b_smem.index(slot)
    if not A_ALONG:
        a = a.permute((1, 0))
    if B_ALONG:
        b = b.permute((1, 0))
    return warpgroup_mma(a, b, acc, use_acc=ADD, is_async=True)


@gluon.jit
def _sums(
    smem, bars, acc, step, steps, CID: gl.constexpr, C: gl.constexpr, A_ALONG: gl.constexpr,
    B_ALONG: gl.constexpr,
):  # fmt: skip
    """Return the sums over all of k; one product is always in flight."""
    full, empty = bars
    STAGES: gl.constexpr = smem[1].shape[0]
    for k in range(steps):
        slot = (step + k) % STAGES
        await_tile(full, step + k)
        acc = _product(smem, slot, acc, CID, C, A_ALONG, B_ALONG, True)
        acc = warpgroup_mma_wait(1, deps=(acc,))
        if k > 0:
            release_tile(empty, step + k - 1)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    release_tile(empty, step + steps - 1)
    return acc


@gluon.jit
def _promote(
    smem, bars, acc, step, steps, scales, batch, row, column, end,
    CID: gl.constexpr, C: gl.constexpr, STEP_A: gl.constexpr,
):  # fmt: skip
    """Return the sums over all of k, each 128 multiplied by their scales and added in float32."""
    full, empty = bars
    a_ptr, b_ptr, stride_am, stride_ak, stride_bz, stride_bk, stride_bn = scales
    b_ptr += batch * stride_bz
    STAGES: gl.constexpr = smem[1].shape[0]
    LAYOUT: gl.constexpr = acc.type.layout
    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
    nothing = gl.zeros([ROWS, acc.shape[1]], gl.float32, LAYOUT)
    for k in range(steps):
        slot = (step + k) % STAGES
        await_tile(full, step + k)
        part = _product(smem, slot, nothing, CID, C, True, True, False)
        # on their way while the tensor cores work
        by_a = scale_at(a_ptr + k * stride_ak, rows, end, stride_am, STEP_A)
        # a tile has columns of one block only
        factor = by_a * gl.load(b_ptr + k * stride_bk + column // 128 * stride_bn)
        part = warpgroup_mma_wait(0, deps=(part,))
        release_tile(empty, step + k)
        acc += part * gl.expand_dims(factor, 1)
    return acc


@gluon.jit
def _store(acc, out, stride, row, column, end, n, STORE: gl.constexpr, WIDE: gl.constexpr):
    """Store rows from `row` to `end` and columns from `column` to n."""
    # neighbouring lanes exchange columns, so that each stores 16 bytes
    values = gl.convert_layout(acc.to(out.dtype.element_ty), STORE)
    rows = gl.expand_dims(row + gl.arange(0, ROWS, gl.SliceLayout(1, STORE)), 1)
    columns = column + gl.arange(0, acc.shape[1], gl.SliceLayout(0, STORE))
    columns = gl.expand_dims(columns, 0)
    at = out + rows.to(gl.int64) * stride + columns
    inside = (rows < end) & (columns < n)
    if WIDE:
        # what the compiler knows of an argument does not reach the partitions of warps
        at = gl.max_contiguous(gl.multiple_of(at, [1, 16]), [1, 8])
        inside = gl.max_constancy(inside, [1, 8])
    gl.store(at, values, mask=inside)


@gluon.jit
def _consumer(
    args, CID: gl.constexpr, C: gl.constexpr, BM: gl.constexpr, BN: gl.constexpr,
    GROUP: gl.constexpr, EXPERTS: gl.constexpr, A_ALONG: gl.constexpr, B_ALONG: gl.constexpr,
    SCALING: gl.constexpr, STEP_A: gl.constexpr, STEP_B: gl.constexpr, BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr, INNER: gl.constexpr, STORE: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Compute rows 64 CID to 64 CID + 63 of each tile of this program."""
    smem, bars, sizes, counts, table, out, bias, scales, strides = args
    tiles, steps = counts
    n = sizes[1]
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, INNER])
    step = 0
    for turn in range(_turns(tiles)):
        number = _number(turn)
        if number < tiles:
            expert, batch, row, column, end = _locate(number, sizes, table, BM, BN, GROUP, EXPERTS)
            row += CID * ROWS
            if row < end:
                acc = gl.zeros([ROWS, BN], gl.float32, LAYOUT)
                if SCALING == "block":
                    acc = _promote(
                        smem, bars, acc, step, steps, scales, expert, row, column, end,
                        CID, C, STEP_A,
                    )  # fmt: skip
                else:
                    acc = _sums(smem, bars, acc, step, steps, CID, C, A_ALONG, B_ALONG)
                if SCALING == "outer":
                    rows = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))
                    columns = column + gl.arange(0, BN, gl.SliceLayout(0, LAYOUT))
                    by_a = scale_at(scales[0], rows, end, scales[2], STEP_A)
                    by_b = scale_at(scales[1] + expert * scales[4], columns, n, scales[6], STEP_B)
                    acc = acc * gl.expand_dims(by_a, 1) * gl.expand_dims(by_b, 0)
                if BIAS:
                    columns = column + gl.arange(0, BN, gl.SliceLayout(0, LAYOUT))
                    added = gl.load(bias + columns, mask=columns < n, other=0.0).to(gl.float32)
                    acc = acc + gl.expand_dims(added, 0)
                acc = activate(acc, ACTIVATION)
                _store(acc, out + batch.to(gl.int64) * strides[0], strides[1], row, column, end, n,
                       STORE, WIDE)  # fmt: skip
            else:
                for k in range(steps):
                    pass_tile(bars[0], bars[1], step + k)
            step += steps


_NUMBERS = (
    "m", "down", "right", "tiles", "steps", "stride_oz", "stride_sam", "stride_sak",
    "stride_sbz", "stride_sbk", "stride_sbn",
)  # fmt: skip


@gluon.jit(do_not_specialize=_NUMBERS)
def hopper_product(
    a_desc, b_desc, out, bias, scale_a, scale_b, table, m, n, down, right, tiles, steps, stride_oz,
    stride_om, stride_sam, stride_sak, stride_sbz, stride_sbk, stride_sbn,
    C: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, GROUP: gl.constexpr,
    REGISTERS: gl.constexpr, SPARE: gl.constexpr, A_ALONG: gl.constexpr, B_ALONG: gl.constexpr,
    A_BOX: gl.constexpr, B_BOX: gl.constexpr, EXPERTS: gl.constexpr, SCALING: gl.constexpr,
    STEP_A: gl.constexpr, STEP_B: gl.constexpr, BIAS: gl.constexpr, ACTIVATION: gl.constexpr,
    INNER: gl.constexpr, STORE: gl.constexpr, WIDE: gl.constexpr,
):  # fmt: skip
    BM: gl.constexpr = C * ROWS
    if EXPERTS:
        # after the lines that there may be is the number of those that are used
        down = gl.load(table + down * 3)
        tiles = down * right
    if A_ALONG:
        a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES * C, ROWS, BK], A_BOX)
    else:
        a_smem = gl.allocate_shared_memory(a_desc.dtype, [STAGES * C, BK, ROWS], A_BOX)
    if B_ALONG:
        b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BN, BK], B_BOX)
    else:
        b_smem = gl.allocate_shared_memory(b_desc.dtype, [STAGES, BK, BN], B_BOX)
    smem = (a_smem, b_smem)
    bars = barriers(STAGES, C)
    sizes = (m, n, down, right)
    counts = (tiles, steps)
    scales = (scale_a, scale_b, stride_sam, stride_sak, stride_sbz, stride_sbk, stride_sbn)
    args = (smem, bars, sizes, counts, table, out, bias, scales, (stride_oz, stride_om))
    loads = ((a_desc, b_desc), smem, bars, sizes, counts, table)
    if C == 2:
        gl.warp_specialize(
            [
                (_consumer, (args, 0, C, BM, BN, GROUP, EXPERTS, A_ALONG, B_ALONG, SCALING, STEP_A,
                             STEP_B, BIAS, ACTIVATION, INNER, STORE, WIDE)),
                (_consumer, (args, 1, C, BM, BN, GROUP, EXPERTS, A_ALONG, B_ALONG, SCALING, STEP_A,
                             STEP_B, BIAS, ACTIVATION, INNER, STORE, WIDE)),
                (_producer, (loads, C, BM, BN, BK, GROUP, EXPERTS, A_ALONG, B_ALONG)),
            ],
            [4, 1],
            [REGISTERS, SPARE],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consumer, (args, 0, C, BM, BN, GROUP, EXPERTS, A_ALONG, B_ALONG, SCALING, STEP_A,
                             STEP_B, BIAS, ACTIVATION, INNER, STORE, WIDE)),
                (_consumer, (args, 1, C, BM, BN, GROUP, EXPERTS, A_ALONG, B_ALONG, SCALING, STEP_A,
                             STEP_B, BIAS, ACTIVATION, INNER, STORE, WIDE)),
                (_consumer, (args, 2, C, BM, BN, GROUP, EXPERTS, A_ALONG, B_ALONG, SCALING, STEP_A,
                             STEP_B, BIAS, ACTIVATION, INNER, STORE, WIDE)),
                (_producer, (loads, C, BM, BN, BK, GROUP, EXPERTS, A_ALONG, B_ALONG)),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, SPARE],
        )  # fmt: skip
