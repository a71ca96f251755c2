"""accel.attention against an oracle of its own: explicit loops over batches, heads, queries and
keys."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudeck.accel.attention import attention, choose, describe
from gpudeck.accel.attention import reference as reference_module
from gpudeck.accel.attention.reference import reference

ON_CPU = ("flash", "math", "reference", "auto")


def oracle(q, k, v, causal, scale):
    """Softmax-weighted means, one query at a time; a query with no key gives zeros. Shares no code
    with accel."""
    batch, heads, seq_q, dim = q.shape
    kv_heads, seq_k = k.shape[1:3]
    scale = 1 / math.sqrt(dim) if scale is None else scale
    q, k, v = (x.tolist() for x in (q, k, v))
    out = torch.zeros(batch, heads, seq_q, dim, dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            g = h * kv_heads // heads
            for i in range(seq_q):
                seen = [j for j in range(seq_k) if not causal or j <= i + seq_k - seq_q]
                if not seen:
                    continue
                scores = [
                    scale * sum(x * y for x, y in zip(q[b][h][i], k[b][g][j], strict=True))
                    for j in seen
                ]
                weights = [math.exp(s - max(scores)) for s in scores]
                for d in range(dim):
                    out[b, h, i, d] = sum(
                        w * v[b][g][j][d] for w, j in zip(weights, seen, strict=True)
                    ) / sum(weights)
    return out


@st.composite
def problems(draw, least=0):
    kv_heads = draw(st.integers(1, 2))
    batch, seq_q, seq_k = (
        draw(st.integers(least, 2)),
        draw(st.integers(least, 6)),
        draw(st.integers(least, 6)),
    )
    dim = draw(st.integers(1, 9))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    q = torch.randn(batch, kv_heads * draw(st.integers(1, 3)), seq_q, dim, generator=generator)
    k, v = (torch.randn(batch, kv_heads, seq_k, dim, generator=generator) for _ in range(2))
    return q, k, v, draw(st.booleans()), draw(st.none() | st.floats(0.01, 4.0))


def random(shape_q, shape_kv=None, dtype=torch.float32, grad=False):
    shapes = (shape_q, shape_kv or shape_q, shape_kv or shape_q)
    return tuple(torch.randn(s, dtype=dtype, requires_grad=grad) for s in shapes)


@settings(max_examples=60, deadline=None)
@given(problem=problems(), backend=st.sampled_from(ON_CPU))
def test_every_backend_gives_what_the_formula_says(problem, backend):
    q, k, v, causal, scale = problem
    out, choice = attention(
        q, k, v, causal=causal, scale=scale, backend=backend, return_choice=True
    )
    assert out.shape == q.shape and out.dtype == q.dtype
    torch.testing.assert_close(out.double(), oracle(q, k, v, causal, scale), rtol=1e-5, atol=1e-5)
    assert choice.backend == (backend if backend != "auto" else "flash")


@settings(max_examples=30, deadline=None)
@given(problem=problems(), backend=st.sampled_from(ON_CPU))
def test_gradients_are_those_of_the_float64_reference(problem, backend):
    q, k, v, causal, scale = problem
    inputs = [x.requires_grad_() for x in (q, k, v)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    weight = torch.randn(q.shape)
    (attention(*inputs, causal=causal, scale=scale, backend=backend) * weight).sum().backward()
    (reference(*exact, causal=causal, scale=scale) * weight).sum().backward()
    for ours, theirs in zip(inputs, exact, strict=True):
        # A problem with nothing in it may leave the reference's input unused.
        truth = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
        torch.testing.assert_close(ours.grad.double(), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("seq_q", "seq_k"), [(3, 5), (5, 3), (4, 4)])
def test_reference_gradients_by_finite_differences(causal, seq_q, seq_k):
    q, k, v = random((1, 2, seq_q, 3), (1, 1, seq_k, 3), torch.float64, grad=True)
    assert torch.autograd.gradcheck(lambda *x: reference(*x, causal=causal), (q, k, v))


@pytest.mark.parametrize("backend", ON_CPU)
def test_queries_without_a_key_give_exact_zeros_and_no_nan_in_the_gradient(backend):
    q, k, v = random((2, 4, 7, 8), (2, 2, 3, 8), grad=True)
    out = attention(q, k, v, causal=True, backend=backend)
    assert torch.equal(out[:, :, :4], torch.zeros(2, 4, 4, 8))
    assert out[:, :, 4:].abs().min() > 0
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert torch.equal(q.grad[:, :, :4], torch.zeros(2, 4, 4, 8))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", ["flash", "math", "auto"])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision_errs_at_most_twice_as_much_as_the_plain_computation(dtype, backend, causal):
    q, k, v = random((2, 4, 40, 32), (2, 2, 65, 32), dtype)
    exact = reference(q, k, v, causal=causal)
    plain = reference(q, k, v, causal=causal, dtype=dtype)
    out = attention(q, k, v, causal=causal, backend=backend)
    assert out.dtype == dtype
    assert (out - exact).abs().max() <= 2 * (plain - exact).abs().max() + 1e-5


@pytest.mark.parametrize("backend", ON_CPU)
def test_the_last_queries_of_a_long_prompt_are_those_of_a_decoding_step(backend):
    q, k, v = random((1, 2, 33, 16))
    whole = attention(q, k, v, causal=True, backend=backend)
    for last in (1, 5):
        step = attention(q[:, :, -last:], k, v, causal=True, backend=backend)
        torch.testing.assert_close(step, whole[:, :, -last:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ON_CPU)
def test_huge_scores_do_not_overflow(backend):
    q, k, v = random((1, 1, 9, 8))
    out = attention(q * 1e4, k * 1e4, v, causal=True, backend=backend)
    torch.testing.assert_close(
        out, reference(q * 1e4, k * 1e4, v, causal=True).float(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("backend", ON_CPU)
def test_a_transposed_view_is_as_good_as_a_copy(backend):
    q, k, v = (torch.randn(2, 11, 3, 8).transpose(1, 2) for _ in range(3))
    torch.testing.assert_close(
        attention(q, k, v, backend=backend).double(), reference(q, k, v), rtol=1e-5, atol=1e-5
    )


def test_the_reference_in_blocks_is_the_reference_at_once(monkeypatch):
    q, k, v = random((2, 2, 37, 4), (2, 1, 21, 4))
    whole = reference(q, k, v, causal=True)
    monkeypatch.setattr(reference_module, "SCORES_AT_ONCE", 50)  # two rows at a time
    torch.testing.assert_close(reference(q, k, v, causal=True), whole, rtol=1e-12, atol=1e-12)


def test_auto_passes_over_a_backend_that_cannot_and_says_why():
    q = torch.randn(1, 1, 8, 4)
    out, choice = attention(q, q, q, softcap=2.0, return_choice=True)
    assert choice.backend == "math"
    assert (
        str(choice.reason)
        == "auto: the first of flash, math that can do it; not flash: it takes no softcap"
    )
    torch.testing.assert_close(out.double(), reference(q, q, q, softcap=2.0), rtol=1e-5, atol=1e-5)


def test_a_named_backend_is_never_replaced():
    q = torch.randn(1, 1, 8, 4)
    with pytest.raises(
        ValueError,
        match=r"backend flash cannot do this: it takes no softcap\. These can: math, reference$",
    ):
        attention(q, q, q, softcap=2.0, backend="flash")
    with pytest.raises(
        ValueError,
        match=(
            r"backend cudnn cannot do this: it needs a CUDA GPU; the tensors are on cpu; takes"
            r" float16 and bfloat16, not float32\."
        ),
    ):
        attention(*random((1, 1, 8, 8)), backend="cudnn")
    every = "auto, hopper, flash, cudnn, fa4, fa3, triton, turing, decoding, efficient, math"
    with pytest.raises(
        ValueError, match=rf"no backend is called 'fast'\. There are: {every}, reference$"
    ):
        attention(*random((1, 1, 8, 8)), backend="fast")


def test_the_choice_names_every_candidate():
    problem = describe(*random((1, 2, 4, 8)))
    choice = choose(problem, "math")
    assert (choice.backend, str(choice.reason)) == ("math", "named by the caller")
    assert [c.backend for c in choice.candidates if c.refusal is None] == [
        "flash",
        "math",
        "reference",
    ]
    assert [c.backend for c in choice.candidates if c.refusal] == [
        "hopper",
        "cudnn",
        "fa4",
        "fa3",
        "triton",
        "turing",
        "decoding",
        "efficient",
    ]


def test_a_row_whose_keys_all_have_the_same_low_bias_is_their_mean():
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    bias = torch.zeros(1, 1, 5, 5)
    bias[:, :, 2] = -1e9
    out = attention(q, k, v, bias=bias, backend="math")
    torch.testing.assert_close(out[:, :, 2], v.mean(2))
