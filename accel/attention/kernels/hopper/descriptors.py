# mypy: disable-error-code="no-untyped-def"
"""Describe strided 4-D tensors for the copy engine (TMA), which cuts boxes at the end of a
sequence.

A box is `rows` rows of one head of one sequence, `tile_dim` elements wide. Elements past the end of
the sequence or of the head size are read as zeros and never written. Kernels therefore need not
handle a neighbour's NaN or padding, and head sizes below `tile_dim` need no padded copy.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from gpudeck.accel.attention.inputs import ALIGNMENT, are_rows_aligned
from gpudeck.accel.attention.kernels.geometry import Layout
from gpudeck.accel.runtime.call import TensorBox
from gpudeck.accel.runtime.gluon import tma_load, tma_store

ROWS_AT_MOST = 1 << 30
"""The rows that a ragged tensor may have: where `box` has its sequences end."""
FAR = 0x7FFF0000
LIMIT = gl.constexpr(ROWS_AT_MOST)


@cache
def layout(rows: int, tile_dim: int, dtype: torch.dtype, *, rank: int) -> gl.NVMMASharedLayout:
    """Return the swizzled layout in shared memory of a box of `rows` x `tile_dim`.

    `rank` is 4 or 5 for descriptors, 2 for buffers.
    """
    kind = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}.get(dtype, gl.float8e4nv)
    return gl.NVMMASharedLayout.get_default_for([1] * (rank - 2) + [rows, tile_dim], kind)


def describe(x: Layout, dtype: torch.dtype, rows: int, tile_dim: int, *, ragged: bool) -> TensorBox:
    """Return the boxes of a tensor [B,H,S,D] with D <= `tile_dim`.

    It is float16, bfloat16 or E4M3, not empty, with last stride 1; base and other strides are
    multiples of 16 bytes. With `ragged`, x is [1,H,T,D] and each of its sequences gets its own
    end, though the hardware knows only one bound per dimension: rows count up to a far end at
    2**30, where two more dimensions place the sequence, one that adds the row after the
    sequence and one that subtracts 2**30 rows, as addresses wrap around at 2**64 bytes.

    Source: triton.tools.ragged_tma.
    """
    batch, heads, length, dim = x.shape
    by_batch, by_head, by_row = (
        stride if size > 1 else ALIGNMENT // dtype.itemsize
        for size, stride in zip(x.shape[:3], x.strides, strict=False)
    )
    shape: tuple[int, ...] = (batch, heads, length, dim)
    block: tuple[int, ...] = (1, 1, rows, tile_dim)
    strides: tuple[int, ...] = (by_batch, by_head, by_row, 1)
    if ragged:
        shape, block = (FAR, FAR, heads, ROWS_AT_MOST, dim), (1, *block)
        strides = ((1 << 34) - by_row, by_row, by_head, by_row, 1)
    return TensorBox(dtype, shape, strides, block, layout(rows, tile_dim, dtype, rank=len(block)))


def fits(x: Tensor) -> bool:
    """Return whether boxes of x [B,H,S,D] can be described without a copy.

    The elements of each row lie side by side, and rows begin at multiples of 16 bytes.
    """
    aligned = x.data_ptr() % ALIGNMENT == 0
    rows = x.stride(-1) == 1 or x.shape[-1] <= 1
    return rows and aligned and are_rows_aligned(x.shape, x.stride(), x.element_size())


@gluon.jit
def load_rows(
    desc, sequence, head, row, start, length, barrier, shared, RAGGED: gl.constexpr,
    COLUMN: gl.constexpr = 0,
):  # fmt: skip
    """Load the box whose first row is `row` of the sequence at `start` with `length` rows (used
    if ragged), from an element of the head on.
    """
    if RAGGED:
        tma_load(desc, [LIMIT, start + length, head, LIMIT - length + row, COLUMN], barrier, shared)
    else:
        tma_load(desc, [sequence, head, row, COLUMN], barrier, shared)


@gluon.jit
def store_rows(
    desc, sequence, head, row, start, length, shared, RAGGED: gl.constexpr,
    COLUMN: gl.constexpr = 0,
):  # fmt: skip
    """Store the box whose first row is `row`, up to the sequence's end, from an element of the head
    on; `tma.store_wait` waits for it.
    """
    if RAGGED:
        tma_store(desc, [LIMIT, start + length, head, LIMIT - length + row, COLUMN], shared)
    else:
        tma_store(desc, [sequence, head, row, COLUMN], shared)
