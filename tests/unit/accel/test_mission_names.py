"""The names that the documentation promises: where they come from, and that they compute."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from gpudeck import accel
from gpudeck.accel import precision, primitives
from gpudeck.accel.attention.reference import reference

ROW_9 = (
    "dynamic_precision_select",
    "fp4_gemm",
    "fp4_quantize",
    "fp8_gemm",
    "fp8_quantize",
    "mixed_precision_attention",
    "transformer_engine_layer",
)
ROW_7 = (
    "gemm",
    "linear_attention",
    "fp8_gemm",
    "fp4_gemm",
    "grouped_gemm",
    "int4_gemm",
    "int4_quantize",
)


def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize(
    ("package", "name"),
    [*((precision, n) for n in ROW_9), *((primitives, n) for n in ROW_7)],
    ids=lambda x: x if isinstance(x, str) else x.__name__,
)
def test_every_name_is_a_documented_function_of_its_package(package, name):
    found = getattr(package, name)
    assert callable(found)
    assert name in package.__all__
    assert "Args:" in found.__doc__
    assert found is getattr(accel, name, found)  # one function, wherever it is taken from


@pytest.mark.slow  # in `make test` the names are imported in the order of its modules
@pytest.mark.parametrize(
    "first", ["gpudeck.accel.primitives.gemm.api", "gpudeck.accel.primitives.gemm", "json"]
)
def test_gemm_is_the_operation_whatever_was_imported_before(first):
    code = (
        f"import {first}, torch, gpudeck.accel.primitives; from gpudeck import accel;"
        "from gpudeck.accel.primitives.gemm import table;"
        " a = torch.eye(3); print(accel.primitives.gemm(a, a, backend='torch').sum(), table)"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith("tensor(3.)"), ran.stderr


@pytest.mark.xdist_group("interpreted")
def test_gemm_takes_tiles_of_16(interpreted):
    a, b = drawn(50, 40, dtype=torch.float32), drawn(40, 30, dtype=torch.float32)
    got = interpreted(primitives.gemm, a, b, tile_size=16, backend="triton")
    torch.testing.assert_close(got, a @ b, rtol=1e-5, atol=1e-5)


def test_mixed_precision_attention_says_what_ran():
    q, k, v = (drawn(1, 2, 40, 16) for _ in range(3))
    exact = reference(q, k, v, causal=True)
    out, choice = precision.mixed_precision_attention(q, k, v, causal=True, return_choice=True)
    assert (choice.precision, choice.backend) != ("fp8", "")
    assert choice.reason.startswith("auto: FP8 ")
    assert out.dtype == q.dtype
    torch.testing.assert_close(out.double(), exact, rtol=2e-2, atol=2e-2)
    half = precision.mixed_precision_attention(
        q.float(), k.float(), v.float(), precision="fp16", causal=True, return_choice=True
    )
    assert half[0].dtype == torch.float32
    assert str(half[1]).startswith("fp16 by ")
    out, choice = precision.mixed_precision_attention(
        q, k, v, precision="fp8", backend="emulation", causal=True, return_choice=True
    )
    assert (choice.precision, choice.backend) == ("fp8", "emulation fp8")
    assert 0.005 < float((out.double() - exact).norm() / exact.norm()) < 0.1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"precision": "fp8"}, "attention in FP8 cannot do this"),
        ({"precision": "fp4"}, "precision is one of auto, fp8, bf16, fp16; got 'fp4'"),
        ({"precision": "fp64"}, "got 'fp64'"),
    ],
)
def test_mixed_precision_attention_refuses_what_it_cannot_do(asked, said):
    q = drawn(1, 2, 8, 16)
    with pytest.raises(ValueError, match=said):
        precision.mixed_precision_attention(q, q, q, **asked)


def test_gradients_come_in_16_bits():
    q, k, v = (drawn(1, 2, 20, 16).requires_grad_() for _ in range(3))
    out, choice = precision.mixed_precision_attention(q, k, v, return_choice=True)
    assert choice.precision == "bf16"
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_the_other_names_of_low_precision_compute():
    a, b = drawn(48, 64), drawn(64, 32)
    exact = a.double() @ b.double()

    def away(x: Tensor) -> float:
        return float((x.double() - exact).norm() / exact.norm())

    assert away(precision.fp8_gemm(a, b)) < 0.06
    assert away(precision.fp4_gemm(a, b.t())) < 0.25
    assert precision.fp8_quantize(a, "row").values.dtype == torch.float8_e4m3fn
    assert precision.fp4_quantize(a, "nvfp4").dequantize().shape == a.shape
    layer = precision.transformer_engine_layer(32, 2, dtype=torch.float32)
    assert layer(torch.randn(1, 6, 32)).shape == (1, 6, 32)
    model = nn.Sequential(nn.Linear(8, 8))
    chosen = precision.dynamic_precision_select(model, lambda m: m(torch.ones(2, 8)), seconds=0.01)
    assert "unchanged" in str(chosen)  # on a CPU FP8 is emulated and gains nothing
