"""FP8 layers on a CPU, emulated: arithmetic, conversion, training, histories and bad numbers."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from gpudeck.accel import precision
from gpudeck.accel.precision.layers import HISTORY, Fp8Linear
from gpudeck.accel.precision.linear import RECIPES
from gpudeck.accel.precision.selection import Measured, Selection
from gpudeck.accel.primitives.quantize.before import NOTHING, Before
from gpudeck.accel.primitives.quantize.fp8 import emulate

E4M3 = torch.float8_e4m3fn
KINDS = {"delayed": "tensor", "tensor": "tensor", "row": "row", "block": "tile"}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(40, 150), nn.GELU(), nn.Linear(150, 24, bias=False))


def batch(rows: int = 33, columns: int = 40) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))


def results(net: Callable[[Tensor], Tensor], x: Tensor, parameters: list[Tensor]) -> list[Tensor]:
    """Return the output and all gradients of its squared sum."""
    leaf = x.clone().requires_grad_()
    out = net(leaf)
    return [out.detach(), *torch.autograd.grad(out.square().sum(), [leaf, *parameters])]


@every_recipe
def test_a_layer_multiplies_rounded_operands_in_all_three_products(recipe):
    torch.manual_seed(0)
    plain = nn.Linear(300, 140)
    layer = Fp8Linear.of(plain, recipe)
    x, dout = batch(200, 300).requires_grad_(), torch.randn(200, 140)
    kind = KINDS[recipe]

    def near(t: Tensor, of: str = kind) -> Tensor:
        return emulate(t.detach(), of, E4M3).dequantize()

    weights = "block" if recipe == "block" else kind
    out = layer(x)
    torch.testing.assert_close(
        out, near(x) @ near(plain.weight, weights).t() + plain.bias, rtol=1e-4, atol=1e-4
    )
    dx, dw, db = torch.autograd.grad(out, [x, plain.weight, plain.bias], dout)
    across = near(plain.weight.t(), weights)
    torch.testing.assert_close(dx, near(dout) @ across.t(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(dw, near(dout.t()) @ near(x.t()).t(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(db, dout.sum(0))


@every_recipe
def test_a_converted_model_keeps_its_parameters_and_goes_back(recipe):
    plain = model()
    converted = precision.convert(copy.deepcopy(plain), recipe)
    assert [type(m).__name__ for m in converted] == ["Fp8Linear", "GELU", "Fp8Linear"]
    state = converted.state_dict()
    assert list(state) == list(plain.state_dict())
    fresh = model()
    fresh.load_state_dict(state)
    converted.load_state_dict(plain.state_dict())
    text = precision.describe(converted)
    assert "EMULATED" in text and recipe in text
    back = precision.revert(converted)
    assert [type(m) for m in back] == [nn.Linear, nn.GELU, nn.Linear]
    torch.testing.assert_close(back(batch()), plain(batch()))


def test_only_wanted_layers_are_converted():
    converted = precision.convert(model(), "row", wanted=lambda name, layer: layer.in_features > 50)
    assert [type(m) for m in converted] == [nn.Linear, nn.GELU, Fp8Linear]
    alone = precision.convert(nn.Linear(3, 4), "row")
    assert isinstance(alone, Fp8Linear) and alone(torch.ones(2, 5, 3)).shape == (2, 5, 4)
    with pytest.raises(ValueError, match="no recipe is called 'rows'"):
        precision.convert(model(), "rows")


def test_layers_of_another_recipe_are_converted_again():
    converted = precision.convert(precision.convert(model(), "row"), "tensor")
    assert [m.recipe for m in converted if isinstance(m, Fp8Linear)] == ["tensor", "tensor"]


@pytest.mark.parametrize("rows", [1, 7, 130])
@every_recipe
def test_any_number_of_rows(recipe, rows):
    plain = model()
    converted = precision.convert(copy.deepcopy(plain), recipe)
    x = batch(rows)
    exact = results(plain, x, list(plain.parameters()))
    got = results(converted, x, list(converted.parameters()))
    for found, right in zip(got, exact, strict=True):
        assert float((found - right).norm() / right.norm()) < 0.15
    assert converted(x[:0]).shape == (0, 24)


@every_recipe
def test_zeros_give_zeros_and_bad_numbers_are_passed_on(recipe):
    layer = precision.convert(nn.Linear(40, 24, bias=False), recipe)
    assert not layer(torch.zeros(5, 40)).any()
    x = batch(5)
    for bad in (float("nan"), float("inf")):
        x[2, 7] = bad
        out = layer(x)
        assert bool(out[2].isnan().all())
        assert bool(out[[0, 1, 3, 4]].isfinite().all())
        dw = torch.autograd.grad(out, layer.weight, torch.ones_like(out))[0]
        assert bool(dw[:, 7].isnan().all())


@pytest.mark.parametrize(
    "recipe",
    [name if name == "tensor" else pytest.param(name, marks=pytest.mark.slow) for name in RECIPES],
)
def test_a_step_is_the_same_compiled_and_checkpointed(recipe):
    converted = precision.convert(model(), recipe)
    parameters, x = list(converted.parameters()), batch()
    expected = results(converted, x, parameters)
    compiled = torch.compile(copy.deepcopy(converted), backend="aot_eager", fullgraph=True)
    kept = results(lambda t: checkpoint(converted, t, use_reentrant=False), x, parameters)
    for found in (results(compiled, x, list(compiled.parameters())), kept):
        for got, right in zip(found, expected, strict=True):
            assert torch.equal(got, right)


def test_autocast_decides_the_type_of_the_products():
    layer = precision.convert(nn.Linear(40, 24), "row")
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(batch())
    assert out.dtype == torch.bfloat16
    assert torch.autograd.grad(out.float().sum(), layer.weight)[0].dtype == torch.float32


def trained(net: nn.Module, steps: int, first: int = 0) -> list[Tensor]:
    """Train by plain gradient descent; return the losses."""
    losses = []
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for step in range(first, first + steps):
        random = torch.Generator().manual_seed(step)
        x = torch.randn(20, 40, generator=random)
        loss = functional.mse_loss(net(x), x[:, :24].sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        precision.update_scales(net)
        losses.append(loss.detach())
    return losses


def test_delayed_scales_follow_the_largest_of_the_last_steps():
    layer = precision.convert(nn.Linear(8, 8, bias=False), "delayed")
    assert isinstance(layer, Fp8Linear)
    assert layer.scales() == (None, None)
    for size in (2.0, 64.0, 1.0):
        layer(torch.full((3, 8), size))
        layer(torch.full((3, 8), size / 2))  # as repeated for a checkpoint, or a smaller part
        precision.update_scales(layer)
    scale_x, scale_w = layer.scales()
    assert scale_x is not None and scale_w is not None
    assert float(scale_x) == pytest.approx(64 / 448)
    assert float(scale_w) == pytest.approx(float(layer.weight.detach().abs().max()) / 448)
    # a spike saturates for one step, and its size is known in the next
    with torch.no_grad():
        layer.weight.copy_(torch.eye(8))
    spike = layer(torch.full((1, 8), 1000.0))
    assert float(spike.detach().max()) < 100
    precision.update_scales(layer)
    assert float(layer(torch.full((1, 8), 1000.0)).detach().max()) > 900
    for _ in range(HISTORY + 1):
        layer(torch.ones(1, 8))
        precision.update_scales(layer)
    assert float(layer.scales()[0]) == pytest.approx(1 / 448)
    layer.eval()
    before = layer.pending.clone()
    layer(torch.full((1, 8), 5000.0))
    assert torch.equal(layer.pending, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_numbers_and_zeros_do_not_stay_in_delayed_scales(bad):
    layer = precision.convert(nn.Linear(40, 24, bias=False), "delayed")
    assert isinstance(layer, Fp8Linear)
    x = batch(5)
    layer(x)
    precision.update_scales(layer)
    expected, scales = layer(x), [float(s) for s in layer.scales()]
    spoiled = x.clone()
    spoiled[int((x.abs().amax(1)).argmin()), 7] = bad
    assert int(layer(spoiled).isnan().any(1).sum()) == 1
    precision.update_scales(layer)
    assert [float(s) for s in layer.scales()] == scales
    assert torch.equal(layer(x), expected)
    for _ in range(HISTORY + 1):
        assert not layer(torch.zeros_like(x)).any()
        precision.update_scales(layer)
    assert bool(layer(x).isfinite().all())


def test_scales_stay_exact_when_a_layer_changes_its_type():
    layer = precision.convert(nn.Linear(8, 8, bias=False), "delayed")
    layer(torch.full((3, 8), 1.001))
    precision.update_scales(layer)
    history, scales = layer.history.clone(), [float(s) for s in layer.scales()]
    layer.to(torch.bfloat16)
    assert layer.weight.dtype == torch.bfloat16
    assert torch.equal(layer.history, history) and layer.pending.dtype == torch.float32
    assert [float(s) for s in layer.scales()] == scales
    layer(torch.full((3, 8), 2.0, dtype=torch.bfloat16))
    assert layer.pending.tolist() == [2.0, float(layer.weight.detach().abs().max())]


def test_training_goes_on_bit_for_bit_with_saved_histories():
    whole = precision.convert(model(), "delayed")
    trained(whole, 3)
    state, saved = copy.deepcopy(whole.state_dict()), precision.histories(whole)
    expected = trained(whole, 3, 3)
    again = precision.convert(model(), "delayed")
    again.load_state_dict(state)
    precision.load_histories(again, saved)
    assert trained(again, 3, 3) == expected
    forgotten = precision.convert(model(), "delayed")
    forgotten.load_state_dict(state)
    assert trained(forgotten, 3, 3) != expected
    with pytest.raises(ValueError, match=r"the history of 0 must be \[2, 17\]; got none"):
        precision.load_histories(again, {})


@every_recipe
def test_training_in_fp8_learns_as_plain_training_does(recipe):
    plain, fp8 = model(), precision.convert(model(), recipe)
    expected, got = trained(plain, 60), trained(fp8, 60)
    assert float(got[-1]) < 0.9 * float(got[0])
    assert float(got[-1]) == pytest.approx(float(expected[-1]), rel=0.03)


def test_a_selection_says_what_was_measured_and_converts_what_gains():
    net, x = model(), batch()
    found = precision.dynamic_precision_select(net, lambda m: m(x), seconds=0.01)
    assert [(m.name, m.rows, m.inputs, m.outputs) for m in found.layers] == [
        ("0", 33, 40, 150), ("2", 33, 150, 24)
    ]  # fmt: skip
    assert not any(m.chosen for m in found.layers)  # emulated
    assert str(found).count("unchanged") == 2
    assert not any(layer._forward_pre_hooks for layer in net)
    chosen = Selection("row", (Measured("0", 33, 40, 150, 2.0, 1.0, True), *found.layers[1:]))
    converted = precision.convert(net, "row", wanted=chosen)
    assert [type(m) for m in converted] == [Fp8Linear, nn.GELU, nn.Linear]
    assert "+100%  FP8" in str(chosen)


def engine_layer(form: str, recipe: str | None) -> nn.Module:
    torch.manual_seed(0)
    forms = {
        "gpt": {"bias": True}, "llama": {"norm": "rms", "activation": "swiglu", "kv_heads": 2}
    }  # fmt: skip
    layer = precision.transformer_engine_layer(
        64, 4, 96, recipe=recipe, dtype=torch.float32, **forms[form]
    )
    for name, parameter in layer.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter, 1.0, 0.3)
    return layer


@pytest.mark.parametrize("form", ["gpt", "llama"])
@every_recipe
def test_a_transformer_layer_in_fp8_is_near_float64(recipe, form):
    layer = engine_layer(form, recipe)
    assert sum(isinstance(m, Fp8Linear) for m in layer.modules()) == 4
    x = torch.randn(2, 10, 64)
    exact = results(
        plain := precision.revert(copy.deepcopy(layer)).double(),
        x.double(),
        list(plain.parameters()),
    )
    got = results(layer, x, list(layer.parameters()))
    apart = results(apart := unfused(copy.deepcopy(layer)), x, list(apart.parameters()))
    for found, other, right in zip(got, apart, exact, strict=True):
        error, of_other = (float((t - right).norm() / right.norm()) for t in (found, other))
        assert error < 0.12
        assert error < 1.2 * of_other + 0.01  # fused it rounds no more often
    # causal: a later token changes nothing before it
    if recipe == "row":
        near = layer(x).detach()
        x[:, 7:] += 1
        torch.testing.assert_close(layer(x).detach()[:, :7], near[:, :7], rtol=0, atol=1e-5)


def unfused(layer: nn.Module) -> nn.Module:
    """Return the layer with norms and activations that are computed before the linear layers."""
    for child in layer.modules():
        if isinstance(child, Fp8Linear):
            child.forward = functools.partial(after, child, child.forward)
    return layer


def after(
    layer: Fp8Linear, forward: Callable[..., Tensor], x: Tensor, first: Before = NOTHING
) -> Tensor:
    if first.kind == "layer":
        x = functional.layer_norm(x, x.shape[-1:], first.gain, first.shift, first.eps)
    elif first.kind == "rms":
        x = functional.rms_norm(x, x.shape[-1:], first.gain, first.eps)
    elif first.kind == "gelu":
        x = functional.gelu(x, approximate="tanh")
    elif first.kind == "swiglu":
        gate, up = x.chunk(2, -1)
        x = functional.silu(gate) * up
    return forward(x)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["gpt", "llama"])
def test_a_fused_layer_is_the_same_compiled_and_checkpointed(form):
    layer, x = engine_layer(form, "row"), torch.randn(2, 10, 64)
    expected = results(layer, x, list(layer.parameters()))
    kept = results(lambda t: checkpoint(layer, t, use_reentrant=False), x, list(layer.parameters()))
    compiled = torch.compile(copy.deepcopy(layer), backend="aot_eager")
    traced = results(compiled, x, list(compiled.parameters()))
    for found in (kept, traced):
        for got, right in zip(found, expected, strict=True):
            torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-6)


def test_autocast_leaves_norms_of_wide_tokens_as_they_are():
    layer, x = engine_layer("gpt", "row"), torch.randn(2, 10, 64) * 100 + 1000
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    exact = precision.revert(copy.deepcopy(layer)).double()(x.double()).detach()
    change = out.detach().double() - x - (exact - x)
    assert float(change.norm() / (exact - x).norm()) < 0.1


def test_a_transformer_layer_says_what_does_not_fit():
    for given, said in (
        ({"heads": 3}, "3 heads must divide the width, 64"),
        ({"heads": 4, "kv_heads": 3}, "3 heads of keys must divide the 4 of queries"),
        ({"heads": 4, "norm": "batch"}, "norm is layer or rms"),
    ):
        with pytest.raises(ValueError, match=said):
            precision.transformer_engine_layer(64, **given)
