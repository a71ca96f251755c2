"""Launch products of one vector with a matrix in FP8 or int8; see `eight_bits_kernels`."""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental.gluon import language as gl

from gpudeck.accel.serving.eight_bits_kernels import (
    COLUMNS,
    EACH,
    ROWS,
    eight_bits_heads,
    eight_bits_one,
)
from gpudeck.accel.serving.launches import launch
from gpudeck.accel.serving.linear import FP8_BLOCK, Linear

MANY_ROWS = 65536
"""A matrix of more rows keeps a GPU busy with programs of fewer warps."""
LONG = 64
"""Groups of columns from which on a row is cut into more parts."""


_CAPABILITY = {"fp8": 89, "int8": 80}
"""The least for each format."""


def can(linear: Linear, capability: int) -> bool:
    """Return True if a matrix can be multiplied like this on a GPU of a compute capability."""
    least = _CAPABILITY.get(linear.format)
    return least is not None and capability >= least and linear.shape[1] % FP8_BLOCK == 0


def cut(rows: int, groups: int) -> int:
    """Return the parts of k, which is the number of warps of a program."""
    parts = 4 if rows > MANY_ROWS else 16 if groups > LONG else 8
    while parts > 1 and groups < 2 * parts:
        parts //= 2
    return parts


def launch_one(
    which: str, linear: Linear, given: dict[str, Any], constants: dict[str, object]
) -> None:
    """Launch a kernel, `one` or `heads`, with what both take, and what is given."""
    rows, depth = linear.shape
    groups = depth // FP8_BLOCK
    parts = cut(rows, groups)
    given |= {
        "weights": linear.values.view(torch.int32), "words": depth // 4, "groups": groups,
        "steps": -(-groups // parts),
    }  # fmt: skip
    constants |= {
        "PARTS": parts, "WORDS_LAYOUT": _words(parts), "X_LAYOUT": _columns(parts),
        "INT8": linear.format == "int8",
        "LAYOUT": gl.NVMMADistributedLayout([2, 0], [parts, 1, 1], [1, 16, 8]),
    }  # fmt: skip
    kernel = eight_bits_one if which == "one" else eight_bits_heads
    launch(kernel, (-(-rows // ROWS), 1, 1), given, constants, parts)


def _bits(size: int) -> list[int]:
    return [1 << i for i in range(size.bit_length() - 1)]


def _words(parts: int) -> gl.DistributedLinearLayout:
    """Return the layout of words [parts, rows, words]: that of a left factor's pairs."""
    return gl.DistributedLinearLayout(
        [*([0, 0, i] for i in _bits(EACH)), [0, 8, 0]],
        [[0, 0, EACH], [0, 0, 2 * EACH], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[i, 0, 0] for i in _bits(parts)], [], [parts, ROWS, 4 * EACH],
    )  # fmt: skip


def _columns(parts: int) -> gl.DistributedLinearLayout:
    """Return the layout of vectors [parts, columns, k]: that of a right factor's pairs."""
    each = 4 * EACH
    return gl.DistributedLinearLayout(
        [[0, 0, i] for i in _bits(each)],
        [[0, 0, each], [0, 0, 2 * each], [0, 1, 0], [0, 2, 0], [0, 4, 0]],
        [[i, 0, 0] for i in _bits(parts)], [], [parts, COLUMNS, 4 * each],
    )  # fmt: skip
