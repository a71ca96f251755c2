"""Run the kernels that round matrices to FP8.

`Rounded` holds a matrix, its transpose, or both: the backward pass of a linear layer needs each of
its operands along the other dimension, and one reading gives both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.primitives.quantize import fp8_kernels as kernels
from gpudeck.accel.primitives.quantize import launches
from gpudeck.accel.primitives.quantize.before import NOTHING, Before
from gpudeck.accel.primitives.quantize.fp8 import BLOCK, Fp8, Granularity
from gpudeck.accel.primitives.quantize.launches import Form
from gpudeck.accel.runtime.named import Launcher, is_traced, launch

_POINTS = {"ROWS": 16, "COLUMNS": 256}


class Rounded(NamedTuple):
    """Hold a matrix in FP8, and its transpose if that was wanted."""

    along: Fp8
    across: Fp8 | None


def quantize(
    x: Tensor, granularity: Granularity, dtype: torch.dtype, scale: Tensor | None = None
) -> Fp8:
    """Return a matrix in FP8."""
    return quantize_both_ways(x, granularity, dtype, scale, across=False).along


def quantize_both_ways(
    x: Tensor,
    granularity: Granularity,
    dtype: torch.dtype,
    scale: Tensor | None = None,
    *,
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
        across: whether the transpose is wanted.
        most: float32 with one element, raised to the largest finite magnitude of x, for the
            granularity tensor.
        before: what x passes through before it is rounded, with its statistics.
    """
    given = _Source(x, before)
    if granularity == "tensor":
        return _by_tensor(given, dtype, scale, across, most)
    if granularity == "block":
        return _by_block(given, dtype, across)
    if granularity == "tile":
        return Rounded(_by_tile(given, dtype), _across(given, dtype) if across else None)
    if across:
        return _by_rows_and_columns(given, dtype)
    return Rounded(_by_row(given, dtype), None)


def statistics(x: Tensor, centred: bool, eps: float) -> tuple[Tensor | None, Tensor]:
    """Return the means of rows, if they are to be centred, and the inverse deviations, float32."""
    rows, columns = x.shape
    mean = x.new_empty(rows, dtype=torch.float32) if centred else None
    rstd = x.new_empty(rows, dtype=torch.float32)
    numbers = {**launches.numbers(Form.of(x, NOTHING)), "eps": eps}
    tensors = {"x_ptr": x, "mean_ptr": mean, "rstd_ptr": rstd}
    launch(kernels.statistics, (rows, 1, 1), tensors, numbers, launches.of_rows(columns))
    return mean, rstd


def activation_gradient(before: Before, dout: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x from that of its activation; both are contiguous."""
    dx = torch.empty_like(x)
    rows, columns = dout.shape
    grid = (-(-rows // _POINTS["ROWS"]), -(-columns // _POINTS["COLUMNS"]), 1)
    tensors = {"dout_ptr": dout, "x_ptr": x, "dx_ptr": dx}
    numbers = {"row_count": rows, "column_count": columns}
    constants = {**_POINTS, "BEFORE": before.kind}
    launch(kernels.activation_gradient, grid, tensors, numbers, constants)
    return dx


class _Source:
    """Hold a matrix and what it passes through before it is rounded."""

    def __init__(self, x: Tensor, before: Before) -> None:
        self.x, self.form = x, Form.of(x, before)
        self._tensors = (x, before.mean, before.rstd, before.gain, before.shift)

    def launcher(self, made: Callable[..., Launcher], *given: object) -> Callable[..., None]:
        """Return what launches a kernel on the matrix and more tensors.

        `made` describes the launch for a form; that is kept, except where sizes are symbols.
        """
        of = made.__wrapped__ if is_traced(self.x) else made  # type: ignore[attr-defined]
        launcher: Launcher = of(self.form, *given)
        return lambda *tensors: launcher(*self._tensors, *tensors)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return memory for results."""
        return self.x.new_empty(shape, dtype=dtype)

    def targets(self, dtype: torch.dtype, across: bool) -> tuple[Tensor, Tensor | None]:
        """Return memory for the matrix in FP8, and for its transpose if that is wanted."""
        rows, columns = self.form.rows, self.form.columns
        turned = self.empty(columns, rows, dtype=dtype) if across else None
        return self.empty(rows, columns, dtype=dtype), turned


def _by_tensor(
    given: _Source,
    dtype: torch.dtype,
    scale: Tensor | None,
    across: bool,
    most: Tensor | None,
) -> Rounded:
    found = None
    if scale is None:
        found = given.x.new_zeros(1, dtype=torch.float32)
        given.launcher(launches.largest)(found)
        scale = given.empty(1, 1)
    else:
        scale = scale.reshape(1, 1)
    out, turned = given.targets(dtype, across)
    given.launcher(launches.tensor, dtype)(found, scale, most, out, turned)
    of_turned = None if turned is None else Fp8(turned, scale, "tensor")
    return Rounded(Fp8(out, scale, "tensor"), of_turned)


def _by_row(given: _Source, dtype: torch.dtype) -> Fp8:
    out, _ = given.targets(dtype, False)
    scales = given.empty(given.form.rows, 1)
    given.launcher(launches.row, dtype)(out, scales)
    return Fp8(out, scales, "row")


def _by_tile(given: _Source, dtype: torch.dtype) -> Fp8:
    out, _ = given.targets(dtype, False)
    scales = given.empty(-(-given.form.columns // BLOCK), given.form.rows).t()
    given.launcher(launches.tile, dtype)(out, scales)
    return Fp8(out, scales, "tile")


def _by_rows_and_columns(given: _Source, dtype: torch.dtype) -> Rounded:
    """Return both with scales of their rows: one reading finds all, and a second one rounds."""
    rows, columns = given.form.rows, given.form.columns
    most = given.x.new_zeros(rows + columns, dtype=torch.float32)
    given.launcher(launches.largest_both_ways)(most)
    out, turned = given.targets(dtype, True)
    of_rows, of_columns = given.empty(rows, 1), given.empty(columns, 1)
    given.launcher(launches.rows_and_columns, dtype)(most, out, of_rows, turned, of_columns)
    assert turned is not None
    return Rounded(Fp8(out, of_rows, "row"), Fp8(turned, of_columns, "row"))


def _across(given: _Source, dtype: torch.dtype) -> Fp8:
    """Return the transpose with scales of its tiles."""
    out = given.empty(given.form.columns, given.form.rows, dtype=dtype)
    scales = given.empty(-(-given.form.rows // BLOCK), given.form.columns).t()
    given.launcher(launches.tile_across, dtype)(out, scales)
    return Fp8(out, scales, "tile")


def _by_block(given: _Source, dtype: torch.dtype, across: bool) -> Rounded:
    out, turned = given.targets(dtype, across)
    scales = given.empty(-(-given.form.rows // BLOCK), -(-given.form.columns // BLOCK))
    given.launcher(launches.block, dtype)(out, turned, scales)
    return Rounded(
        Fp8(out, scales, "block"), None if turned is None else Fp8(turned, scales.t(), "block")
    )
