"""What torch's kernels are given for a mask or bias; that they compute with it, tests/gpu shows."""

import dataclasses

import pytest
import torch

from accel.attention import BACKENDS, Problem, describe
from accel.attention.backends.torch_kernels import _BIAS_STEP, _added, _hides_all
from accel.attention.inputs import Inputs

GPU = torch.device("cuda", 0)


def inputs(bias, seq_q=20, seq_k=30):
    q, k = torch.randn(2, 4, seq_q, 16), torch.randn(2, 4, seq_k, 16)
    return Inputs(q, k, k, bias), describe(q, k, k, bias=bias)


@pytest.mark.parametrize("of_rows", [1, _BIAS_STEP])
@pytest.mark.parametrize("size", [(2, 4, 20, 30), (1, 4, 20, 30), (2, 1, 1, 30), (1, 1, 20, 1)])
@pytest.mark.parametrize("kind", ["mask", "bias", "turned"])
def test_a_bias_is_expanded_with_rows_where_kernels_can_load_them(kind, size, of_rows):
    bias = torch.randn(size)
    if kind == "turned":
        bias = torch.randn(*size[:2], size[3], size[2]).mT
    if kind == "mask":
        bias = bias > 0
    x, problem = inputs(bias)
    added = _added(x, problem, of_rows)
    expected = torch.zeros(size).masked_fill(~bias, -torch.inf) if kind == "mask" else bias
    assert added.shape == (2, 4, 20, 30) and added.stride(3) == 1
    assert torch.equal(added, expected.expand(2, 4, 20, 30))
    assert all(step % of_rows == 0 for step in added.stride()[:3])


def test_nothing_is_copied_where_rows_can_be_loaded_as_they_are():
    bias = torch.randn(1, 4, 20, 32)
    x, problem = inputs(bias, seq_k=32)
    assert _added(x, problem, _BIAS_STEP).data_ptr() == bias.data_ptr()
    assert _added(*inputs(None)) is None


def test_rows_that_a_mask_hides_are_known():
    bias = torch.zeros(1, 2, 3, 5)
    bias[:, 1, 2] = -torch.inf
    assert _hides_all(bias).tolist() == [[[False, False, False], [False, False, True]]]
    assert torch.equal(_hides_all(bias == 0), _hides_all(bias))


def test_what_was_not_tried_is_refused_by_name():
    plain = Problem(2, 4, 4, 20, 30, 64, torch.bfloat16, GPU, (9, 0), 0.1, bias="float")
    cudnn, efficient = BACKENDS["cudnn"], BACKENDS["efficient"]
    for direction in ("forward", "backward"):
        assert cudnn.refusal(plain, direction) is efficient.refusal(plain, direction) is None

    def why(backend, direction="forward", **changes):
        return backend.refusal(dataclasses.replace(plain, **changes), direction)

    assert "no gradient of a bias" in why(cudnn, "backward", bias_grad=True)
    assert why(efficient, "backward", bias_grad=True) is None
    assert "on compute capability 9.0 only" in why(cudnn, capability=(8, 0))
    assert "head sizes up to 128, not 256 with a bias" in why(cudnn, head_dim=256)
    assert "no mask beside a causal mask" in why(efficient, bias="bool", right=0)
