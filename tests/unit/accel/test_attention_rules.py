"""Attention supports windows, softcaps, biases, ragged batches, layouts, compilation and odd
inputs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.library import opcheck
from torch.nn.functional import scaled_dot_product_attention

from gpudeck import accel
from gpudeck.accel.attention import Ragged, attention, explain
from gpudeck.accel.attention.backends.own import _expand_bias
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.attention.reference import reference

ON_CPU = ("math", "reference", "auto")


def oracle(q, k, v, *, left=None, right=None, softcap=0.0, bias=None):
    """One query at a time, in Python floats; shares no code with accel. Returns the answers and the
    rows' lse."""
    (batch, heads, seq_q, dim), (kv_heads, seq_k) = q.shape, k.shape[1:3]
    out, lse = (
        torch.zeros(batch, heads, seq_q, dim, dtype=torch.float64),
        torch.full((batch, heads, seq_q), -math.inf, dtype=torch.float64),
    )
    for b, h, i in torch.cartesian_prod(
        torch.arange(batch), torch.arange(heads), torch.arange(seq_q)
    ).tolist():
        g, place, weights, total = h * kv_heads // heads, i + seq_k - seq_q, {}, 0.0
        for j in range(seq_k):
            added = (
                None if bias is None else bias.expand(batch, heads, seq_q, seq_k)[b, h, i, j].item()
            )
            if (
                (left is not None and j < place - left)
                or (right is not None and j > place + right)
                or added is False
            ):
                continue
            score = sum(
                x * y for x, y in zip(q[b, h, i].tolist(), k[b, g, j].tolist(), strict=True)
            ) / math.sqrt(dim)
            score = softcap * math.tanh(score / softcap) if softcap else score
            weights[j] = math.exp(score + (added if isinstance(added, float) else 0.0))
            total += weights[j]
        for j, w in weights.items():
            out[b, h, i] += w / total * v[b, g, j].double()
        if weights:
            lse[b, h, i] = math.log(total)
    return out, lse


def random(shape_q, shape_kv=None, dtype=torch.float32, grad=False):
    shapes = (shape_q, shape_kv or shape_q, shape_kv or shape_q)
    return tuple(torch.randn(s, dtype=dtype, requires_grad=grad) for s in shapes)


SIDE = st.none() | st.integers(0, 7)
WINDOW = st.tuples(st.none() | st.integers(-4, 7), st.none() | st.integers(-4, 7)).filter(
    lambda sides: None in sides or sum(sides) >= 0
)
"""Negative sides begin beyond the query's own position."""


@st.composite
def problems(draw):
    torch.manual_seed(draw(st.integers(0, 2**31)))
    batch, kv_heads, group = (
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
    )
    seq_q, seq_k, dim = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    q, k, v = random((batch, kv_heads * group, seq_q, dim), (batch, kv_heads, seq_k, dim))
    shape = tuple(draw(st.sampled_from((n, 1))) for n in (batch, kv_heads * group, seq_q, seq_k))
    bias = draw(st.sampled_from((None, torch.randn(shape), torch.rand(shape) > 0.4)))
    left, right = draw(WINDOW)
    rules = {
        "left": left,
        "right": right,
        "softcap": draw(st.sampled_from((0.0, 0.7))),
        "bias": bias,
    }
    return (q, k, v), rules


@settings(max_examples=60, deadline=None)
@given(problem=problems(), backend=st.sampled_from(ON_CPU))
def test_windows_softcaps_and_biases_are_what_the_formula_says(problem, backend):
    tensors, rules = problem
    window = (rules["left"], rules["right"])
    out, lse = attention(
        *tensors,
        window=window,
        softcap=rules["softcap"],
        bias=rules["bias"],
        backend=backend,
        return_lse=True,
    )
    exact, exact_lse = oracle(*tensors, **rules)
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), exact_lse, rtol=1e-5, atol=1e-5)
    assert lse.dtype == torch.float32


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_gradients_of_math_are_those_of_the_recorded_reference(problem):
    tensors, rules = problem
    bias = rules["bias"]
    leaves = [
        t.clone().requires_grad_()
        for t in (*tensors, *([bias] if bias is not None and bias.dtype != torch.bool else []))
    ]
    weight = torch.randn(tensors[0].shape)
    found = []
    for backend in ("math", "reference"):
        given = leaves[3] if len(leaves) == 4 else bias
        out = attention(
            *leaves[:3],
            window=(rules["left"], rules["right"]),
            softcap=rules["softcap"],
            bias=given,
            backend=backend,
            deterministic=True,
        )
        found.append(torch.autograd.grad((out * weight).sum(), leaves))
    for ours, exact in zip(*found, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["math", "reference"])
def test_gradients_by_finite_differences(backend):
    q, k, v = random((1, 2, 5, 3), (1, 1, 6, 3), torch.float64, grad=True)
    bias = torch.randn(1, 2, 1, 6, dtype=torch.float64, requires_grad=True)

    def call(q, k, v, bias):
        return attention(q, k, v, window=(3, 1), softcap=1.5, bias=bias, backend=backend)

    assert torch.autograd.gradcheck(call, (q, k, v, bias))


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
    causal=st.booleans(),
    left=SIDE,
    backend=st.sampled_from(ON_CPU),
)
def test_a_ragged_batch_is_its_sequences_one_by_one(lengths, causal, left, backend):
    lengths_q, lengths_k = zip(*lengths, strict=True)
    q, k = (
        torch.randn(sum(lengths_q), 4, 3, requires_grad=True),
        torch.randn(sum(lengths_k), 2, 3, requires_grad=True),
    )
    ragged = Ragged.of(lengths_q, lengths_k, device="cpu")
    out, lse = attention(
        q,
        k,
        k,
        causal=causal,
        window=(left, None),
        seqlens=ragged,
        backend=backend,
        return_lse=True,
    )
    assert out.shape == q.shape and lse.shape == (4, len(q))
    alone = []
    for a, b in zip(q.split(lengths_q), k.split(lengths_k), strict=True):
        one, _ = oracle(
            *(t.detach().transpose(0, 1)[None] for t in (a, b, b)),
            left=left,
            right=0 if causal else None,
        )
        alone.append(one[0].transpose(0, 1))
    torch.testing.assert_close(out.double(), torch.cat(alone), rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(out.square().sum(), (q, k))
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("backend", ["flash", "math", "reference"])
def test_both_layouts_give_one_answer_and_the_answer_has_the_layout_of_the_question(backend):
    q, k, v = (torch.randn(2, 7, 3, 8, requires_grad=True) for _ in range(3))
    rows_first = attention(q, k, v, causal=True, layout="bshd", backend=backend)
    heads_first = attention(*(t.transpose(1, 2) for t in (q, k, v)), causal=True, backend=backend)
    assert rows_first.shape == q.shape and rows_first.stride() == q.stride()
    assert heads_first.stride() == q.transpose(1, 2).stride()
    assert torch.equal(rows_first, heads_first.transpose(1, 2))
    with pytest.raises(ValueError, match=r"layout is one of bhsd, bshd; got 'sbhd'"):
        attention(q, k, v, layout="sbhd")


def slices(kind):
    """q, k and v [2,3,9,8] that no kernel can load as they are."""
    if kind == "a slice of one projection":
        return torch.randn(2, 9, 3, 3, 8).permute(3, 0, 2, 1, 4).unbind(0)
    if kind == "heads' elements apart":
        return tuple(torch.randn(2, 3, 8, 9).mT for _ in range(3))
    if kind == "an odd address":
        return tuple(torch.randn(2 * 3 * 9 * 8 + 1)[1:].view(2, 3, 9, 8) for _ in range(3))
    if kind == "one head for all":
        return torch.randn(2, 3, 9, 8), *(
            torch.randn(2, 1, 9, 8).expand(2, 3, 9, 8) for _ in range(2)
        )
    return tuple(torch.randn(2, 3, 9, 11)[..., :8] for _ in range(3))


@pytest.mark.parametrize("backend", ["flash", "math", "reference"])
@pytest.mark.parametrize(
    "kind",
    [
        "a slice of one projection",
        "heads' elements apart",
        "an odd address",
        "one head for all",
        "part of each row",
    ],
)
def test_any_strides_give_the_answer_of_a_copy_with_gradients(kind, backend):
    odd = [t.requires_grad_() for t in map(torch.Tensor.detach, slices(kind))]
    plain = [t.detach().contiguous().requires_grad_() for t in odd]
    weight = torch.randn(2, 3, 9, 8)
    grads = []
    for tensors in (odd, plain):
        out = attention(*tensors, causal=True, backend=backend)
        grads.append((out.detach(), *torch.autograd.grad((out * weight).sum(), tensors)))
    for ours, exact in zip(*grads, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["flash", "math", "reference", "auto"])
@pytest.mark.parametrize(("seq_q", "seq_k"), [(0, 3), (3, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("batch", [0, 2])
def test_nothing_to_attend_to_gives_zeros_and_zero_gradients(batch, seq_q, seq_k, backend):
    q, k, v = random((batch, 2, seq_q, 4), (batch, 1, seq_k, 4), grad=True)
    out, lse = attention(q, k, v, causal=True, backend=backend, return_lse=True)
    assert out.shape == q.shape and lse.shape == q.shape[:3]
    if seq_k == 0:
        assert not out.any() and torch.isneginf(lse).all()
    out.sum().backward()
    assert all(
        x.grad is not None and x.grad.shape == x.shape and x.grad.isfinite().all()
        for x in (q, k, v)
    )


@pytest.mark.parametrize("backend", ["flash", "math", "reference"])
def test_a_nan_stays_in_its_sequence_and_its_head(backend):
    q, k, v = random((2, 4, 9, 8), (2, 2, 9, 8))
    clean = attention(q, k, v, backend=backend)
    for poisoned, rows in (
        (q, (1, slice(2, 3), slice(4, 5))),
        (v, (1, slice(2, 4), slice(None))),
        (k, (1, slice(2, 4), slice(None))),
    ):
        place = (1, 2, 4, 0) if poisoned is q else (1, 1, 4, 0)
        kept, poisoned[place] = poisoned[place].item(), math.nan
        out = attention(q, k, v, backend=backend)
        assert out[rows].isnan().any()
        out[rows] = clean[rows]
        assert torch.equal(out, clean)
        poisoned[place] = kept


@pytest.mark.parametrize("keys", [1, 2, 7, 8, 15, 16, 17])
@pytest.mark.parametrize("causal", [False, True])
def test_a_nan_in_a_query_is_in_its_answer_however_few_keys_there_are(keys, causal):
    q, k, v = random((1, 2, keys, 8), (1, 2, keys, 8))
    q[0, 1, keys - 1, 3] = math.nan
    for backend in ("flash", "math", "reference"):
        out, lse = attention(q, k, v, causal=causal, backend=backend, return_lse=True)
        assert out[0, 1, -1].isnan().all() and lse[0, 1, -1].isnan()
        assert not out[0, 0].isnan().any() and not out[0, 1, :-1].isnan().any()


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 1), (2, 7), (9, 9), (12, 15), (3, 16)])
@pytest.mark.parametrize("causal", [False, True])
def test_a_nan_in_a_key_is_in_the_answers_of_all_that_see_it_however_few_keys_there_are(
    queries, keys, causal
):
    q, k, v = random((2, 4, queries, 8), (2, 2, keys, 8))
    k[1, 0, 0, 5] = math.nan  # heads 0 and 1 share it
    for backend in ("flash", "math", "reference"):
        out = attention(q, k, v, causal=causal, backend=backend)
        sees = (
            torch.arange(queries) + keys - queries >= 0
            if causal
            else torch.ones(queries, dtype=torch.bool)
        )
        assert (
            torch.equal(out[1, :2].isnan().all(dim=-1), sees.expand(2, -1))
            and not out[0].isnan().any()
            and not out[1, 2:].isnan().any()
        )


def test_a_mask_that_hides_all_keys_of_a_row_gives_zeros():
    q, k, v = random((1, 2, 4, 8), grad=True)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    for bias in (mask, torch.zeros(4, 4).masked_fill(~mask, -math.inf)):
        out, lse = attention(q, k, v, bias=bias, return_lse=True)
        assert (
            not out[:, :, 2].any()
            and torch.isneginf(lse[:, :, 2]).all()
            and lse[:, :, 1].isfinite().all()
        )
        assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": (3, -4)}, r"window must contain at least one key; got \(3, -4\)"),
        (
            {"window": (-1, None), "causal": True},
            r"window must contain at least one key; got \(-1, None\) with causal",
        ),
        (
            {"window": (2.0, None)},
            r"window must be \(left, right\), each a number of keys or None; got \(2.0, None\)",
        ),
        (
            {"window": (3,)},
            r"window must be \(left, right\), each a number of keys or None; got \(3,\)",
        ),
        (
            {"window": None},
            r"window must be \(left, right\), each a number of keys or None; got None",
        ),
        (
            {"scale": torch.tensor(0.5)},
            r"scale must be a number or None; multiply q by a tensor instead",
        ),
        (
            {"return_lse": True, "return_choice": True},
            r"return_lse and return_choice cannot be had in one call",
        ),
        ({"softcap": -2.0}, r"softcap must be a finite number above 0, or 0 for none; got -2.0"),
        (
            {"bias": torch.zeros(3, 4)},
            r"broadcastable to \[batch, heads, queries, keys\] = \[1, 2, 4, 4\]; got \[3, 4\]",
        ),
        (
            {"bias": torch.zeros(4, dtype=torch.int64)},
            r"bias must be bool \(True: may be seen\) or float32 as q is; got int64",
        ),
        (
            {"seqlens": Ragged.of([5], device="cpu")},
            r"the documents of a row must add up to 4 queries and 4 keys; got 5 and 5",
        ),
    ],
)
def test_rules_that_make_no_sense_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        attention(*random((1, 2, 4, 8)), **given)


def test_ragged_starts_are_checked():
    with pytest.raises(
        ValueError, match=r"as many lengths of queries as of keys are needed; got 2 and 1"
    ):
        Ragged.of([1, 2], [3], device="cpu")
    with pytest.raises(ValueError, match=r"a length cannot be below 0"):
        Ragged.of([1, -2], device="cpu")
    q = torch.randn(3, 2, 8)
    starts = torch.tensor([0, 3])
    with pytest.raises(
        ValueError,
        match=(
            r"starts_q must be contiguous int32 \[sequences \+ 1\] on cpu; got int64 \[2\] with"
            r" strides"
        ),
    ):
        attention(q, q, q, seqlens=Ragged(starts, starts, 3, 3))
    apart = torch.zeros(4, dtype=torch.int32)[::2]
    with pytest.raises(
        ValueError, match=r"starts_q must be contiguous int32 .* with strides \[2\] on cpu"
    ):
        attention(q, q, q, seqlens=Ragged(apart, apart, 3, 3))
    with pytest.raises(ValueError, match=r"the lengths add up to 2 queries; got tensors of 3"):
        attention(q, q, q, seqlens=Ragged.of([2], device="cpu"))
    with pytest.raises(ValueError, match=r"a bias or mask cannot be given with seqlens"):
        attention(q, q, q, seqlens=Ragged.of([3], device="cpu"), bias=torch.zeros(3, 3))


def compiled_arguments():
    q, k, v = random((2, 4, 7, 8), (2, 2, 9, 8), grad=True)
    rows_first = torch.randn(2, 7, 4, 8).transpose(1, 2).requires_grad_()
    bias = torch.randn(1, 4, 1, 9, requires_grad=True)
    packed, shared, values = random((1, 4, 7, 8), (1, 2, 7, 8), grad=True)
    ragged = Ragged.of([3, 4], device="cpu")
    rules, none = ([-1, 0, 0, 0], [0.3, 0.0], False, "auto"), (None, None)
    sinks, slopes = torch.randn(4, requires_grad=True), torch.rand(2, 4)
    starts = (ragged.starts_q, ragged.starts_k)
    return {
        "plain": (q, k, v, None, *none, *none, *rules),
        "rows first": (rows_first, k, v, None, *none, *none, *rules),
        "bias": (q, k, v, bias, *none, *none, [4, 2, 0, 0], [0.3, 1.5], True, "math"),
        "ragged": (packed, shared, values, None, *none, *starts, [-1, 0, 4, 4], *rules[1:]),
        "sink and ALiBi": (q, k, v, None, sinks, slopes, *none, *rules),
    }


COMPILER = pytest.mark.xdist_group("compiler")
"""In one process: to import torch's compiler takes longer than most of what it is asked here."""


@COMPILER
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch 2.15 reads it in its own check
@pytest.mark.parametrize("case", ["plain", "rows first", "bias", "ragged", "sink and ALiBi"])
def test_the_operation_keeps_the_rules_of_torch(case):
    opcheck(torch.ops.gpudeck.attention_forward.default, compiled_arguments()[case])


@COMPILER
def test_a_compiled_program_has_no_break_and_gives_the_same():
    def program(q, k, v, bias):
        out, lse = attention(q * 2, k, v, window=(4, 2), bias=bias, layout="bshd", return_lse=True)
        return out.relu(), lse

    whole = torch.compile(program, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (7, 5):
        tensors = [torch.randn(2, length, 4, 8, requires_grad=True) for _ in range(3)]
        tensors.append(torch.randn(4, 1, length, requires_grad=True))
        for ours, eager in zip(whole(*tensors), program(*tensors), strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
        ours, eager = (torch.autograd.grad(f(*tensors)[0].sum(), tensors) for f in (whole, program))
        for a, b in zip(ours, eager, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@COMPILER
def test_a_window_behind_or_ahead_of_the_query_is_traced_as_such():
    q, k, v = random((1, 2, 12, 8))
    for window in ((None, -3), (-2, None), (-1, 4)):
        traced = torch.compile(
            lambda *x, w=window: attention(*x, window=w), fullgraph=True, backend="aot_eager"
        )
        assert torch.equal(traced(q, k, v), attention(q, k, v, window=window))


@COMPILER
def test_the_packages_attribute_is_the_operation_for_compilers_and_help_too():
    q, k, v = random((1, 2, 4, 8))
    assert accel.attention is attention
    whole = torch.compile(
        lambda *x: accel.attention(*x, causal=True), fullgraph=True, backend="aot_eager"
    )
    assert torch.equal(whole(q, k, v), attention(q, k, v, causal=True))
    with pytest.raises(Exception, match="window must be"):
        torch.compile(
            lambda *x: accel.attention(*x, window=(3,)), fullgraph=True, backend="aot_eager"
        )(q, k, v)


@pytest.mark.parametrize(
    "dtypes", [(torch.float32,) * 3, (torch.float16, torch.float32, torch.float32)]
)
def test_autocast_casts_as_scaled_dot_product_attention_does(dtypes):
    q, k, v = (torch.randn(1, 2, 9, 8, dtype=d, requires_grad=True) for d in dtypes)
    bias = torch.randn(9, 9, requires_grad=True)
    found = []
    with torch.autocast("cpu", torch.bfloat16):
        assert explain(q, k, v, bias=bias)[0].backend == "math"
        for call in (
            lambda: attention(q, k, v, bias=bias),
            lambda: scaled_dot_product_attention(q, k, v, attn_mask=bias),
        ):
            out = call()
            found.append((out, *torch.autograd.grad(out.float().sum(), (q, k, v, bias))))
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)
    assert found[0][0].dtype == torch.bfloat16
    wide = torch.randn(1, 1, 3, 4, dtype=torch.float64)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(wide, wide, wide).dtype == torch.float64


def test_torch_deterministic_mode_is_respected():
    q, k, v = random((1, 2, 4, 8))
    torch.use_deterministic_algorithms(True)
    try:
        assert attention(q, k, v, return_choice=True)[0].shape == q.shape
        assert any(
            "varies" in str(c.refusal)
            for c in explain(q, k, v)[1].candidates
            if c.backend == "cudnn"
        )
    finally:
        torch.use_deterministic_algorithms(False)
    assert not any("varies" in str(c.refusal) for c in explain(q, k, v)[1].candidates)


def test_a_copy_of_a_bias_that_was_expanded_gets_its_own_gradient():
    q, k, v = random((2, 2, 5, 8), grad=True)
    bias = torch.randn(1, 2, 5, 5, requires_grad=True)
    grads = [
        torch.autograd.grad(attention(q, k, v, bias=b).square().sum(), bias)[0]
        for b in (bias, bias.expand(2, 2, 5, 5))
    ]
    torch.testing.assert_close(*grads)


def test_an_explanation_says_what_would_run_both_ways():
    q, k, v = random((1, 2, 4, 8), grad=True)
    forward, backward = explain(q, k, v, causal=True)
    _, choice = attention(q, k, v, causal=True, return_choice=True)
    assert (choice, choice.direction, backward.direction) == (forward, "forward", "backward")
    assert [c.backend for c in backward.candidates if c.refusal is None] == [
        "flash",
        "math",
        "reference",
    ]


def test_a_shape_seen_before_is_still_checked_for_what_differs():
    q, k, v = random((1, 2, 4, 8))
    attention(q, k, v)
    with pytest.raises(ValueError, match="one dtype"):
        attention(q, k.half(), v)
    assert attention(q, k, v, causal=True)[0, 0, 0].equal(v[0, 0, 0])
    assert reference(q, k, v).shape == q.shape


@pytest.mark.parametrize(
    ("shape", "copied"),
    [
        ((1, 4, 49, 49), True),
        ((1, 4, 49, 56), False),
        ((64, 4, 49, 49), False),
        ((64, 1, 1, 49), False),
    ],
    ids=["small, odd rows", "rows that 8 divides", "one for each sequence", "of keys alone"],
)
def test_a_small_bias_is_copied_into_rows_that_are_loaded_quickly(shape, copied):
    torch.manual_seed(0)
    q, k = torch.zeros(64, 4, 49, 32), torch.zeros(64, 4, shape[3], 32)
    bias = torch.randn(shape)
    given = _expand_bias(Inputs(q, k, k, bias))
    assert given.shape == (64, 4, 49, shape[3]) and torch.equal(given, bias.expand_as(given))
    assert (given.data_ptr() != bias.data_ptr()) == copied
    assert not copied or given.stride() == (0, 49 * 56, 56, 1)
