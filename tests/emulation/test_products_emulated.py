"""The Hopper kernel of matrix products, its own source, on an emulated GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.grouped import row_tiles
from gpudeck.accel.primitives.gemm.operands import Operands, arrange
from gpudeck.accel.primitives.gemm.reference import reference
from gpudeck.accel.primitives.quantize.fp8 import emulate
from tests.emulation.hopper import PRODUCTS, Hopper
from tests.emulation.machine import Deadlock, Defect, Race

BF16 = torch.bfloat16


def posed(m: int, n: int, k: int, *, batch: int = 1, **rules: Any) -> Operands:
    """Draw operands; `rules` are those of `arrange`, and how a and b lie in memory."""
    random = torch.Generator().manual_seed(m + n + k)
    dtype, along = rules.pop("dtype", BF16), rules.pop("along", (True, True))

    def drawn(rows: int, columns: int, side_by_side: bool) -> Tensor:
        shape = (batch, rows, columns) if side_by_side else (batch, columns, rows)
        x = torch.randn(shape, generator=random).to(dtype)
        return x if side_by_side else x.mT

    a, b = drawn(m, k, along[0]), drawn(n, k, along[1]).mT
    bias = torch.randn(n, generator=random) if rules.pop("bias", False) else None
    x = arrange(a, b, bias, rules.get("activation"), rules.get("out_dtype"), None, None)
    return on_hopper(x)


def on_hopper(x: Operands) -> Operands:
    return replace(x, problem=replace(x.problem, capability=(9, 0)))


def in_fp8(m: int, n: int, k: int, of_a: Any, of_b: Any) -> Operands:
    random = torch.Generator().manual_seed(m + n + k)
    a = emulate(torch.randn(m, k, generator=random), of_a, torch.float8_e4m3fn)
    b = emulate(torch.randn(n, k, generator=random), of_b, torch.float8_e4m3fn).t
    return on_hopper(
        arrange(a.values, b.values, None, None, torch.float32, (a.scales, b.scales), None)
    )


def check(x: Operands, bound: float, shape: tuple[int, ...] | None = None, **machine: Any) -> None:
    kernel = Hopper(package=PRODUCTS, **machine).module("hopper")
    assert kernel.refusal(x.problem) is None
    out = kernel.with_shape(x, kernel.Shape(*shape) if shape else kernel.SMALL)
    exact = reference(x)
    error = float((out.double() - exact).norm() / exact.norm())
    assert error < bound, error


@pytest.mark.parametrize(
    ("sizes", "rules"),
    [
        ((200, 264, 136), {}),
        ((70, 40, 72), {"batch": 3, "bias": True, "activation": "silu"}),
        ((144, 136, 64), {"along": (False, True), "activation": "relu", "dtype": torch.float16}),
        ((136, 72, 200), {"along": (True, False), "bias": True, "activation": "gelu"}),
        ((200, 33, 128), {"out_dtype": torch.float32}),
    ],
    ids=["tiles", "batch", "a-transposed", "b-rows", "odd-columns"],
)
def test_products_of_16_bits(sizes, rules):
    """Sizes off the tiles, more tiles than multiprocessors."""
    check(posed(*sizes, **rules), 4e-3)


@pytest.mark.parametrize(
    ("of_a", "of_b"), [("tensor", "tensor"), ("row", "row"), ("tile", "block")]
)
def test_products_of_fp8(of_a, of_b):
    check(in_fp8(200, 144, 400, of_a, of_b), 1e-5)


def test_three_consumers():
    check(in_fp8(200, 144, 400, "tile", "block"), 1e-5, (3, 128, 3, 160, 32, 128))


@pytest.mark.parametrize("seed", range(4))
def test_a_consumer_without_rows(seed):
    """More tiles than multiprocessors, and last rows of tiles of which one consumer has none."""
    x = in_fp8(300, 400, 1104, "tile", "block")
    check(x, 1e-5, (3, 128, 2 + seed % 2, 160, 32, 128), seed=seed, processors=1 + seed % 2)


def test_experts_with_ragged_rows():
    """One without rows, one of a single row, and others off the tiles."""
    starts, experts = torch.tensor([0, 0, 130, 131, 200]), 4
    random = torch.Generator().manual_seed(3)
    a = torch.randn(200, 72, generator=random).to(BF16)
    b = torch.randn(experts, 136, 72, generator=random).to(BF16).mT
    x = on_hopper(arrange(a, b[0], None, None, None, None, None))
    kernel = Hopper(package=PRODUCTS).module("hopper")
    table = row_tiles(starts, 200, 128)
    out = torch.full((1, 200, 136), torch.nan, dtype=BF16)
    kernel.run(replace(x, b=b), out, kernel.SMALL, table, len(table) // 3)
    exact = torch.cat(
        [a[i:j].double() @ b[e].double() for e, (i, j) in enumerate(pairwise(starts.tolist()))]
    )
    assert float((out[0].double() - exact).norm() / exact.norm()) < 4e-3


@pytest.mark.emulation
@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events(seed):
    x = posed(64 * (1 + seed % 5) + seed, 8 * (5 + 7 * seed), 8 * (3 + 5 * seed))
    check(x, 4e-3, (2, 256, 2 + seed % 3, 240, 24, 168), seed=seed, processors=1 + seed % 4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # a slot is given back before its product has read it
        ("acc = warpgroup_mma_wait(1, deps=(acc,))", "acc = warpgroup_mma_wait(2, deps=(acc,))"),
        ("if k > 0:\n            release_tile(empty, step + k - 1)",
         "release_tile(empty, step + k)"),
        # the producer overwrites what a consumer still reads
        ("barriers(STAGES, C)", "barriers(STAGES, 1)"),
        # the last slot is never given back
        ("    release_tile(empty, step + steps - 1)\n", ""),
    ],
    ids=["wait", "slot", "count", "last"],
)  # fmt: skip
def test_planted_defects_are_caught(old, new):
    x = posed(200, 264, 600)
    with pytest.raises((Race, Deadlock, Defect, AssertionError)):
        for seed in range(4):
            check(x, 4e-3, seed=seed, changes={"hopper_kernels.py": (old, new)})
