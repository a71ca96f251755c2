"""Run the kernels that round matrices to FP8.

`Rounded` holds a matrix, its transpose, or both: the backward pass of a linear layer needs each of
its operands along the other dimension, and one reading gives both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from accel.primitives.quantize import fp8_kernels as kernels
from accel.primitives.quantize.before import ACTIVATIONS, NOTHING, Before
from accel.primitives.quantize.fp8 import BLOCK, Fp8, Granularity, scale_of
from accel.runtime.named import USUAL, launch

_BY_TENSOR = {"ROWS": 128, "COLUMNS": 64}
_BY_ROWS = {"ROWS": 64, "COLUMNS": 128}
_ACTIVATED = {"ROWS": 64, "COLUMNS": 64}
"""Where an activation comes first, larger blocks are slower (tests/benchmarks/LOG.md)."""
_AMAX = {"ROWS": 16, "COLUMNS": 128, "STEPS": 8}
_BOTH_AMAX = {"ROWS": 32, "COLUMNS": 128, "STEPS": 8}
_POINTS = {"ROWS": 16, "COLUMNS": 256}
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
    before: Before = NOTHING,
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
        before: what x passes through before it is rounded, with its statistics.
    """
    given = _Source(x, before)
    if granularity == "tensor":
        return _by_tensor(given, dtype, scale, along, across, most)
    if granularity == "block":
        return _by_block(given, dtype, across)
    if granularity == "tile":
        return Rounded(
            _by_tile(given, dtype) if along else None, _across(given, dtype) if across else None
        )
    if across:
        return _by_rows_and_columns(given, dtype)
    return Rounded(_by_row(given, dtype), None)


def amax(x: Tensor, before: Before = NOTHING) -> Tensor:
    """Return the largest finite magnitude of a matrix on a GPU, float32 [1]."""
    given = _Source(x, before)
    most = x.new_zeros(1, dtype=torch.float32)
    right = _AMAX["COLUMNS"] * _AMAX["STEPS"]
    grid = (-(-given.rows // _AMAX["ROWS"]), -(-given.columns // right), 1)
    given.launch(kernels.largest, grid, {"most_ptr": most}, _AMAX)
    return most


def statistics(x: Tensor, centred: bool, eps: float) -> tuple[Tensor | None, Tensor]:
    """Return the means of rows, if they are to be centred, and the inverse deviations, float32."""
    rows, columns = x.shape
    mean = x.new_empty(rows, dtype=torch.float32) if centred else None
    rstd = x.new_empty(rows, dtype=torch.float32)
    numbers = {**_sizes(x, columns), "eps": eps}
    tensors = {"x_ptr": x, "mean_ptr": mean, "rstd_ptr": rstd}
    launch(kernels.statistics, (rows, 1, 1), tensors, numbers, _of_rows(columns), x.device)
    return mean, rstd


def activation_gradient(before: Before, dout: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x from that of its activation; both are contiguous."""
    dx = torch.empty_like(x)
    rows, columns = dout.shape
    grid = (-(-rows // _POINTS["ROWS"]), -(-columns // _POINTS["COLUMNS"]), 1)
    tensors = {"dout_ptr": dout, "x_ptr": x, "dx_ptr": dx}
    numbers = {"row_count": rows, "column_count": columns}
    constants = {**_POINTS, "BEFORE": before.kind}
    launch(kernels.activation_gradient, grid, tensors, numbers, constants, x.device)
    return dx


class _Source:
    """Hold a matrix and what it passes through before it is rounded."""

    def __init__(self, x: Tensor, before: Before) -> None:
        self.x, self.before = x, before
        self.rows, self.columns = x.shape[0], before.columns(x)
        self._tensors: dict[str, Tensor | None] = {
            "x_ptr": x, "mean_ptr": before.mean, "rstd_ptr": before.rstd,
            "gain_ptr": before.gain, "shift_ptr": before.shift,
        }  # fmt: skip

    def blocks(self, plain: dict[str, int]) -> dict[str, int]:
        """Return the block of a program that rounds both ways; `plain` without an activation."""
        return _ACTIVATED if self.before.kind in ACTIVATIONS else plain

    def launch(
        self,
        kernel: object,
        grid: tuple[int, int, int],
        tensors: dict[str, Tensor | None],
        constants: Mapping[str, object],
        options: Mapping[str, int] = USUAL,
    ) -> None:
        """Launch a kernel that reads the matrix by `fp8_kernels.load`."""
        launch(
            kernel, grid, self._tensors | tensors, _sizes(self.x, self.columns),
            {**constants, "BEFORE": self.before.kind}, self.x.device, options,
        )  # fmt: skip


def _by_tensor(
    given: _Source,
    dtype: torch.dtype,
    scale: Tensor | None,
    along: bool,
    across: bool,
    most: Tensor | None,
) -> Rounded:
    if scale is None:
        scale = scale_of(amax(given.x, given.before), dtype)
    scale = scale.reshape(1, 1)
    out, turned = _targets(given, dtype, along, across)
    blocks = given.blocks(_BY_TENSOR)
    grid = (-(-given.rows // blocks["ROWS"]), -(-given.columns // blocks["COLUMNS"]), 1)
    tensors = {"scale_ptr": scale, "most_ptr": most, "out_ptr": out, "across_ptr": turned}
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    given.launch(kernels.by_tensor, grid, tensors, constants)
    return Rounded(
        None if out is None else Fp8(out, scale, "tensor"),
        None if turned is None else Fp8(turned, scale, "tensor"),
    )


def _by_row(given: _Source, dtype: torch.dtype) -> Fp8:
    out, _ = _targets(given, dtype, True, False)
    scales = given.x.new_empty(given.rows, 1, dtype=torch.float32)
    constants = {"ROWS": 1, **_of_rows(given.columns), "LIMIT": torch.finfo(dtype).max}
    tensors = {"out_ptr": out, "scales_ptr": scales}
    given.launch(kernels.by_row, (given.rows, 1, 1), tensors, constants)
    assert out is not None
    return Fp8(out, scales, "row")


def _by_tile(given: _Source, dtype: torch.dtype) -> Fp8:
    out, _ = _targets(given, dtype, True, False)
    blocks = -(-given.columns // BLOCK)
    scales = given.x.new_empty(blocks, given.rows, dtype=torch.float32).t()
    grid = (-(-given.rows // _TILE_ROWS), blocks, 1)
    tensors = {"out_ptr": out, "scales_ptr": scales}
    constants = {"ROWS": _TILE_ROWS, "BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    given.launch(kernels.by_tile, grid, tensors, constants)
    assert out is not None
    return Fp8(out, scales, "tile")


def _by_rows_and_columns(given: _Source, dtype: torch.dtype) -> Rounded:
    """Return both with scales of their rows: one reading finds all, and a second one rounds."""
    out, turned = _targets(given, dtype, True, True)
    rows, columns = given.rows, given.columns
    most = given.x.new_zeros(rows + columns, dtype=torch.float32)
    down, right = _BOTH_AMAX["ROWS"] * _BOTH_AMAX["STEPS"], _BOTH_AMAX["COLUMNS"]
    tensors: dict[str, Tensor | None] = {"most_ptr": most}
    grid = (-(-rows // down), -(-columns // right), 1)
    given.launch(kernels.largest_both_ways, grid, tensors, _BOTH_AMAX)
    scales = torch.empty_like(most)
    blocks = given.blocks(_BY_ROWS)
    grid = (-(-rows // blocks["ROWS"]), -(-columns // blocks["COLUMNS"]), 1)
    tensors |= {"out_ptr": out, "across_ptr": turned, "scales_ptr": scales}
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    given.launch(kernels.by_rows_and_columns, grid, tensors, constants)
    assert out is not None and turned is not None
    of_rows, of_columns = scales[:rows, None], scales[rows:, None]
    return Rounded(Fp8(out, of_rows, "row"), Fp8(turned, of_columns, "row"))


def _across(given: _Source, dtype: torch.dtype) -> Fp8:
    """Return the transpose with scales of its tiles."""
    _, out = _targets(given, dtype, False, True)
    down = -(-given.rows // BLOCK)
    scales = given.x.new_empty(down, given.columns, dtype=torch.float32).t()
    blocks = {"ROWS": BLOCK, "COLUMNS": 64}
    grid = (down, -(-given.columns // blocks["COLUMNS"]), 1)
    tensors = {"out_ptr": out, "scales_ptr": scales}
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    given.launch(kernels.across, grid, tensors, constants)
    assert out is not None
    return Fp8(out, scales, "tile")


def _by_block(given: _Source, dtype: torch.dtype, across: bool) -> Rounded:
    out, turned = _targets(given, dtype, True, across)
    grid = (-(-given.rows // BLOCK), -(-given.columns // BLOCK))
    scales = given.x.new_empty(grid, dtype=torch.float32)
    tensors = {"out_ptr": out, "across_ptr": turned, "scales_ptr": scales}
    constants = {"BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    given.launch(kernels.by_block, (*grid, 1), tensors, constants, _WARPS)
    assert out is not None
    return Rounded(
        Fp8(out, scales, "block"), None if turned is None else Fp8(turned, scales.t(), "block")
    )


def _targets(
    given: _Source, dtype: torch.dtype, along: bool, across: bool
) -> tuple[Tensor | None, Tensor | None]:
    rows, columns = given.rows, given.columns
    return (
        given.x.new_empty(rows, columns, dtype=dtype) if along else None,
        given.x.new_empty(columns, rows, dtype=dtype) if across else None,
    )


def _of_rows(columns: int) -> dict[str, int]:
    """Return how a program reads a whole row of so many columns."""
    width = min(_ROW_COLUMNS, max(16, 1 << (columns - 1).bit_length()))
    return {"COLUMNS": width, "STEPS": -(-columns // width)}


def _sizes(x: Tensor, columns: int) -> dict[str, float]:
    return {
        "row_count": x.shape[0], "column_count": columns,
        "stride_row": x.stride(0), "stride_column": x.stride(1),
    }  # fmt: skip
