"""Run the kernels that round matrices to FP8.

`Rounded` holds a matrix, its transpose, or both: the backward pass of a linear layer needs each of
its operands along the other dimension, and one reading gives both.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from accel.primitives.quantize import fp8_kernels as kernels
from accel.primitives.quantize.fp8 import BLOCK, Fp8, Granularity, scale_of
from accel.runtime.named import launch

_BLOCKS = {"ROWS": 64, "COLUMNS": 64}
_AMAX = {"ROWS": 16, "COLUMNS": 128, "STEPS": 8}
_ROW = {"ROWS": 1, "COLUMNS": 4096}
_WARPS = {"num_warps": 8, "num_stages": 2}


class Rounded(NamedTuple):
    """Hold a matrix in FP8 and its transpose; None for what was not wanted."""

    along: Fp8 | None
    across: Fp8 | None


def quantized(
    x: Tensor, granularity: Granularity, dtype: torch.dtype, scale: Tensor | None = None
) -> Fp8:
    """Return a matrix in FP8."""
    found = both_ways(x, granularity, dtype, scale, across=False).along
    assert found is not None
    return found


def both_ways(
    x: Tensor,
    granularity: Granularity,
    dtype: torch.dtype,
    scale: Tensor | None = None,
    *,
    along: bool = True,
    across: bool = True,
    most: Tensor | None = None,
) -> Rounded:
    """Return a matrix in FP8 and its transpose.

    Args:
        x: [rows, columns] on a GPU.
        granularity: what shares a scale. Rows of the transpose are columns of x.
        dtype: one of FP8's.
        scale: the known scale of a tensor; None computes it in a pass before.
        along, across: whether the matrix, and its transpose, are wanted.
        most: float32 with one element, raised to the largest finite magnitude of x if `scale` is
            known.
    """
    if granularity == "tensor":
        return _by_tensor(x, dtype, scale, along, across, most)
    if granularity == "row":
        return Rounded(
            _by_row(x, dtype) if along else None, _by_row(x.t(), dtype) if across else None
        )
    return _by_tile(x, dtype, granularity == "block", along, across)


def amax(x: Tensor) -> Tensor:
    """Return the largest finite magnitude of a matrix on a GPU, float32 [1]."""
    most = x.new_zeros(1, dtype=torch.float32)
    grid = (-(-x.shape[0] // _AMAX["ROWS"]), -(-x.shape[1] // (_AMAX["COLUMNS"] * _AMAX["STEPS"])))
    launch(kernels.largest, (*grid, 1), {"x_ptr": x, "most_ptr": most}, _sizes(x), _AMAX, x.device)
    return most


def _by_tensor(
    x: Tensor,
    dtype: torch.dtype,
    scale: Tensor | None,
    along: bool,
    across: bool,
    most: Tensor | None,
) -> Rounded:
    if scale is None:
        scale = scale_of(amax(x), dtype)
    scale = scale.reshape(1, 1)
    out, turned = _targets(x, dtype, along, across)
    grid = (-(-x.shape[0] // _BLOCKS["ROWS"]), -(-x.shape[1] // _BLOCKS["COLUMNS"]), 1)
    tensors = {
        "x_ptr": x, "scale_ptr": scale, "most_ptr": most, "out_ptr": out, "across_ptr": turned
    }  # fmt: skip
    constants = {**_BLOCKS, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.by_tensor, grid, tensors, _sizes(x), constants, x.device)
    return Rounded(
        None if out is None else Fp8(out, scale, "tensor"),
        None if turned is None else Fp8(turned, scale, "tensor"),
    )


def _by_row(x: Tensor, dtype: torch.dtype) -> Fp8:
    out = torch.empty(x.shape, dtype=dtype, device=x.device)
    scales = x.new_empty(len(x), 1, dtype=torch.float32)
    along = x.stride(1) == 1
    columns = min(_ROW["COLUMNS"], max(16, 1 << (x.shape[1] - 1).bit_length())) if along else 64
    rows = 1 if along else 64
    constants = {
        "ROWS": rows, "COLUMNS": columns, "STEPS": -(-x.shape[1] // columns),
        "LIMIT": torch.finfo(dtype).max,
    }  # fmt: skip
    tensors = {"x_ptr": x, "out_ptr": out, "scales_ptr": scales}
    launch(kernels.by_row, (-(-len(x) // rows), 1, 1), tensors, _sizes(x), constants, x.device)
    return Fp8(out, scales, "row")


def _by_tile(x: Tensor, dtype: torch.dtype, square: bool, along: bool, across: bool) -> Rounded:
    out, turned = _targets(x, dtype, along or square, across)
    grid = (-(-x.shape[0] // BLOCK), -(-x.shape[1] // BLOCK))
    if square:
        scales = x.new_empty(grid, dtype=torch.float32)
        turned_scales = scales.t()
    else:
        scales = x.new_empty(grid[1], len(x), dtype=torch.float32).t()
        turned_scales = x.new_empty(grid[0], x.shape[1], dtype=torch.float32).t()
    tensors = {
        "x_ptr": x, "out_ptr": out, "scales_ptr": scales, "across_ptr": turned,
        "across_scales_ptr": None if turned is None or square else turned_scales,
    }  # fmt: skip
    constants = {"BLOCK": BLOCK, "SQUARE": square, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.by_tile, (*grid, 1), tensors, _sizes(x), constants, x.device, _WARPS)
    kind: Granularity = "block" if square else "tile"
    return Rounded(
        None if out is None else Fp8(out, scales, kind),
        None if turned is None else Fp8(turned, turned_scales, kind),
    )


def _targets(
    x: Tensor, dtype: torch.dtype, along: bool, across: bool
) -> tuple[Tensor | None, Tensor | None]:
    rows, columns = x.shape
    return (
        x.new_empty(rows, columns, dtype=dtype) if along else None,
        x.new_empty(columns, rows, dtype=dtype) if across else None,
    )


def _sizes(x: Tensor) -> dict[str, int]:
    return {
        "row_count": x.shape[0], "column_count": x.shape[1],
        "stride_row": x.stride(0), "stride_column": x.stride(1),
    }  # fmt: skip
