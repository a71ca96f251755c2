"""Describe the launches of the kernels that round to FP8, by the form of their matrix.

They are kept, as those of a layer come back at every step.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.primitives.quantize import fp8_kernels as kernels
from gpudeck.accel.primitives.quantize.before import ACTIVATIONS, Before
from gpudeck.accel.primitives.quantize.fp8 import BLOCK
from gpudeck.accel.runtime.named import USUAL, Launcher

_BY_TENSOR = {"ROWS": 128, "COLUMNS": 64}
_BY_ROWS = {"ROWS": 64, "COLUMNS": 128}
_SMALL = {"ROWS": 64, "COLUMNS": 64}
"""Where an activation comes first, larger blocks are slower (tests/benchmarks/log/products.md);
where rows are transposed one by one, they would not fit in registers."""
_AMAX = {"ROWS": 16, "COLUMNS": 128, "STEPS": 8}
_BOTH_AMAX = {"ROWS": 32, "COLUMNS": 128, "STEPS": 8}
_ROW_COLUMNS = 4096
_TILE_ROWS = 32
_WARPS = {"num_warps": 8, "num_stages": 2}
_PACK = 4
_KEPT = 4096
"""Launches of each kernel that are kept."""


class Form(NamedTuple):
    """Describe a matrix as far as launches depend on it."""

    rows: int
    columns: int
    """Of what is rounded."""
    stride_row: int
    stride_column: int
    before: str

    @classmethod
    def of(cls, x: Tensor, before: Before) -> Form:
        """Return the form of a matrix and what it passes through."""
        down, right = x.stride()
        return cls(x.shape[0], before.columns(x), down, right, before.kind)


@lru_cache(_KEPT)
def largest(form: Form) -> Launcher:
    """Return the launch of `largest`."""
    right = _AMAX["COLUMNS"] * _AMAX["STEPS"]
    return _launcher(kernels.largest, form, (_AMAX["ROWS"], right), ("most_ptr",), _AMAX)


@lru_cache(_KEPT)
def tensor(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `by_tensor`."""
    blocks = _blocks(form, _BY_TENSOR)
    names = ("found_ptr", "scale_ptr", "most_ptr", "out_ptr", "across_ptr")
    return _rounding(kernels.by_tensor, form, dtype, names, blocks | _pack(form))


@lru_cache(_KEPT)
def row(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `by_row`."""
    blocks = {"ROWS": 1, **of_rows(form.columns)}
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    every = (1, form.columns)
    return _launcher(kernels.by_row, form, every, ("out_ptr", "scales_ptr"), constants)


@lru_cache(_KEPT)
def largest_both_ways(form: Form) -> Launcher:
    """Return the launch of `largest_both_ways`."""
    down = _BOTH_AMAX["ROWS"] * _BOTH_AMAX["STEPS"]
    tile = (down, _BOTH_AMAX["COLUMNS"])
    return _launcher(kernels.largest_both_ways, form, tile, ("most_ptr",), _BOTH_AMAX)


@lru_cache(_KEPT)
def rows_and_columns(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `by_rows_and_columns`."""
    blocks = _blocks(form, _BY_ROWS)
    names = ("most_ptr", "out_ptr", "scales_ptr", "across_ptr", "across_scales_ptr")
    return _rounding(kernels.by_rows_and_columns, form, dtype, names, blocks | _pack(form))


@lru_cache(_KEPT)
def tile(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `by_tile`."""
    constants = {"ROWS": _TILE_ROWS, "BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    tile = (_TILE_ROWS, BLOCK)
    return _launcher(kernels.by_tile, form, tile, ("out_ptr", "scales_ptr"), constants)


@lru_cache(_KEPT)
def tile_across(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `across`."""
    blocks = {"ROWS": BLOCK, "COLUMNS": 64, **_pack(form)}
    return _rounding(kernels.across, form, dtype, ("out_ptr", "scales_ptr"), blocks)


@lru_cache(_KEPT)
def block(form: Form, dtype: torch.dtype) -> Launcher:
    """Return the launch of `by_block`."""
    constants = {"BLOCK": BLOCK, "LIMIT": torch.finfo(dtype).max}
    names = ("out_ptr", "across_ptr", "scales_ptr")
    return _launcher(kernels.by_block, form, (BLOCK, BLOCK), names, constants, _WARPS)


def _rounding(
    kernel: Any, form: Form, dtype: torch.dtype, names: tuple[str, ...], blocks: dict[str, int]
) -> Launcher:
    constants = {**blocks, "LIMIT": torch.finfo(dtype).max}
    return _launcher(kernel, form, (blocks["ROWS"], blocks["COLUMNS"]), names, constants)


def _launcher(
    kernel: Any,
    form: Form,
    tile: tuple[int, int],
    names: tuple[str, ...],
    constants: dict[str, Any],
    options: dict[str, int] = USUAL,
) -> Launcher:
    """Describe the launch of a kernel that reads by `fp8_kernels.load`, with a program for each
    tile."""
    grid = (-(-form.rows // tile[0]), -(-form.columns // tile[1]), 1)
    first = ("x_ptr", "mean_ptr", "rstd_ptr", "gain_ptr", "shift_ptr")
    known = {**constants, "BEFORE": form.before}
    return Launcher(kernel, grid, (*first, *names), numbers(form), known, options)


def _blocks(form: Form, plain: dict[str, int]) -> dict[str, int]:
    """Return the block of a program that rounds both ways; `plain` where that is fast."""
    return _SMALL if form.before in ACTIVATIONS or form.rows % _PACK else plain


def _pack(form: Form) -> dict[str, int]:
    """Return how many rows are transposed as one word."""
    return {"PACK": 1 if form.rows % _PACK else _PACK}


def of_rows(columns: int) -> dict[str, int]:
    """Return how a program reads a whole row of so many columns."""
    width = min(_ROW_COLUMNS, max(16, 1 << (columns - 1).bit_length()))
    return {"COLUMNS": width, "STEPS": -(-columns // width)}


def numbers(form: Form) -> dict[str, float]:
    """Return the numbers that every kernel takes."""
    return {
        "row_count": form.rows, "column_count": form.columns,
        "stride_row": form.stride_row, "stride_column": form.stride_column,
    }  # fmt: skip
