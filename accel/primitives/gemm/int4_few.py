"""Launch the product of few vectors with a matrix in four bits."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl

from gpudeck.accel.primitives.gemm.int4_few_kernels import int4_few_product
from gpudeck.accel.primitives.quantize.int4 import Int4
from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare
from gpudeck.accel.runtime.refusals import refuse_older
from gpudeck.language.text import Text, joined, phrase

GROUPS = (32, 64, 128)
DTYPES = (torch.float16, torch.bfloat16)
MOST = 16
"""The vectors of a program; more are computed by more programs, which read all weights again."""
_OLDEST = (8, 0)
_THREADS_IN_ROW = 4
"""The threads of a warp that share a row of a left factor."""


class Cut(NamedTuple):
    """Hold how a matrix is cut into programs."""

    rows: int
    """Rows of a program, 16 or 32."""
    parts: int
    """Parts of k, which is the number of warps."""


def refusal(b: Int4, dtype: torch.dtype, device: torch.device) -> Text | None:
    """Return why the kernel cannot multiply with a matrix, or None."""
    return refuse_older(device, _OLDEST) or mismatch(b, dtype)


def mismatch(b: Int4, dtype: torch.dtype) -> Text | None:
    """Return why the kernel cannot multiply with a matrix on any GPU, or None."""
    if dtype not in DTYPES:
        return phrase("takes vectors of float16 and bfloat16")
    if b.group not in GROUPS:
        return phrase(
            "takes groups of {numbers} columns; these have {n}", numbers=joined(GROUPS), n=b.group
        )
    if b.packed.data_ptr() % ALIGNMENT or not b.packed.is_contiguous():
        return phrase("needs words that lie side by side at a multiple of 16 bytes")
    return None


def cut_of(rows: int, groups: int, count: int, processors: int) -> Cut:
    """Return how a matrix is cut for so many vectors, as an H200 measured it (results/int4.csv)."""
    tall, parts, warps = (32, 1, 5) if count > MOST // 2 else (16, 4, 8)
    # a warp needs some groups on their way, and a GPU enough warps
    while parts > 1 and groups < 2 * parts:
        parts //= 2
    while parts < 8 and -(-rows // tall) * parts < warps * processors and groups >= 4 * parts:
        parts *= 2
    return Cut(tall, parts)


def few(x: Tensor, b: Int4, bias: Tensor | None = None, cut: Cut | None = None) -> Tensor:
    """Return x [count, K] times the transposed matrix: [count, N] in the dtype of x."""
    rows, columns = b.shape
    groups = b.scales.shape[1]
    if cut is None:
        cut = cut_of(rows, groups, len(x), _processors(x.device))
    out = x.new_empty(len(x), rows)
    aligned = x.stride(0) % (ALIGNMENT // x.element_size()) == 0
    if x.stride(1) != 1 or not aligned or x.data_ptr() % ALIGNMENT:
        x = x.contiguous()
    given = (
        cut, len(x), rows, columns, groups, x.stride(0), x.dtype, b.scales.dtype,
        None if bias is None else bias.dtype, out.data_ptr() % ALIGNMENT == 0,
    )  # fmt: skip
    launch = _prepare(given, x.device)
    tensors = (b.packed.view(torch.int32), b.scales, b.zeros, bias, x, out)
    launch(*(t for t in tensors if t is not None))
    return out


@lru_cache(maxsize=4096)
def _prepare(given: tuple[Any, ...], device: torch.device) -> Any:
    """Return the launch of `call_of(*given)` on a device."""
    return prepare(call_of(*given), device)


def call_of(
    cut: Cut,
    count: int,
    rows: int,
    columns: int,
    groups: int,
    stride: int,
    dtype: torch.dtype,
    scales: torch.dtype = torch.float32,
    bias: torch.dtype | None = None,
    aligned: bool = True,
) -> KernelCall:
    """Return the launch for sizes, which compiles without a GPU."""
    each = columns // groups // 32
    vectors = 8 if count <= MOST // 2 else MOST
    arguments = {
        "weights": Pointer(torch.int32), "scales": Pointer(scales, False),
        "zeros": Pointer(torch.uint8, False), "x": Pointer(dtype), "out": Pointer(dtype, aligned),
        "bias": None if bias is None else Pointer(bias, False), "count": count, "rows": rows,
        "words": columns // 8, "groups": groups, "steps": -(-groups // cut.parts),
        "stride_x": stride,
    }  # fmt: skip
    constants = {
        "PARTS": cut.parts, "ROWS": cut.rows, "EACH": each, "COUNT": vectors,
        "WORDS_LAYOUT": _words(cut, each), "X_LAYOUT": _vectors(cut.parts, vectors, each),
        "LAYOUT": gl.NVMMADistributedLayout([2, 0], [cut.parts, 1, 1], [1, 16, 8]),
        "BIAS": bias is not None,
    }  # fmt: skip
    grid = (-(-rows // cut.rows), -(-count // vectors), 1)
    return KernelCall(int4_few_product, grid, arguments, constants, {"num_warps": cut.parts})


def _bits(size: int) -> list[int]:
    return [1 << i for i in range(size.bit_length() - 1)]


def _words(cut: Cut, each: int) -> gl.DistributedLinearLayout:
    """Return the layout of words [parts, rows, words]: that of a left factor's pairs."""
    return gl.DistributedLinearLayout(
        [*([0, 0, i] for i in _bits(each)), *([0, i, 0] for i in _bits(cut.rows) if i >= 8)],
        [[0, 0, each], [0, 0, 2 * each], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[i, 0, 0] for i in _bits(cut.parts)], [], [cut.parts, cut.rows, _THREADS_IN_ROW * each],
    )  # fmt: skip


def _vectors(parts: int, count: int, each: int) -> gl.DistributedLinearLayout:
    """Return the layout of vectors [parts, count, k]: that of a right factor's pairs."""
    return gl.DistributedLinearLayout(
        [*([0, 0, i] for i in _bits(8 * each)), *([0, i, 0] for i in _bits(count) if i >= 8)],
        [[0, 0, 8 * each], [0, 0, 16 * each], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[i, 0, 0] for i in _bits(parts)], [], [parts, count, 32 * each],
    )  # fmt: skip


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
