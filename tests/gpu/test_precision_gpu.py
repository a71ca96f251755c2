"""FP8 layers on a GPU: kernels beside their definition, fused and compiled beside as they are."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from gpudeck.accel import precision
from gpudeck.accel.precision.layers import Fp8Linear
from gpudeck.accel.precision.linear import RECIPES
from gpudeck.accel.primitives.quantize.before import Before, apply, gradients, with_statistics
from gpudeck.accel.primitives.quantize.fp8 import emulate
from gpudeck.accel.primitives.quantize.fused import quantize_both_ways

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

CUDA = torch.device("cuda", 0)
E4M3 = torch.float8_e4m3fn
BF16 = torch.bfloat16


def before(kind: str, columns: int) -> Before:
    gain, shift = torch.randn(2, columns, device=CUDA, dtype=BF16)
    if kind == "layer":
        return Before(kind, gain, shift, 1e-5)
    return Before(kind, gain, None, 1e-5) if kind == "rms" else Before(kind)


@pytest.mark.parametrize("kind", ["layer", "rms", "gelu", "swiglu"])
def test_what_comes_before_is_rounded_as_defined(kind):
    x = torch.randn(1000, 1536, device=CUDA, dtype=BF16) * 3 + 1
    first = with_statistics(before(kind, 1536), x)
    right = apply(first, x)
    for granularity in ("tensor", "row", "tile"):
        made = quantize_both_ways(x, granularity, E4M3, before=first)
        for found, given in ((made.along, right), (made.across, right.t().contiguous())):
            expected = emulate(given, granularity, E4M3)
            torch.testing.assert_close(found.scales, expected.scales, rtol=1e-5, atol=0)
            # sums in another order may round to the neighbour
            same = found.values.float() == expected.values.float()
            assert float(same.float().mean()) > 0.999
            error = (found.dequantize() - given).norm() / given.norm()
            assert float(error) < 0.04
    dout = torch.randn_like(right).to(BF16)
    got = gradients(first, dout, x)
    exact = _exact(first, dout, x)
    for found, expected in zip((t for t in got if t.numel()), exact, strict=True):
        assert float((found.double() - expected).norm() / expected.norm()) < 5e-3


def _exact(first: Before, dout: Tensor, x: Tensor) -> list[Tensor]:
    leaves = [t.double().requires_grad_() for t in (x, first.gain, first.shift) if t is not None]
    given, *parameters = leaves
    functional = nn.functional
    if first.kind == "layer":
        out = functional.layer_norm(given, x.shape[1:], *parameters, eps=first.eps)
    elif first.kind == "rms":
        out = functional.rms_norm(given, x.shape[1:], *parameters, eps=first.eps)
    elif first.kind == "gelu":
        out = functional.gelu(given, approximate="tanh")
    else:
        gate, up = given.chunk(2, 1)
        out = functional.silu(gate) * up
    return list(torch.autograd.grad(out, leaves, dout.double()))


def step(layer: nn.Module, x: Tensor, dout: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    out = layer(leaf)
    return [out.detach(), *torch.autograd.grad(out, [leaf, *layer.parameters()], dout)]


@pytest.mark.filterwarnings("ignore")  # the compiler's own advice
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_layer_gives_the_same_compiled(recipe, bias):
    torch.manual_seed(1)
    plain = nn.Linear(512, 768, bias, device=CUDA, dtype=BF16)
    layer = precision.convert(plain, recipe)
    x, dout = (torch.randn(1024, n, device=CUDA, dtype=BF16) for n in (512, 768))
    layer(x)
    precision.update_scales(layer)
    # with scales of blocks cuBLAS, which graphs call, rounds before a bias is added
    bound = 4e-3 if bias and recipe == "block" else 2e-3
    for found, right in zip(step(torch.compile(layer), x, dout), step(layer, x, dout), strict=True):
        assert float((found - right).float().norm() / right.float().norm()) < bound


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "given",
    [{"bias": True}, {"norm": "rms", "activation": "swiglu", "kv_heads": 2}],
    ids=["gpt", "llama"],
)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_transformer_layer_is_near_float64(recipe, given):
    torch.manual_seed(0)
    layer = precision.transformer_engine_layer(512, 4, 1536, recipe=recipe, device=CUDA, **given)
    assert sum(isinstance(m, Fp8Linear) for m in layer.modules()) == 4
    x, dout = torch.randn(2, 2, 512, 512, device=CUDA, dtype=BF16)
    plain = precision.revert(copy.deepcopy(layer))
    exact = step(plain.double().cpu(), x.double().cpu(), dout.double().cpu())
    for made in (layer, torch.compile(layer)):
        for found, right in zip(step(made, x, dout), exact, strict=True):
            assert float((found.cpu().double() - right).norm() / right.norm()) < 0.12
