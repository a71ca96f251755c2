"""Launch the Hopper kernel of products: choose its tiles and describe its tensors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl

from gpudeck.accel.primitives.gemm.hopper_kernels import hopper_product
from gpudeck.accel.primitives.gemm.operands import Operands
from gpudeck.accel.primitives.gemm.problem import BLOCK, Problem
from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer, TensorBox
from gpudeck.accel.runtime.launch import prepare
from gpudeck.language.text import Text, phrase

DTYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
_GLUON = {
    torch.float16: gl.float16, torch.bfloat16: gl.bfloat16, torch.float8_e4m3fn: gl.float8e4nv
}  # fmt: skip
ROWS = 64
GROUP = 8
_LARGEST = 2**31 - 1


class Shape(NamedTuple):
    """Hold the tile sizes of the kernel."""

    consumers: int
    """Warpgroups of 64 rows."""
    columns: int
    stages: int
    registers: int
    """Of each thread of a consumer."""
    spare: int
    """Registers of the producer's threads."""
    registers_at_launch: int


LARGE = Shape(2, 256, 4, 240, 24, 168)
SMALL = Shape(2, 128, 6, 240, 24, 168)
TALL = Shape(3, 128, 5, 160, 32, 128)
RATES = {
    "none": {TALL: 1.0, LARGE: 0.97, SMALL: 0.95},
    "experts": {LARGE: 1.0, TALL: 0.95, SMALL: 0.965},
    "outer": {LARGE: 1.0, SMALL: 0.96},
    "block": {TALL: 1.0, SMALL: 0.85},
}
"""How fast each shape is where all tiles are full and every multiprocessor has as many, relative to
the fastest (tests/benchmarks/log/products.md). `experts` are products of experts without scales."""


class Layout(NamedTuple):
    """Hold what the kernel depends on of a matrix [batch, rows, columns]."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


def refusal(p: Problem) -> Text | None:
    """Return why the kernel cannot compute a problem, or None."""
    if p.capability != (9, 0):
        return phrase("needs compute capability {version}", version="9.0")
    if p.dtype not in DTYPES or p.out_dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return phrase("takes float16, bfloat16 and float8_e4m3fn")
    if not p.boxes:
        return phrase("needs addresses and strides that are multiples of 16 bytes")
    if p.dtype.itemsize == 1 and not (p.a_along and p.b_along):
        return phrase("needs rows of a, and columns of b, that lie side by side for FP8")
    if p.scaling == "block" and (p.steps.a not in (0, 1) or p.steps.b != BLOCK):
        return phrase("takes scales of 1x128 tiles of a, and of 128x128 blocks of b")
    if 0 in (p.batch, p.m, p.n, p.k) or p.batch * p.m * p.n > _LARGEST * BLOCK:
        return phrase("needs at least one element")
    return None


def shape_of(p: Problem, experts: int = 1) -> Shape:
    """Return the tile sizes of a problem, whose rows belong to so many experts."""
    processors = _processors(p.device)
    rates = RATES["experts" if experts > 1 and p.scaling == "none" else p.scaling]

    def expected(shape: Shape) -> float:
        right = -(-p.n // shape.columns)
        if experts > 1:
            # of each expert's last row of tiles a consumer is half full in the mean
            down = p.m / (shape.consumers * ROWS) + experts / (2 * shape.consumers)
            rounds = down * right / processors + 0.5
        else:
            down = -(-p.m // (shape.consumers * ROWS))
            rounds = math.ceil(down * right * p.batch / processors)
        full = shape.consumers * ROWS * shape.columns * rounds * processors
        return rates[shape] * p.batch * p.m * p.n / full

    return max(rates, key=expected)


def hopper(x: Operands) -> Tensor:
    """Return the result [batch, m, n]."""
    return with_shape(x, shape_of(x.problem))


def with_shape(x: Operands, shape: Shape) -> Tensor:
    """Compute a product with tiles of these sizes."""
    p = x.problem
    out = torch.empty(p.batch, p.m, p.n, dtype=p.out_dtype, device=p.device)
    run(x, out, shape, None, -(-p.m // (shape.consumers * ROWS)))
    return out


def run(x: Operands, out: Tensor, shape: Shape, table: Tensor | None, down: int) -> None:
    """Launch the kernel.

    Args:
        x: the operands; of experts, a is [1, rows, k] and b is [experts, k, n].
        out: the result.
        shape: the tile sizes.
        table: of experts: int32 [3 down + 1], the expert, first row and end of each row of tiles,
            and how many of them are used.
        down: rows of tiles.
    """
    p = x.problem
    scales = (x.scale_a, x.scale_b)
    strides = tuple((0, 0) if s is None else s.stride() for s in scales)
    launch = _prepare(
        p, Layout(tuple(x.a.shape), x.a.stride()), Layout(tuple(x.b.shape), x.b.stride()),
        strides, None if x.bias is None else x.bias.dtype, shape, table is not None, down,
        out.data_ptr() % ALIGNMENT == 0,
    )  # fmt: skip
    launch(x.a, x.b, out, *(t for t in (x.bias, *scales, table) if t is not None))


@lru_cache(maxsize=4096)
def _prepare(
    p: Problem,
    a: Layout,
    b: Layout,
    strides: tuple[tuple[int, ...], ...],
    bias: torch.dtype | None,
    shape: Shape,
    experts: bool,
    down: int,
    aligned: bool,
) -> Callable[..., None]:
    call = product_call(p, a, b, strides, bias, shape, experts, down, aligned)
    tiles = call.grid
    assert isinstance(tiles, int)
    return prepare(dataclasses.replace(call, grid=min(tiles, _processors(p.device))), p.device)


def product_call(
    p: Problem,
    a: Layout,
    b: Layout,
    strides: tuple[tuple[int, ...], ...],
    bias: torch.dtype | None,
    shape: Shape,
    experts: bool,
    down: int,
    aligned: bool = True,
) -> KernelCall:
    """Return the launch for a problem, with a grid of one program for each tile."""
    inner = BLOCK // p.dtype.itemsize
    right = -(-p.n // shape.columns)
    a_box = _box(a, p.dtype, ROWS, inner, along=p.a_along)
    b_box = _box(Layout((b.shape[0], b.shape[2], b.shape[1]),
                        (b.strides[0], b.strides[2], b.strides[1])),
                 p.dtype, shape.columns, inner, along=p.b_along)  # fmt: skip
    (sam, sak), (*sbz, sbk, sbn) = strides
    tiles = down * right * (1 if experts else p.batch)
    scale = None if p.scaling == "none" else Pointer(torch.float32, False)
    arguments = {
        "a_desc": a_box, "b_desc": b_box, "out": Pointer(p.out_dtype, aligned),
        "bias": None if bias is None else Pointer(bias, False), "scale_a": scale, "scale_b": scale,
        "table": Pointer(torch.int32, False) if experts else None,
        "m": p.m, "n": p.n, "down": down, "right": right, "tiles": tiles,
        "steps": -(-p.k // inner), "stride_oz": p.m * p.n, "stride_om": p.n, "stride_sam": sam,
        "stride_sak": sak, "stride_sbz": sum(sbz), "stride_sbk": sbk, "stride_sbn": sbn,
    }  # fmt: skip
    constants = {
        "C": shape.consumers, "BN": shape.columns, "BK": inner, "STAGES": shape.stages,
        "GROUP": GROUP, "REGISTERS": shape.registers, "SPARE": shape.spare,
        "A_ALONG": p.a_along, "B_ALONG": p.b_along,
        "A_BOX": _shared(a_box), "B_BOX": _shared(b_box),
        "EXPERTS": experts, "SCALING": p.scaling, "STEP_A": p.steps.a, "STEP_B": p.steps.b,
        "BIAS": bias is not None, "ACTIVATION": p.activation, "INNER": 32 // p.dtype.itemsize,
        "STORE": _store(shape.columns), "WIDE": aligned and p.n % 8 == 0,
    }  # fmt: skip
    options = {"num_warps": 4, "maxnreg": shape.registers_at_launch}
    return KernelCall(hopper_product, tiles, arguments, constants, options)


def _box(x: Layout, dtype: torch.dtype, rows: int, inner: int, *, along: bool) -> TensorBox:
    """Return the boxes of x [batch, rows, k], or of the matrix transposed if k is not along."""
    shape, strides, block = x.shape, x.strides, (1, rows, inner)
    if not along:
        shape, strides, block = (
            (shape[0], shape[2], shape[1]), (strides[0], strides[2], strides[1]), (1, inner, rows)
        )  # fmt: skip
    least = ALIGNMENT // dtype.itemsize
    # a dimension of one element may have any stride; the copy engine wants multiples of 16 bytes
    strides = tuple(
        1 if d == 2 else s if n > 1 else least * -(-shape[2] // least)
        for d, (n, s) in enumerate(zip(shape, strides, strict=True))
    )
    return TensorBox(dtype, tuple(shape), strides, block, _layout(block, dtype))


@cache
def _layout(block: tuple[int, ...], dtype: torch.dtype) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout.get_default_for(list(block), _GLUON[dtype])


def _shared(box: TensorBox) -> gl.NVMMASharedLayout:
    """Return the layout of a box without its dimension for batches."""
    return _layout(box.block[1:], box.dtype)


@cache
def _store(columns: int) -> gl.DistributedLinearLayout:
    """Return the layout of [64, columns] in which each lane has eight neighbouring columns.

    A warp has the same 16 rows as in the accumulator of a wgmma.
    """
    more = [[0, 1 << i] for i in range(5, columns.bit_length() - 1)]
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0], *more], [[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        [[16, 0], [32, 0]], [], [ROWS, columns],
    )  # fmt: skip


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
