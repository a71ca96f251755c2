"""FP8 and FP4: scales and values by their definitions, and numbers that are none."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch

from gpudeck import accel
from gpudeck.accel.primitives.quantize import fp4, fused
from gpudeck.accel.primitives.quantize.before import (
    NOTHING,
    Before,
    apply,
    gradients,
    with_statistics,
)
from gpudeck.accel.primitives.quantize.fp8 import (
    DTYPES,
    GRANULARITIES,
    emulate,
    expand,
    fp8_quantize,
)
from gpudeck.accel.runtime.call import compile_kernel
from tests.unit.accel.compiled import FP8_TARGETS, launched, lost, needs

RECORDED = json.loads((Path(__file__).parent / "data" / "fp4_torchao.json").read_text())
E4M3 = torch.float8_e4m3fn


def drawn(rows: int = 150, columns: int = 300) -> torch.Tensor:
    random = torch.Generator().manual_seed(rows + columns)
    return torch.randn(rows, columns, generator=random)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_each_group_uses_the_whole_range_and_loses_half_a_step(granularity, dtype):
    x = drawn()
    found = fp8_quantize(x, granularity, dtype=dtype)
    limits = torch.finfo(dtype)
    groups = {
        "tensor": found.values.flatten(), "row": found.values[7], "tile": found.values[7, 128:256],
        "block": found.values[128:, 128:256],
    }  # fmt: skip
    assert float(groups[granularity].float().abs().max()) == limits.max
    error = (found.dequantize() - x).abs()
    allowed = torch.maximum(
        x.abs() * limits.eps / 2, expand(found.scales, x.shape) * limits.tiny * limits.eps / 2
    )
    assert bool((error <= allowed * 1.0001).all())


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_numbers_that_are_none_are_passed_on_and_harm_no_other(granularity):
    x = drawn()
    whole = fp8_quantize(x, granularity).dequantize()
    bad = x.clone()
    # the largest of its group stays where it is, so that the scales must be the same
    bad[0, 0] = x[0, 0] / 2
    expected = fp8_quantize(bad, granularity).dequantize()
    for value in (float("nan"), float("inf"), -float("inf")):
        bad[0, 0] = value
        got = fp8_quantize(bad, granularity).dequantize()
        assert bool(got[0, 0].isnan())
        assert torch.equal(got.flatten()[1:], expected.flatten()[1:])
    assert bool(whole.isfinite().all())


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_zeros_and_the_smallest_numbers_stay_finite(granularity):
    for value in (0.0, 1e-45, 1.2e-38):
        found = fp8_quantize(torch.full((3, 130), value), granularity)
        assert bool(found.dequantize().isfinite().all()) and bool((found.scales > 0).all())
    assert fp8_quantize(torch.zeros(0, 16), granularity).values.shape == (0, 16)


def test_a_known_scale_saturates_what_is_larger():
    found = fp8_quantize(torch.tensor([[1.0, 500.0, -2000.0]]), scale=torch.tensor(1.0))
    assert found.values.float().tolist() == [[1.0, 448.0, -448.0]]


@pytest.mark.xdist_group("interpreted")
def test_the_kernels_find_the_same_scales(interpreted):
    """Values that must be rounded are compared on a GPU: the interpreter's own conversion to FP8
    has defects."""
    x = drawn(130, 140)
    x[3, 5], x[9, 100], x[20] = float("nan"), float("inf"), 0.0
    *scales, raised = interpreted(both_ways, x)
    largest = float(x[x.isfinite()].abs().max())
    assert raised.tolist() == [largest, 1e3]  # 1e3 was larger already
    for granularity, along, across in scales:
        for found, given in ((along, x), (across, x.t().contiguous())):
            assert torch.equal(found, emulate(given, granularity, E4M3).scales), granularity


def both_ways(x):
    found = []
    for granularity in GRANULARITIES:
        along, across = fused.quantize_both_ways(x, granularity, E4M3)
        assert along is not None and across is not None
        found.append((granularity, along.scales, across.scales))
    raised = torch.tensor([0.5, 1e3])
    fused.quantize_both_ways(x, "tensor", E4M3, most=raised[:1])
    fused.quantize_both_ways(x, "tensor", E4M3, torch.ones(1), most=raised[1:])
    return *found, raised


@pytest.mark.xdist_group("interpreted")
def test_the_kernels_write_both_directions(interpreted):
    """The numbers are those of FP8, for any number of rows: four at a time are transposed."""
    for rows in (128, 70):
        x = torch.randint(-16, 17, (rows, 36), generator=torch.Generator().manual_seed(1)).float()
        diagonal = torch.arange(128)
        x[diagonal % rows, diagonal % 36] = 448.0
        for along, across in interpreted(values_both_ways, x):
            assert torch.equal(along, x) and torch.equal(across, x.t())


def values_both_ways(x):
    made = [
        fused.quantize_both_ways(x, granularity, E4M3) for granularity in ("tensor", "row", "tile")
    ]
    made.append(fused.quantize_both_ways(4 * x, "tensor", E4M3, torch.full((1,), 4.0)))
    return [(along.values.float(), across.values.float()) for along, across in made]


def before(kind: str, columns: int) -> Before:
    """What comes before rounding, with parameters that are no ones and zeros."""
    random = torch.Generator().manual_seed(columns)
    gain, shift = torch.randn(2, columns, generator=random)
    if kind == "layer":
        return Before(kind, gain, shift, 1e-5)
    return Before(kind, gain, None, 1e-5) if kind == "rms" else Before(kind)


@pytest.mark.xdist_group("interpreted")
@pytest.mark.parametrize(
    "kind",
    ["layer", *(pytest.param(k, marks=pytest.mark.slow) for k in ("rms", "gelu", "swiglu"))],
)
def test_the_kernels_compute_what_comes_before_rounding(interpreted, kind):
    x = drawn(40, 140) * 3 + 1
    first = before(kind, x.shape[1])
    right = apply(with_statistics(first, x), x)
    *scales, mean, rstd, dx, dout = interpreted(rounded_after, x, first)
    for granularity, along, across in scales:
        for found, given in ((along, right), (across, right.t().contiguous())):
            expected = emulate(given, granularity, E4M3).scales
            torch.testing.assert_close(found, expected, rtol=2e-5, atol=0)
    if kind in ("layer", "rms"):
        known = with_statistics(first, x)
        torch.testing.assert_close(rstd, known.rstd, rtol=1e-5, atol=0)
        assert (mean is None) == (kind == "rms")
    else:
        torch.testing.assert_close(dx, gradients(first, dout, x)[0], rtol=1e-4, atol=1e-5)


def rounded_after(x, first):
    mean = rstd = dx = None
    dout = torch.randn(len(x), first.columns(x), generator=torch.Generator().manual_seed(5))
    if first.kind in ("layer", "rms"):
        mean, rstd = fused.statistics(x, first.kind == "layer", first.eps)
        first = Before(first.kind, first.gain, first.shift, first.eps, mean, rstd)
    else:
        dx = fused.activation_gradient(first, dout, x)
    found = []
    for granularity in ("tensor", "row", "tile"):
        along, across = fused.quantize_both_ways(x, granularity, E4M3, before=first)
        found.append((granularity, along.scales, across.scales))
        alone = fused.quantize_both_ways(x, granularity, E4M3, across=False, before=first).along
        assert torch.equal(alone.scales, along.scales)
    return *found, mean, rstd, dx, dout


@pytest.mark.matrix
@pytest.mark.parametrize("target", FP8_TARGETS)
def test_the_kernels_that_round_compile_without_spills(target):
    x, gain = torch.zeros(256, 512, dtype=torch.bfloat16), torch.ones(512, dtype=torch.bfloat16)

    def run() -> None:
        known = Before("rms", gain, None, 1e-5, None, torch.ones(256))
        for first in (NOTHING, known, Before("swiglu")):
            fused.quantize_both_ways(x, "row", E4M3, before=first)
            fused.quantize_both_ways(x, "tensor", E4M3, torch.ones(1), before=first)
        fused.quantize_both_ways(x[:255], "row", E4M3)
        fused.statistics(x, True, 1e-5)
        fused.activation_gradient(Before("gelu"), x, x)

    for name, call in launched(run):
        assert needs(compile_kernel(call, target)).spilled == 0, name


@pytest.mark.matrix
@pytest.mark.parametrize("rows", [1000, 1024])
@pytest.mark.parametrize("kind", ["none", "gelu", "swiglu"])
def test_no_rounded_value_is_lost_by_ptxas(kind, rows):
    x = torch.zeros(rows, 1536, dtype=torch.bfloat16)

    def run() -> None:
        for granularity in ("tensor", "row", "tile", "block"):
            if granularity != "block" or kind == "none":
                fused.quantize_both_ways(x, granularity, E4M3, before=Before(kind))

    for name, call in launched(run):
        assert lost(compile_kernel(call, 90)) == 0, name


@pytest.mark.parametrize("kind", ["layer", "rms", "gelu", "swiglu"])
def test_gradients_of_what_comes_before_are_those_of_its_definition(kind):
    x, dout = drawn(9, 24).double(), drawn(9, 12 if kind == "swiglu" else 24).double()
    first = before(kind, 24)
    leaves = [t for t in (x, first.gain, first.shift) if t is not None]
    leaves = [t.double().requires_grad_() for t in leaves]
    given, *parameters = leaves
    if kind == "layer":
        out = torch.nn.functional.layer_norm(given, (24,), *parameters, eps=1e-5)
    elif kind == "rms":
        out = torch.nn.functional.rms_norm(given, (24,), *parameters, eps=1e-5)
    elif kind == "gelu":
        out = torch.nn.functional.gelu(given, approximate="tanh")
    else:
        gate, up = given.chunk(2, 1)
        out = torch.nn.functional.silu(gate) * up
    exact = torch.autograd.grad(out, leaves, dout)
    known = with_statistics(first, x.float())
    torch.testing.assert_close(apply(known, x.float()).double(), out.detach(), rtol=1e-5, atol=1e-5)
    got = [t for t in gradients(known, dout.float(), x.float()) if t.numel()]
    assert len(got) == len(exact)
    for found, right in zip(got, exact, strict=True):
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-4)
    assert apply(NOTHING, x) is x


@pytest.mark.parametrize(
    ("name", "kind", "tensor_scale"),
    [("nvfp4", "nvfp4", True), ("nvfp4 alone", "nvfp4", False), ("mxfp4", "mxfp4", False)],
)
def test_fp4_is_bit_for_bit_what_torchao_gives(name, kind, tensor_scale):
    found = accel.fp4_quantize(torch.tensor(RECORDED["x"]), kind, tensor_scale=tensor_scale)
    for part, bits in (("scales", found.scales.view(torch.uint8)), ("packed", found.packed)):
        assert bytes(bits.flatten().tolist()).hex() == RECORDED[name][part]
    if tensor_scale:
        assert float(found.tensor_scale) == RECORDED["tensor_scale"]


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp4"])
def test_fp4_takes_the_nearest_number_and_the_even_one_of_two(kind):
    size = fp4.BLOCKS[kind]
    x = torch.zeros(1, size)
    x[0, :8] = torch.tensor([6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    x[0, 8:16] = torch.tensor([-0.3, 0.2499, 0.76, -1.2, 2.51, -3.49, 4.99, 5.01])
    got = accel.fp4_quantize(x, kind, tensor_scale=False).dequantize()[0, :16].tolist()
    for given, found in zip(x[0, :16].tolist(), got, strict=True):
        numbers = [Fraction(n) for n in fp4.NUMBERS]
        nearest = min(range(8), key=lambda i: (abs(abs(Fraction(given)) - numbers[i]), i % 2))
        assert found == (-1 if given < 0 else 1) * fp4.NUMBERS[nearest], given


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp4"])
def test_fp4_of_any_width_zeros_and_bad_numbers(kind):
    x = drawn(5, 37)
    found = accel.fp4_quantize(x, kind)
    assert found.dequantize().shape == x.shape and found.columns == 37
    assert float((found.dequantize() - x).norm() / x.norm()) < 0.15
    assert not accel.fp4_quantize(torch.zeros(2, 32), kind).dequantize().any()
    x[1, 3] = float("inf")
    got = accel.fp4_quantize(x, kind).dequantize()
    size = fp4.BLOCKS[kind]
    assert bool(got[1, :size].isnan().all()) and int(got.isnan().sum()) == size
    # bfloat16 holds what the emulated product multiplies
    assert torch.equal(found.unscaled(torch.bfloat16).float(), found.unscaled())


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fp8_quantize(torch.zeros(3)), "takes a matrix"),
        (lambda: fp8_quantize(torch.zeros(3, 3), "column"), "no granularity is called 'column'"),
        (lambda: fp8_quantize(torch.zeros(3, 3), dtype=torch.int8), "dtype is float8"),
        (lambda: fp8_quantize(torch.zeros(3, 3), "row", scale=torch.ones(1)), "one number"),
        (lambda: accel.fp4_quantize(torch.zeros(3, 3), "fp4"), "no format is called 'fp4'"),
    ],
)
def test_what_cannot_be_rounded_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
