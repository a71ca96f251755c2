"""What is no tensor, or says nothing that can be computed, is refused by a line that says so."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpudeck import accel
from gpudeck.accel import precision

X = torch.randn(1, 8, 2, 16)  # also a linear attention's q, k and v: eight tokens, two heads
A, B = torch.randn(8, 16), torch.randn(16, 4)
GRAD = A.clone().requires_grad_()
EXPERTS = torch.randn(2, 16, 4)
LAYERS = nn.Sequential(nn.Linear(16, 16))


def linear(q=X, **rules):
    return accel.linear_attention(q, X, X, kind="ssd", decay=-torch.rand(1, 8, 2), **rules)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: accel.attention(X.numpy(), X, X), r"q must be a torch\.Tensor; got numpy.ndarray"),
        (lambda: accel.attention(X, None, X), r"k must be a torch\.Tensor; got None$"),
        (lambda: accel.attention(X, X, X, sink=[0.0] * 8), "sink must be a torch.Tensor; got list"),
        (lambda: accel.explain(X, X, X, alibi=0.5), "alibi must be a torch.Tensor; got float"),
        (lambda: accel.attention(X, X, X, seqlens=[2, 6]), r"Ragged\.of\(lengths, device=\.\.\.\)"),
        (lambda: accel.attention(X, X, X, block_mask=X), "create_block_mask .* got Tensor"),
        (lambda: accel.Ragged.of([1.5, 2], device="cpu"), "'float' object cannot be interpreted"),
        (lambda: accel.flex_attention(X, X, X, 3), r"function of \(score, .*\); got int"),
        (lambda: accel.flex_attention(X, X, X, block_mask=X), "create_block_mask .* got Tensor"),
        (lambda: accel.gemm(A.numpy(), B), "a must be a torch.Tensor; got numpy.ndarray"),
        (lambda: accel.gemm(A, B, bias=[1.0] * 4), "bias must be a torch.Tensor; got list"),
        (lambda: accel.grouped_gemm(A, EXPERTS, [0, 2, 8]), "starts must be a torch.Tensor"),
        (lambda: precision.convert(A), r"model must be a torch\.nn\.Module; got Tensor"),
        (lambda: precision.convert(LAYERS, wanted={"0"}), "wanted must be a function.* got set"),
        (
            lambda: precision.dynamic_precision_select(LAYERS, A),
            r"such as lambda m: m\(batch\); got Tensor",
        ),
        (
            lambda: accel.explain_gemm(A, B, bais=None),
            "no argument is called 'bais'. There are: bias",
        ),
        (lambda: accel.explain_linear(X, X, X, knd="ssd"), "no argument is called 'knd'"),
        (lambda: linear(q=None), "q must be a torch.Tensor; got None"),
        (lambda: linear(starts=[0, 8]), "starts must be a torch.Tensor; got list"),
    ],
)
def test_what_has_another_type_is_named(call, said):
    with pytest.raises(TypeError, match=said):
        call()


@pytest.mark.parametrize(
    "rules", [{"bias": torch.zeros(1)}, {"activation": "tanh"}, {"out_dtype": torch.int32}]
)
@pytest.mark.parametrize("a", [A, GRAD], ids=["plain", "with gradients"])
def test_a_product_with_gradients_refuses_what_one_without_refuses(a, rules):
    with pytest.raises(ValueError, match=next(iter(rules))):
        accel.gemm(a, B, **rules)


@pytest.mark.parametrize("starts", [[0, 2, 7], [1, 2, 8], [0, 9, 8]])
def test_every_row_belongs_to_an_expert(starts):
    with pytest.raises(ValueError, match="starts must rise from 0 to the number of rows, 8; got"):
        accel.grouped_gemm(A, EXPERTS, torch.tensor(starts))


def test_the_rows_of_experts_have_gradients():
    accel.grouped_gemm(GRAD, EXPERTS, torch.tensor([0, 2, 8])).sum().backward()
    exact = torch.cat((EXPERTS[0].sum(1).expand(2, -1), EXPERTS[1].sum(1).expand(6, -1)))
    torch.testing.assert_close(GRAD.grad, exact)


def test_factors_given_as_logarithms_of_decays_are_noticed():
    with pytest.raises(ValueError, match=r"at most 0; got up to 0\.9.* decay\.log\(\)"):
        accel.linear_attention(X, X, X, kind="ssd", decay=torch.full((1, 8, 2), 0.9))


def test_a_converted_model_can_be_converted_to_another_recipe():
    model = nn.Sequential(nn.Linear(16, 16))
    precision.convert(precision.convert(model, "row"), "block")
    assert "recipe block" in precision.describe(model)
    kept = model[0]
    assert precision.convert(model, "block")[0] is kept


def test_a_model_without_linear_layers_says_so():
    chosen = precision.dynamic_precision_select(nn.ReLU(), lambda m: m(A))
    assert str(chosen) == "no plain linear layer was called"


def test_completion_offers_the_names():
    assert {"attention", "gemm", "linear_attention", "flex_attention"} <= set(dir(accel))
    assert {"convert", "describe", "dynamic_precision_select"} <= set(dir(precision))
