"""The product of few vectors with a matrix in four bits, its own source, on an emulated GPU."""

from __future__ import annotations

import pytest
import torch

from gpudeck.accel.primitives.quantize.int4 import Int4, int4_quantize
from tests.emulation.hopper import PRODUCTS, Hopper
from tests.emulation.machine import Defect

BF16 = torch.bfloat16


def posed(rows: int, columns: int, group: int, count: int, dtype: torch.dtype = BF16):
    """Draw a matrix that begins at a multiple of 16 bytes, vectors, and a bias."""
    random = torch.Generator().manual_seed(rows + columns + count)
    weight = torch.randn(rows, columns, generator=random)
    x = torch.randn(count, columns, generator=random).to(dtype)
    return int4_quantize(weight, group), x, torch.randn(rows, generator=random)


def error(b: Int4, x: torch.Tensor, bias: torch.Tensor | None, cut: tuple[int, int], **changes):
    kernel = Hopper(package=PRODUCTS, **changes).module("int4_few")
    assert kernel.mismatch(b, x.dtype) is None
    out = kernel.few(x, b, bias, kernel.Cut(*cut))
    exact = x.double() @ b.dequantize(torch.float64).T
    if bias is not None:
        exact = exact + bias
    return float((out.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(
    ("rows", "columns", "group", "count", "cut", "dtype"),
    [
        (40, 1280, 128, 1, (16, 4), BF16),  # ten groups: the last part has one
        (35, 640, 64, 5, (16, 2), torch.float16),
        (33, 96, 32, 19, (32, 8), BF16),  # three groups for eight parts, two programs of vectors
        (16, 128, 128, 16, (16, 1), torch.float16),
    ],
)
def test_products(rows, columns, group, count, cut, dtype):
    b, x, bias = posed(rows, columns, group, count, dtype)
    bound = 2.0**-9 if dtype == BF16 else 2.0**-12
    assert error(b, x, bias, cut) < bound
    assert error(b, x, None, cut) < bound


def test_numbers_that_are_not_finite_stay_in_their_vector():
    b, x, _ = posed(16, 640, 64, 3)
    x[1, 7], x[2, 639] = torch.nan, torch.inf
    out = Hopper(package=PRODUCTS).module("int4_few").few(x, b)
    assert out[0].isfinite().all() and out[1].isnan().all()
    assert not out[2].isfinite().any()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_pair(words >> 8, LEAST", "_pair(words >> 9, LEAST"),
        (".permute((0, 1, 3, 4, 2, 5))", ".permute((0, 1, 3, 4, 2, 5))[:, :, :, [1, 0, 2, 3]]"),
        ("LESS: gl.constexpr = 0xC300", "LESS: gl.constexpr = 0xC301"),
        (".permute((0, 3, 5, 2, 4, 1))", ".permute((0, 5, 3, 2, 4, 1))"),
        ("mask=group < lefts[2], other=0.0)", "mask=group < lefts[2] + 1, other=0.0)"),
        ("gl.minimum(group, lefts[0] - 1)", "group"),
        ("_take(places, lefts, group + 2, WORDS)", "_take(places, lefts, group, WORDS)"),
        ("range(0, steps, 2)", "range(0, steps - 1, 2)"),
        ("gl.minimum(first + zero_row, rows - 1)", "gl.minimum(first + zero_row, rows - 2)"),
        ("there = (row < rows) & (vector < count)", "there = vector < count"),
    ],
    ids=["shift", "order", "zero", "order of x", "past the end", "address", "ahead", "odd", "row",
         "store"],
)  # fmt: skip
def test_planted_defects_are_caught(old, new):
    b, x, bias = posed(35, 11 * 128, 128, 3)
    changes = {"int4_few_kernels.py": (old, new)}
    with pytest.raises((Defect, AssertionError, RuntimeError)):
        assert error(b, x, bias, (16, 4), changes=changes) < 2.0**-9
