"""Matrix products in torch and by the Triton kernels (interpreted), against float64."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from gpudeck import accel
from gpudeck.accel.primitives.gemm import dispatch, fp4, grouped, portable, table
from gpudeck.accel.primitives.gemm.api import explain_gemm, gemm
from gpudeck.accel.primitives.gemm.dispatch import choose
from gpudeck.accel.primitives.gemm.low_precision import OF_A, OF_B, fp4_backend
from gpudeck.accel.primitives.gemm.operands import arrange
from gpudeck.accel.primitives.gemm.problem import Problem, Steps
from gpudeck.accel.primitives.gemm.reference import reference
from gpudeck.accel.primitives.quantize.fp8 import fp8_quantize
from gpudeck.accel.runtime.call import compile_kernel
from tests.kernel_code import launched
from tests.unit.accel.compiled import FP4_TARGETS, SHARED_KIB, TARGETS, needs

E4M3 = torch.float8_e4m3fn


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    random = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=random).to(dtype)


def distance(got: Tensor, exact: Tensor) -> float:
    return float((got.double() - exact).norm() / exact.norm())


def exact_of(a: Tensor, b: Tensor, **rules: Any) -> Tensor:
    names = ("bias", "activation", "out_dtype", "scales", "tile_size")
    x = arrange(a, b, *(rules.get(name) for name in names))
    return reference(x).reshape(x.shape)


@pytest.mark.parametrize("activation", [None, "relu", "silu", "gelu"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((4, 1, 3, 5), (2, 5, 1)),
        ((1, 5), (5, 1)), ((0, 5), (5, 3)), ((3, 0), (0, 2)),
    ],
)  # fmt: skip
def test_shapes_are_those_of_matmul(a, b, activation):
    x, y, bias = drawn(*a), drawn(*b), drawn(b[-1])
    got = gemm(x, y, bias=bias, activation=activation)
    expected = exact_of(x, y, bias=bias, activation=activation)
    assert got.shape == torch.matmul(x, y).shape
    assert got.shape == expected.shape
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_transposed_and_strided_operands_give_the_same():
    a, b = drawn(33, 70), drawn(70, 21)
    expected = gemm(a, b)
    torch.testing.assert_close(gemm(a.t().contiguous().t(), b.t().contiguous().t()), expected)
    wide = torch.full((33, 200), torch.nan)
    wide[:, 10:150:2] = a
    torch.testing.assert_close(gemm(wide[:, 10:150:2], b), expected)


@pytest.mark.parametrize("shapes", [((3, 4, 6), (6, 5)), ((3, 4, 6), (1, 6, 5)), ((4, 6), (6, 5))])
def test_gradients_are_those_of_the_definition(shapes):
    leaves = [drawn(*s).double().requires_grad_() for s in (*shapes, (5,))]
    a, b, bias = leaves
    weights = drawn(*torch.matmul(a, b).shape).double()
    got = torch.autograd.grad((gemm(a, b, bias=bias, activation="silu") * weights).sum(), leaves)
    plain = torch.nn.functional.silu(torch.matmul(a, b) + bias)
    expected = torch.autograd.grad((plain * weights).sum(), leaves)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("recipe", ["tensor", "row", "block"])
def test_fp8_products_multiply_what_was_rounded(recipe):
    a, b = drawn(70, 300), drawn(300, 140)
    left, right = fp8_quantize(a, OF_A[recipe]), fp8_quantize(b.t(), OF_B[recipe]).t
    got = accel.fp8_gemm(a, b, recipe=recipe, out_dtype=torch.float32)
    rounded = left.dequantize().double() @ right.dequantize().double()
    assert distance(got, rounded) < 1e-6
    assert 1e-3 < distance(got, a.double() @ b.double()) < 0.05
    assert torch.equal(got, accel.fp8_gemm(left, right, out_dtype=torch.float32))
    bias = drawn(140)
    beside = accel.fp8_gemm(left, right, out_dtype=torch.float32, bias=bias, activation="relu")
    torch.testing.assert_close(beside, (got + bias).relu())


def test_scales_of_blocks_keep_a_small_block_beside_a_large_one():
    """The reason for blocks: one scale for all would round the small ones to zero."""
    a, b = drawn(16, 512), drawn(512, 16)
    a[:, :128] *= 1e5
    b[:128] *= 1e-5
    exact = a.double() @ b.double()
    errors = {
        recipe: distance(accel.fp8_gemm(a, b, recipe=recipe, out_dtype=torch.float32), exact)
        for recipe in ("tensor", "block")
    }
    assert errors["block"] < 0.05 < 0.4 < errors["tensor"]


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp4"])
def test_fp4_products_multiply_what_was_rounded(kind):
    a, b = drawn(20, 70) * 1e-3, drawn(30, 70) * 1e4
    left, right = (accel.fp4_quantize(x, kind) for x in (a, b))
    rounded = left.dequantize().double() @ right.dequantize().double().t()
    got = accel.fp4_gemm(a, b, format=kind, out_dtype=torch.float32)
    assert distance(got, rounded) < 1e-6
    assert distance(got, a.double() @ b.double().t()) < 0.2


def table_by_the_kernel(starts: list[int], rows: int, tile: int) -> Tensor:
    return grouped._table(torch.tensor(starts), -(-rows // tile) + len(starts) - 1, tile)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    "starts", [[0, 300], [0, 0, 130, 131, 200], [0, 0, 0, 64, 64, 640, 640], [0, 128, 256, 384]]
)
def test_the_kernel_finds_the_rows_of_every_tile(interpreted, starts):
    for tile in (64, 192):
        expected = grouped.row_tiles(torch.tensor(starts), starts[-1], tile)
        got = interpreted(table_by_the_kernel, starts, starts[-1], tile)
        used = int(expected[-1])
        assert int(got[-1]) == used
        assert torch.equal(got[: 3 * used], expected[: 3 * used])
        lines = expected[: 3 * used].view(-1, 3)
        sizes = (lines[:, 2] - lines[:, 1]).clamp(max=tile)
        assert int(sizes.sum()) == starts[-1] - starts[0]
        assert bool((lines[1:, 0] >= lines[:-1, 0]).all())  # an expert's tiles follow each other


@pytest.mark.xdist_group("interpreted")
def test_the_kernel_multiplies_fp4(interpreted):
    a, b, bias = drawn(70, 200), drawn(150, 200), drawn(150)
    rules = {"format": "mxfp4", "bias": bias, "out_dtype": torch.float32, "activation": "relu"}
    got = interpreted(accel.fp4_gemm, a, b, backend="native", **rules)
    torch.testing.assert_close(got, accel.fp4_gemm(a, b, **rules), rtol=1e-4, atol=1e-3)


@pytest.mark.matrix
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m", [16, 4096])
def test_tiles_fit_the_shared_memory_of_every_target(m, target):
    a, b = torch.zeros(m, 4096, dtype=torch.bfloat16), torch.zeros(4096, 2048, dtype=torch.bfloat16)
    posed = [arrange(a, b, None, "silu", None, None, None)]
    if target >= 89:
        scales = torch.ones(m, 32), torch.ones(32, 16)
        posed.append(
            arrange(a.to(E4M3), b.t().to(E4M3).t(), None, None, torch.bfloat16, scales, None)
        )
    for given in posed:
        x = replace(given, problem=replace(given.problem, capability=divmod(target, 10)))
        calls = list(launched(lambda x=x: portable.portable(x)))
        assert calls
        for name, call in calls:
            assert compile_kernel(call, target).metadata.shared <= SHARED_KIB[target] * 1024, name


@pytest.mark.matrix
@pytest.mark.parametrize("target", FP4_TARGETS)
@pytest.mark.parametrize(("kind", "instruction"), [("nvfp4", "mxf4nvf4"), ("mxfp4", "mxf4")])
def test_blackwell_multiplies_fp4_itself(kind, instruction, target):
    found = needs(compile_kernel(fp4.call_of(kind, 4096, 4096, 4096), target))
    core = "tcgen05.mma" if target == 100 else "mma.sync"
    assert re.search(rf"{core}\S*kind::{instruction}\S*block_scale", found.ptx)
    assert found.shared <= SHARED_KIB[target] * 1024
    assert found.spilled == 0


def test_fp4_is_emulated_where_no_tensor_core_multiplies_it():
    with pytest.raises(ValueError, match="backend native cannot do this: it needs a CUDA GPU"):
        accel.fp4_gemm(drawn(32, 32), drawn(32, 32), backend="native")
    a, b = (accel.fp4_quantize(drawn(32, 32)) for _ in range(2))
    assert fp4_backend(a, b) == "torch, FP4 is EMULATED in float32 on this device"
    with pytest.raises(ValueError, match="backend native cannot do this: it needs a CUDA GPU"):
        fp4_backend(a, b, backend="native")


def test_experts_multiply_their_own_rows():
    starts = torch.tensor([0, 0, 130, 131, 200])
    a, b = drawn(200, 256), drawn(4, 256, 48)
    exact = torch.cat(
        [a[i:j] @ b[e] for e, (i, j) in enumerate(((0, 0), (0, 130), (130, 131), (131, 200)))]
    )
    torch.testing.assert_close(accel.grouped_gemm(a, b, starts), exact)
    left = fp8_quantize(a, "tile")
    right = [fp8_quantize(b[e].t(), "block").t for e in range(4)]
    values, scales = (
        torch.stack(t) for t in zip(*((r.values, r.scales) for r in right), strict=True)
    )
    got = accel.grouped_gemm(
        left.values, values, starts, scales=(left.scales, scales), out_dtype=torch.float32
    )
    assert distance(got, exact.double()) < 0.05
    with pytest.raises(ValueError, match="backend hopper cannot do this"):
        accel.grouped_gemm(a, b, starts, backend="hopper")


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    ("sizes", "rules"),
    [
        ((5, 33, 70), {"activation": "gelu"}),
        ((2, 40, 1100), {}),
        ((70, 130, 129), {"activation": "silu", "transposed": True}),
        ((100, 20, 40), {"batch": 2, "activation": "relu", "tile_size": 16}),
    ],
    ids=["few-rows", "split", "off-tiles", "batch"],
)
def test_the_kernels_give_the_product(interpreted, sizes, rules):
    m, n, k = sizes
    batch = (rules.pop("batch"),) if "batch" in rules else ()
    a, b, bias = drawn(*batch, m, k), drawn(*batch, k, n), drawn(n)
    if rules.pop("transposed", False):
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    for dtype, bound in ((torch.float32, 1e-6), (torch.float16, 1e-3)):
        x, y = a.to(dtype), b.to(dtype)
        got = interpreted(gemm, x, y, bias=bias, backend="triton", **rules)
        assert distance(got, exact_of(x, y, bias=bias, **rules)) < bound


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize("recipe", ["tensor", "row", "block"])
def test_the_kernels_multiply_fp8(interpreted, recipe):
    for m in (7, 80):
        a, b = (
            fp8_quantize(drawn(m, 700), OF_A[recipe]),
            fp8_quantize(drawn(70, 700), OF_B[recipe]).t,
        )
        scales, bias = (a.scales, b.scales), drawn(70)
        rules = {"scales": scales, "out_dtype": torch.float32, "bias": bias, "activation": "silu"}
        got = interpreted(gemm, a.values, b.values, backend="triton", **rules)
        assert distance(got, exact_of(a.values, b.values, **rules)) < 1e-5


def test_what_runs_is_said():
    a, b = drawn(3, 4), drawn(4, 5)
    choice = explain_gemm(a, b)
    assert choice.backend == "torch" and str(choice.refusals["cublas"]) == "needs a CUDA GPU"
    half = fp8_quantize(a)
    choice = explain_gemm(half.values, half.values.t(), scales=(half.scales, half.scales))
    assert "FP8 is EMULATED" in str(choice.reason)
    with pytest.raises(ValueError, match="backend cublas cannot do this: it needs a CUDA GPU"):
        gemm(a, b, backend="cublas")
    with pytest.raises(ValueError, match=r"no backend is called 'magma'\. There are: auto, cublas"):
        gemm(a, b, backend="magma")


def on_gpu(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16, **rules: Any) -> Problem:
    capability = rules.pop("capability", (9, 0))
    return Problem(1, m, n, k, dtype, torch.bfloat16, torch.device("cuda", 0), capability, **rules)


def test_auto_takes_what_was_measured_fastest_near_a_shape(monkeypatch):
    rows = tuple(
        table.Row("GPU", "bfloat16", 4096, 4096, k, name, 1.0, tflops, "torch 2", "2026-11-23")
        for k, name, tflops in (
            (4096, "cublas", 700.0), (4096, "hopper", 710.0), (16384, "cublas", 720.0),
            (16384, "hopper", 690.0),
        )
    )  # fmt: skip
    monkeypatch.setattr(table, "_read_shipped", lambda: rows)
    monkeypatch.setattr(dispatch, "_gpu", lambda p: "GPU")
    table._rows.cache_clear()
    choose.cache_clear()
    try:
        near = choose(on_gpu(4096, 4096, 5000))
        assert near.backend == "hopper" and near.basis == "predicted"
        assert (
            str(near.reason) == "auto: predicted from measurements on GPU, 710 TFLOP/s, cublas 700"
        )
        exact = choose(on_gpu(4096, 4096, 16384))
        assert exact.backend == "cublas" and exact.basis == "measured"
        assert str(exact.reason) == "auto: measured fastest on GPU, 720 TFLOP/s, hopper 690"
        assert choose(on_gpu(4096, 4096, 12000)).backend == "cublas"
        far = choose(on_gpu(64, 4096, 4096))
        assert far.backend == "cublas" and "not measured" in str(far.reason)
    finally:
        table._rows.cache_clear()
        choose.cache_clear()


def test_auto_takes_the_fastest_at_every_measured_shape(monkeypatch):
    """Also of the products that our functions make: their names must be those of the table."""
    made = {"bfloat16"}
    for recipe in ("tensor", "row", "block"):
        left, right = (fp8_quantize(drawn(256, 256), kinds[recipe]) for kinds in (OF_A, OF_B))
        scales = (left.scales, right.t.scales)
        made.add(
            arrange(left.values, right.t.values, None, None, None, scales, None).problem.precision
        )
    rows = [row for file in table.SHIPPED.glob("*.csv") for row in table.read(file)]
    assert {row.precision for row in rows} == made
    monkeypatch.setattr(dispatch, "_gpu", lambda p: "NVIDIA H200")
    choose.cache_clear()
    shapes = {(row.precision, row.m, row.n, row.k) for row in rows}
    assert len(shapes) >= 110
    rules = {
        "bfloat16": (torch.bfloat16, {}),
        "fp8-tensor": (E4M3, {"scaling": "outer"}),
        "fp8-row": (E4M3, {"scaling": "outer", "steps": Steps(1, 1)}),
        "fp8-block1x128": (E4M3, {"scaling": "block", "steps": Steps(1, 128)}),
    }
    try:
        for precision, m, n, k in shapes:
            dtype, rest = rules[precision]
            p = on_gpu(m, n, k, dtype, **rest)
            assert p.precision == precision
            rates = {
                row.backend: row.tflops
                for row in rows
                if (row.precision, row.m, row.n, row.k) == (precision, m, n, k)
            }
            assert rates[choose(p).backend] >= 0.99 * max(rates.values()), p
    finally:
        choose.cache_clear()


def test_backends_refuse_what_they_cannot_multiply():
    old = choose(on_gpu(64, 64, 64, E4M3, scaling="outer", capability=(8, 0)))
    assert old.backend == "torch" and "EMULATED" in str(old.reason)
    odd = choose(on_gpu(64, 33, 64, E4M3, scaling="outer"))
    assert odd.backend == "triton" and "multiples of 16" in str(odd.refusals["cublas"])
    assert "16 bytes" in str(choose(on_gpu(64, 64, 33, boxes=False)).refusals["hopper"])
    assert choose(on_gpu(64, 64, 64, tile=32)).backend == "triton"
    both = choose(on_gpu(64, 128, 256, E4M3, scaling="block", steps=Steps(128, 128)))
    assert both.backend == "triton"
    # 6 blocks of k: cuBLAS reads their scales in lines of 8, and what lies behind them was NaN
    small = choose(on_gpu(1024, 2304, 768, E4M3, scaling="block", steps=Steps(1, 128)), "triton")
    assert "multiple of 512" in str(small.refusals["cublas"])
    large = choose(on_gpu(1024, 2304, 1024, E4M3, scaling="block", steps=Steps(1, 128)), "triton")
    assert "cublas" not in large.refusals


def test_every_tile_fits_a_gpu_and_covers_k():
    for dtype in (torch.bfloat16, torch.float32, E4M3):
        for m in (1, 16, 64, 128, 4096):
            for n, k in ((64, 128), (4096, 7168), (152064, 8192)):
                t = portable.tiles(on_gpu(m, n, k, dtype, scaling="none"), 132)
                assert (t.m + t.n) * t.k * dtype.itemsize * t.stages <= 227 * 1024
                assert 1 <= t.splits <= max(1, -(-k // t.k))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gemm(drawn(3, 4), drawn(5, 6)), "must share k"),
        (lambda: gemm(drawn(2, 3, 4), drawn(3, 4, 5)), "batches of a and b do not go together"),
        (lambda: gemm(drawn(3, 4), drawn(4, 5).half()), "must have one floating-point type"),
        (lambda: gemm(drawn(3, 4), drawn(4, 5), bias=drawn(4)), r"bias must be \[5\]"),
        (lambda: gemm(drawn(3, 4), drawn(4, 5), activation="tanh"), "activation is one of"),
        (lambda: gemm(drawn(3, 4), drawn(4, 5), tile_size=17), "a power of two from 16 to 256"),
        (lambda: gemm(drawn(3, 4).to(E4M3), drawn(4, 5).to(E4M3)), "need scales"),
        (
            lambda: gemm(drawn(3, 4), drawn(4, 5), scales=(drawn(1, 1), drawn(1, 1))),
            "scales belong to operands in FP8",
        ),
        (
            lambda: gemm(
                drawn(3, 256).to(E4M3), drawn(256, 5).to(E4M3), scales=(drawn(3, 2), drawn(1, 5))
            ),
            "either both operands have scales",
        ),
        (
            lambda: gemm(
                drawn(3, 256).to(E4M3), drawn(256, 5).to(E4M3), scales=(drawn(2, 2), drawn(2, 5))
            ),
            "the scales of a must be one",
        ),
        (lambda: accel.fp8_gemm(drawn(3, 4), drawn(4, 5), recipe="rows"), "no recipe is called"),
    ],
)
def test_what_does_not_fit_together_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
