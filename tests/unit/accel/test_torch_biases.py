"""What torch's kernels are given for a mask or bias, and how their answers are read.

The kernels are played as they behaved on an H200; tests/gpu runs the real ones."""

import dataclasses
import inspect

import pytest
import torch

from gpudeck.accel.attention import Problem, describe
from gpudeck.accel.attention.backends import torch_kernels
from gpudeck.accel.attention.backends.torch_kernels import _BIAS_STEP, _expand_bias, _hides_all
from gpudeck.accel.attention.dispatch import rule_out
from gpudeck.accel.attention.inputs import Inputs, arrange
from gpudeck.accel.attention.passes import backward, forward

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
    added = _expand_bias(x, problem, of_rows)
    expected = torch.zeros(size).masked_fill(~bias, -torch.inf) if kind == "mask" else bias
    assert added.shape == (2, 4, 20, 30) and added.stride(3) == 1
    assert torch.equal(added, expected.expand(2, 4, 20, 30))
    assert all(step % of_rows == 0 for step in added.stride()[:3])


def test_nothing_is_copied_where_rows_can_be_loaded_as_they_are():
    bias = torch.randn(1, 4, 20, 32)
    x, problem = inputs(bias, seq_k=32)
    assert _expand_bias(x, problem, _BIAS_STEP).data_ptr() == bias.data_ptr()
    assert _expand_bias(*inputs(None)) is None


def test_rows_that_a_mask_hides_are_known():
    bias = torch.zeros(1, 2, 3, 5)
    bias[:, 1, 2] = -torch.inf
    assert _hides_all(bias).tolist() == [[[False, False, False], [False, False, True]]]
    assert torch.equal(_hides_all(bias == 0), _hides_all(bias))


class Kernels:
    """Compute as torch's kernels did on an H200 (cuDNN 9.19), in their layouts."""

    def __init__(self):
        self.calls = []

    def weights(self, q, k, bias, scale, causal):
        scores = q.double() @ k.double().mT * scale + bias.double()
        if causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -torch.inf)
        lse = torch.logsumexp(scores, -1)
        return scores, lse

    def grads(self, dout, q, k, v, out, lse, bias, scale, causal):
        scores, _ = self.weights(q, k, bias, scale, causal)
        p = torch.exp(scores - lse.double()[..., None]).nan_to_num(0.0)
        d, o = dout.double(), out.double()
        ds = p * (d @ v.double().mT - (d * o).sum(-1, keepdim=True))
        return (
            (ds @ k.double() * scale).to(q.dtype), (ds.mT @ q.double() * scale).to(k.dtype),
            (p.mT @ d).to(v.dtype), ds.to(q.dtype),
        )  # fmt: skip

    def _scaled_dot_product_cudnn_attention(
        self, q, k, v, bias, compute_lse, dropout, causal, debug, *, scale
    ):
        assert compute_lse and not dropout and not debug and bias.stride(-1) == 1
        scores, lse = self.weights(q, k, bias, scale, causal)
        out = torch.softmax(scores, -1).nan_to_num(0.0) @ v.double()
        self.calls.append("cudnn")
        return out.to(q.dtype), lse.float().unsqueeze(-1), None

    def _scaled_dot_product_cudnn_attention_backward(
        self, dout, q, k, v, out, lse, seed, offset, bias, starts_q, starts_k, longest_q,
        longest_k, dropout, causal, *, scale
    ):  # fmt: skip
        assert (longest_q, longest_k) == (q.shape[2], k.shape[2]) and starts_q is starts_k is None
        self.calls.append("cudnn backward")
        return self.grads(dout, q, k, v, out, lse.squeeze(-1), bias, scale, causal)[:3]

    def _efficient_attention_forward(
        self, q, k, v, bias, starts_q, starts_k, longest_q, longest_k, dropout, mask, lse, *, scale
    ):
        assert mask == 0 and lse and all(step % 8 == 0 for step in bias.stride()[:3])
        rows = [t.transpose(1, 2) for t in (q, k, v)]
        scores, lse = self.weights(*rows[:2], bias, scale, causal=False)
        out = torch.softmax(scores, -1).nan_to_num(0.0) @ rows[2].double()
        padded = torch.zeros(*lse.shape[:2], -(-lse.shape[2] // 32) * 32)
        padded[..., : lse.shape[2]] = lse.masked_fill(lse.isneginf(), 0.0)
        self.calls.append("efficient")
        return out.to(q.dtype).transpose(1, 2), padded, None

    def _efficient_attention_backward(
        self, dout, q, k, v, bias, out, starts_q, starts_k, longest_q, longest_k, lse, dropout,
        seed, offset, mask, bias_grad, *, scale
    ):  # fmt: skip
        assert mask == 0 and lse.shape[2] % 32 == 0 and lse.isfinite().all()
        rows = [t.transpose(1, 2) for t in (dout, q, k, v, out)]
        d, q, k, v, o = rows
        *grads, dbias = self.grads(
            d, q, k, v, o, lse[:, :, : q.shape[2]], bias, scale, causal=False
        )
        self.calls.append("efficient backward")
        return *(g.transpose(1, 2) for g in grads), dbias if bias_grad else None


@pytest.mark.parametrize("kind", ["mask", "padding", "hidden rows", "bias", "bias per key"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", ["cudnn", "efficient"])
def test_the_kernels_get_what_they_need_and_their_answers_are_read_right(
    monkeypatch, backend, causal, kind
):
    monkeypatch.setattr(torch_kernels, "_ATEN", kernels := Kernels())
    seq, at = 20, torch.arange(20)
    q, k, v, dout = (torch.randn(2, 4, seq, 16).to(torch.bfloat16) for _ in range(4))
    mask = (torch.rand(2, 1, seq, seq) > 0.3).logical_or(at == 0)
    bias = {
        "mask": mask,
        "padding": at >= torch.tensor([5, 0])[:, None, None, None],
        "hidden rows": mask & (at[:, None] > 3),
        "bias": torch.randn(1, 4, seq, seq).to(torch.bfloat16),
        "bias per key": torch.randn(2, 1, 1, seq).to(torch.bfloat16),
    }[kind]
    leaf = bias if kind in ("mask", "padding", "hidden rows") else bias.requires_grad_()
    problem = describe(q, k, v, bias=leaf, causal=causal)
    on_gpu = dataclasses.replace(problem, device=GPU, capability=(9, 0))
    x = arrange(q, k, v, leaf, None, "bhsd")
    if rule_out(on_gpu, backend, "forward"):
        assert (backend, causal) == ("efficient", True)
        return
    with torch.no_grad():
        out, lse = forward(x, problem, backend)
        exact = forward(x, problem, "math")
        for ours, theirs in zip((out, lse), exact, strict=True):
            assert torch.equal(ours.isneginf(), theirs.isneginf())
            torch.testing.assert_close(ours, theirs, atol=0.02, rtol=0.02)
        if rule_out(on_gpu, backend, "backward"):
            assert backend == "cudnn" and problem.bias_grad
            return
        found = backward(dout, x, out, lse, problem, backend)
        right = backward(dout, x, *exact, problem, "math")
    assert kernels.calls == [backend, f"{backend} backward"]
    for ours, theirs in zip(found, right, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, atol=0.03, rtol=0.03)


@pytest.mark.parametrize(
    "name", [name for name in vars(Kernels) if name.startswith(("_scaled", "_efficient"))]
)
def test_the_kernels_played_here_take_what_torchs_take(name):
    schema = getattr(torch.ops.aten, name).default._schema
    taken = [a.name for a in schema.arguments if not a.kwarg_only]
    played = inspect.signature(getattr(Kernels, name)).parameters.values()
    positional = [p for p in played if p.kind == p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    assert len(positional) == len(taken)


def test_what_was_not_tried_is_refused_by_name():
    plain = Problem(2, 4, 4, 20, 30, 64, torch.bfloat16, GPU, (9, 0), 0.1, bias="float")
    for direction in ("forward", "backward"):
        assert rule_out(plain, "cudnn", direction) is None
        assert rule_out(plain, "efficient", direction) is None

    def why(backend, direction="forward", **changes):
        reason = rule_out(dataclasses.replace(plain, **changes), backend, direction)
        return reason and str(reason)

    assert "no gradient of a bias" in why("cudnn", "backward", bias_grad=True)
    assert why("efficient", "backward", bias_grad=True) is None
    assert "on compute capability 9.0 only" in why("cudnn", capability=(8, 0))
    assert "head sizes up to 128 with a mask or bias, not 256" in why("cudnn", head_dim=256)
    assert "no mask or bias beside a causal mask" in why("efficient", bias="bool", right=0)
