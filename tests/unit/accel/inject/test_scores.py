"""Delayed scores give what the program computes, forward and backward, and say what ran."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from gpudeck.accel.inject import link, record, scores

from .forms import CAUSAL, FORMS, ORIGINAL, q_k_v, scaled_and_causal


@pytest.fixture(autouse=True)
def clean():
    torch.manual_seed(0)
    record.clear()
    yield
    record.clear()


def results(form, module, inputs):
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    out = form(module, *leaves)
    weights = torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype)
    grads = torch.autograd.grad((out.nan_to_num(0.0) * weights).sum(), leaves)
    return out, grads


def ran():
    return {row["what"] for row in record.report()}


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_a_linked_form_equals_the_original(form):
    inputs = FORMS[form]()
    out, grads = results(form, ORIGINAL, inputs)
    ours, our_grads = results(form, link, inputs)
    assert ran() <= {"linked", "linked as causal attention"} and len(ran()) == 1
    torch.testing.assert_close(ours, out, rtol=2e-5, atol=2e-6, equal_nan=True)
    for mine, theirs in zip(our_grads, grads, strict=True):
        finite = theirs.isfinite()  # the original's gradients are NaN beside a row without keys
        torch.testing.assert_close(mine[finite], theirs[finite], rtol=2e-4, atol=5e-6)


@pytest.mark.parametrize(
    "form",
    [pytest.param(f, marks=[pytest.mark.slow] * (n > 1)) for n, f in enumerate(FORMS)],
    ids=lambda f: f.__name__,
)
def test_compiled_code_is_one_graph_and_equal(form):
    inputs = FORMS[form]()
    torch._dynamo.reset()
    compiled = torch.compile(lambda *t: form(link, *t), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(
        compiled(*inputs), form(ORIGINAL, *inputs), rtol=2e-5, atol=2e-6, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_half_precision_the_error_is_no_larger_than_the_original_s(dtype):
    inputs = q_k_v()
    exact = scaled_and_causal(ORIGINAL, *(t.double() for t in inputs))
    half = [t.to(dtype) for t in inputs]
    ours, theirs = scaled_and_causal(link, *half), scaled_and_causal(ORIGINAL, *half)
    assert ours.dtype == dtype
    assert (ours - exact).norm() <= 1.1 * (theirs - exact).norm()


def test_autocast_decides_the_precision_as_it_does_for_the_original():
    def biased(m, q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return m.attend((m.matmul(q, k.mT) * 0.25 + CAUSAL).softmax(-1), v)

    out, ours = (biased(m, *q_k_v()) for m in (ORIGINAL, link))
    assert out.dtype == ours.dtype == torch.bfloat16
    assert ran() == {"linked"}


@pytest.mark.parametrize("autocast", [False, True])
def test_double_precision_is_kept_beside_a_mask_in_single_precision_and_under_autocast(autocast):
    q, k, v = (t.double() for t in q_k_v())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ours, theirs = (
            m.attend((m.matmul(q, k.mT) + CAUSAL).softmax(-1), v) for m in (link, ORIGINAL)
        )
    torch.testing.assert_close(ours, theirs)
    assert theirs.dtype == torch.float64
    assert ran() == {"linked"}


def test_active_dropout_computes_as_written_with_the_same_random_numbers():
    def dropped(m, q, k, v):
        torch.manual_seed(3)
        return m.attend(F.dropout(m.matmul(q, k.mT).softmax(-1), 0.5, training=True), v)

    inputs = q_k_v()
    assert torch.equal(dropped(link, *inputs), dropped(ORIGINAL, *inputs))
    assert ran() == {"computed as written: dropout was applied to the scores"}


@pytest.mark.parametrize(
    "use",
    [
        lambda a: a * a,
        lambda a: a.topk(2).values.sum(-1, keepdim=True) + a,
        torch.sigmoid,
        lambda a: 1.0 - a,
        lambda a: a.masked_fill(CAUSAL == 0, -3.0),  # which does not hide a key
        lambda a: a[..., :S_HALF],
        lambda a: a.double(),
    ],
)
def test_what_is_not_delayed_is_computed_exactly_as_written(use):
    q, k, _ = q_k_v()
    ours, theirs = use(link.matmul(q, k.mT)), use(torch.matmul(q, k.mT))
    ours = ours.tensor() if hasattr(ours, "tensor") else ours
    assert ours.dtype == theirs.dtype
    assert torch.equal(ours, theirs)


S_HALF = 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mask_that_is_made_like_the_scores_has_their_precision_and_keeps_them_delayed(dtype):
    q, k, v = (t.to(dtype) for t in q_k_v())
    size = q.shape[-2], k.shape[-2]

    def attend(module):
        scores = module.matmul(q, k.transpose(-2, -1))
        mask = scores.new_full(size, float("-inf")).triu_(1)
        assert mask.dtype == dtype and scores.new_zeros(2).dtype == dtype
        return module.attend((scores + mask).softmax(-1), v)

    limit = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(attend(link), attend(ORIGINAL), rtol=limit, atol=limit)
    assert ran() == {"linked as causal attention"}


def test_weights_that_are_used_twice_are_equal_in_both_places():
    def both(m, q, k, v):
        a = m.matmul(q, k.mT).softmax(-1)
        return m.attend(a, v) + a.mean()

    inputs = q_k_v()
    torch.testing.assert_close(both(link, *inputs), both(ORIGINAL, *inputs))


def test_changes_in_place_are_seen_through_views():
    def viewed(m, q, k, v):
        a = m.matmul(q, k.mT)
        a.transpose(-2, -1).mul_(CAUSAL)
        return m.attend(a.softmax(-1), v)

    inputs = q_k_v()
    torch.testing.assert_close(viewed(link, *inputs), viewed(ORIGINAL, *inputs))


def test_a_query_changed_in_place_meanwhile_is_an_error_not_a_wrong_result():
    q, k, _ = q_k_v()
    a = link.matmul(q, k.mT)
    q.add_(1.0)
    with pytest.raises(RuntimeError, match="changed in place"):
        a.sum()


def test_tensors_of_vmap_are_computed_as_written():
    q, k, v = q_k_v()
    ours = torch.vmap(lambda *t: link.attend(link.matmul(t[0], t[1].mT).softmax(-1), t[2]))(q, k, v)
    torch.testing.assert_close(ours, torch.matmul(torch.matmul(q, k.mT).softmax(-1), v))


@pytest.mark.parametrize("given", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_sdpa_equals_torch_s(given):
    q, k, v = q_k_v()
    ours = link.scaled_dot_product_attention(q, k, v, **given)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, **given))
    assert ran() == {"linked as causal attention" if "is_causal" in given else "linked"}


def test_sdpa_of_fewer_queries_keeps_torch_s_alignment():
    q, k, v = q_k_v()
    ours = link.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True)
    theirs = F.scaled_dot_product_attention(q[:, :, :3], k, v, is_causal=True)
    torch.testing.assert_close(ours, theirs)
    assert math.isfinite(float(ours.sum()))


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_what_is_too_small_to_gain_is_computed_exactly_as_written(form, monkeypatch):
    inputs = FORMS[form]()
    out, grads = results(form, ORIGINAL, inputs)
    monkeypatch.setitem(scores.SMALL, "cpu", 2**40)
    ours, our_grads = results(form, link, inputs)
    assert ran() == {"computed as written: it is too small to gain"}
    for mine, theirs in zip((ours, *our_grads), (out, *grads), strict=True):
        assert torch.equal(mine.nan_to_num(7.0), theirs.nan_to_num(7.0))


def test_small_means_the_number_of_scores_over_all_axes(monkeypatch):
    q, k = torch.randn(2, 3, 5, 8), torch.randn(1, 3, 8, 7)
    for limit, small in ((2 * 3 * 5 * 7, True), (2 * 3 * 5 * 7 - 1, False)):
        monkeypatch.setitem(scores.SMALL, "cpu", limit)
        assert (type(link.scores(q, k)) is scores.Scores) is not small
        rows = torch.randn(2, 3, 7, 8)
        made = link.einsum("bhid,bhjd->bhij", q, rows)
        assert (type(made) is scores.Scores) is not small
