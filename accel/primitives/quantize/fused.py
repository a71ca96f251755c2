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
_BOTH_AMAX = {"ROWS": 32, "COLUMNS": 128, "STEPS": 8}
_ROW_COLUMNS = 4096
_TILE_ROWS = 32
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
    if granularity == "block":
        return _by_block(x, dtype, across)
    if granularity == "tile":
        return Rounded(_by_tile(x, dtype) if along else None, _across(x, dtype) if across else None)
    return _by_rows_and_columns(x, dtype) if across else Rounded(_by_row(x, dtype), None)


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
    out, _ = _targets(x, dtype, True, False)
    scales = x.new_empty(len(x), 1, dtype=torch.float32)
    columns = min(_ROW_COLUMNS, max(16, 1 << (x.shape[1] - 1).bit_length()))
    constants = {
        "ROWS": 1, "COLUMNS": columns, "STEPS": -(-x.shape[1] // columns),
        "LIMIT": torch.finfo(dtype).max,
    }  # fmt: skip
    tensors = {"x_ptr": x, "out_ptr": out, "scales_ptr": scales}
    launch(kernels.by_row, (len(x), 1, 1), tensors, _sizes(x), constants, x.device)
    assert out is not None
    return Fp8(out, scales, "row")


def _by_tile(x: Tensor, dtype: torch.dtype) -> Fp8:
    out, _ = _targets(x, dtype, True, False)
    scales = x.new_empty(-(-x.shape[1] // BLOCK), len(x), dtype=torch.float32).t()
    grid = (-(-len(x) // _TILE_ROWS), -(-x.shape[1] // BLOCK), 1)
    tensors = {"x_ptr": x, "out_ptr": out, "scales_ptr": scales}
    constants = {"ROWS": _TILE_ROWS, "BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.by_tile, grid, tensors, _sizes(x), constants, x.device)
    assert out is not None
    return Fp8(out, scales, "tile")


def _by_rows_and_columns(x: Tensor, dtype: torch.dtype) -> Rounded:
    """Return both with scales of their rows: one reading finds all, and a second one rounds."""
    out, turned = _targets(x, dtype, True, True)
    rows, columns = x.shape
    most = x.new_zeros(rows + columns, dtype=torch.float32)
    down, right = _BOTH_AMAX["ROWS"] * _BOTH_AMAX["STEPS"], _BOTH_AMAX["COLUMNS"]
    tensors: dict[str, Tensor | None] = {"x_ptr": x, "most_ptr": most}
    grid = (-(-rows // down), -(-columns // right), 1)
    launch(kernels.largest_both_ways, grid, tensors, _sizes(x), _BOTH_AMAX, x.device)
    scales = torch.empty_like(most)
    grid = (-(-rows // _BLOCKS["ROWS"]), -(-columns // _BLOCKS["COLUMNS"]), 1)
    tensors |= {"out_ptr": out, "across_ptr": turned, "scales_ptr": scales}
    constants = {**_BLOCKS, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.by_rows_and_columns, grid, tensors, _sizes(x), constants, x.device)
    assert out is not None and turned is not None
    of_rows, of_columns = scales[:rows, None], scales[rows:, None]
    return Rounded(Fp8(out, of_rows, "row"), Fp8(turned, of_columns, "row"))


def _across(x: Tensor, dtype: torch.dtype) -> Fp8:
    """Return the transpose with scales of its tiles."""
    _, out = _targets(x, dtype, False, True)
    rows, columns = x.shape
    scales = x.new_empty(-(-rows // BLOCK), columns, dtype=torch.float32).t()
    blocks = {"ROWS": BLOCK, "COLUMNS": 64}
    grid = (-(-rows // BLOCK), -(-columns // blocks["COLUMNS"]), 1)
    tensors = {"x_ptr": x, "out_ptr": out, "scales_ptr": scales}
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.across, grid, tensors, _sizes(x), constants, x.device)
    assert out is not None
    return Fp8(out, scales, "tile")


def _by_block(x: Tensor, dtype: torch.dtype, across: bool) -> Rounded:
    out, turned = _targets(x, dtype, True, across)
    grid = (-(-x.shape[0] // BLOCK), -(-x.shape[1] // BLOCK))
    scales = x.new_empty(grid, dtype=torch.float32)
    tensors = {"x_ptr": x, "out_ptr": out, "across_ptr": turned, "scales_ptr": scales}
    constants = {"BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    launch(kernels.by_block, (*grid, 1), tensors, _sizes(x), constants, x.device, _WARPS)
    assert out is not None
    return Rounded(
        Fp8(out, scales, "block"), None if turned is None else Fp8(turned, scales.t(), "block")
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
