"""The portable Triton kernels, interpreted on the CPU, against the float64 reference."""

import contextlib
import importlib
import importlib.util
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from gpudeck.accel.attention import flashcore
from gpudeck.accel.attention.block_masks import lists_of
from gpudeck.accel.attention.blocks import FULL, BlockLists
from gpudeck.accel.attention.kernels.geometry import (
    Target,
    bias_layout,
    geometry_key,
    geometry_of,
    list_arguments,
    target_of,
)
from gpudeck.accel.attention.kernels.portable import (
    backward,
    forward,
    kernel_backward,
    kernel_short,
    short,
)
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.attention.ragged import Ragged
from gpudeck.accel.attention.reference import reference

pytestmark = pytest.mark.xdist_group("interpreted")

PASSES = tuple(
    importlib.import_module(f"gpudeck.accel.attention.kernels.portable.{name}")
    for name in ("forward", "backward")
)
forward_calls = PASSES[0].forward_calls


def take_rules(asked):
    """Take the rules out of what is asked for by name."""
    return Rules(**{name: asked.pop(name) for name in Rules._fields if name in asked})


def gradients(dout, q, k, v, ragged=None, bias=None, dlse=None, **rules):
    """(out, lse, dq, dk, dv, dbias)."""
    ragged = None if ragged is None else Ragged(*ragged)
    asked = take_rules(rules)
    out, lse = forward(q, k, v, asked, ragged=ragged, bias=bias, **rules)
    rules.pop("sink", None)  # out and lse contain it
    if dlse is not None:
        dlse = dlse.masked_fill(lse.isneginf(), 0.0)
    given = {"ragged": ragged, "bias": bias, "dlse": dlse}
    return out, lse, *backward(dout, q, k, v, out, lse, asked, **given, **rules)


def case(q, kv=None, dtype=torch.float32, bias=None, seed=0, **rules):
    """Shapes of q and of k and v, of a bias before it is expanded; a float bias, or with `mask` a
    boolean one."""
    return {"q": q, "kv": kv or q, "dtype": dtype, "bias": bias, "seed": seed, **rules}


CASES = {
    "plain": case((2, 2, 40, 32)),
    "half precision": case((1, 2, 70, 64), dtype=torch.float16),
    "grouped, causal": case((1, 4, 70, 16), (1, 2, 70, 16), right=0),
    "causal, fewer queries": case((1, 2, 33, 16), (1, 2, 90, 16), right=0),
    "causal, more queries": case((1, 2, 90, 16), (1, 2, 33, 16), right=0),
    "window": case((1, 1, 100, 16), (1, 1, 110, 16), left=20, right=7),
    "left only, more queries": case((1, 1, 100, 16), (1, 1, 70, 16), left=5),
    "window that skips the nearest": case((1, 1, 60, 16), left=30, right=-3),
    "window ahead": case((1, 2, 60, 16), (1, 1, 75, 16), left=-4, right=33),
    "ahead only": case((1, 1, 60, 16), (1, 1, 40, 16), left=-20),
    "softcap": case((1, 1, 40, 16), softcap=1.5, right=0),
    "odd head size": case((1, 2, 35, 20), (1, 1, 35, 20)),
    "head size 1": case((1, 1, 5, 1)),
    "heads of 512, grouped, causal": case((1, 2, 40, 512), (1, 1, 40, 512), torch.float16, right=0),
    "heads of 400, one query": case((2, 2, 1, 400), (2, 1, 50, 400)),
    "grouped decode": case((2, 6, 1, 16), (2, 2, 50, 16), right=0),
    "few queries, keys split": case((1, 2, 2, 16), (1, 1, 700, 16), right=0),
    "window over split keys": case((1, 1, 3, 16), (1, 1, 600, 16), left=100, right=0),
    "bias of every pair": case((2, 2, 33, 16), bias=(2, 2, 33, 33)),
    "bias of heads and keys": case((2, 4, 20, 16), (2, 2, 40, 16), bias=(1, 4, 1, 40), right=0),
    "bias of queries": case((2, 1, 40, 16), bias=(1, 1, 40, 1), softcap=2.0),
    "one bias for all": case((2, 2, 10, 16), bias=(1, 1, 1, 1)),
    "bias shared by sequences, summed in parts": case((5, 2, 20, 16), bias=(1, 2, 20, 20)),
    "bias of short rows, shared by sequences": case(
        (2, 4, 20, 20), (2, 2, 70, 20), torch.float16, bias=(1, 4, 20, 70)
    ),
    "bias of short rows with a softcap": case(
        (2, 1, 20, 16), (2, 1, 20, 16), torch.float16, bias=(1, 1, 20, 20), softcap=4.0
    ),
    "mask": case((1, 2, 40, 16), bias=(1, 1, 40, 40), mask=True),
    "mask of keys, split": case((1, 1, 1, 16), (1, 1, 600, 16), bias=(1, 1, 1, 600), mask=True),
    "ALiBi, grouped, causal": case((2, 2, 35, 16), (2, 1, 35, 16), right=0, slopes=(2, 2)),
    "ALiBi, packed, split": case((1, 4, 2, 16), (1, 2, 600, 16), slopes=(4,)),
    "ALiBi, softcap, window": case((1, 2, 40, 16), left=9, right=3, softcap=2.0, slopes=(2,)),
    "ALiBi and a bias": case((1, 2, 20, 16), slopes=(2,), bias=(1, 2, 1, 20), right=0),
    "lse has a gradient": case((1, 4, 40, 16), (1, 2, 33, 16), right=0, lse_grad=True),
    "sink, grouped, causal": case((1, 4, 40, 16), (1, 2, 33, 16), right=0, sink=True),
    "sink, packed, split": case((1, 4, 2, 16), (1, 2, 600, 16), sink=True),
    "no keys": case((1, 2, 3, 16), (1, 1, 0, 16)),
    "no queries": case((1, 2, 0, 16), (1, 1, 3, 16)),
    "no sequences": case((0, 2, 3, 16), (0, 1, 3, 16)),
}


def data(case):
    torch.manual_seed(case["seed"])
    q, dout = (torch.randn(case["q"], dtype=case["dtype"]) for _ in range(2))
    k, v = (torch.randn(case["kv"], dtype=case["dtype"]) for _ in range(2))
    bias = None if case["bias"] is None else torch.randn(case["bias"], dtype=case["dtype"])
    if case.get("mask"):
        bias = bias > 0
        bias[..., 0, :] = (
            case["q"][2] == 1
        )  # a query that may see nothing, unless it is the only one
    return q, k, v, dout, bias


def rules_of(case):
    return {name: case.get(name) for name in ("left", "right")} | {
        "scale": case["q"][3] ** -0.5,
        "softcap": case.get("softcap", 0.0),
    }


def exact(q, k, v, dout, bias, dtype=torch.float64, ragged=None, **rules):
    """(out, lse, dq, dk, dv, dbias) of the reference, which computes in `dtype`."""
    leaves = [x.detach().to(dtype).requires_grad_() for x in (q, k, v)]
    slopes, dlse = rules.get("slopes"), rules.get("dlse")
    additive = bias is not None and bias.dtype.is_floating_point
    given = bias.detach().to(dtype).requires_grad_() if additive else bias
    window = (rules["left"], rules["right"])
    out, lse = reference(
        *leaves,
        window=window,
        scale=rules["scale"],
        softcap=rules["softcap"],
        bias=given,
        ragged=ragged,
        alibi=slopes,
        sink=rules.get("sink"),
        dtype=dtype,
        return_lse=True,
    )
    if out.requires_grad:
        answers, upstream = [out], [dout.to(dtype)]
        if dlse is not None:
            answers.append(lse.masked_fill(lse.isneginf(), 0.0))
            upstream.append(dlse.to(dtype))
        torch.autograd.backward(answers, upstream)
    grads = [
        torch.zeros_like(x) if x.grad is None else x.grad
        for x in (*leaves, *([given] if additive else []))
    ]
    return out.detach(), lse.detach(), *grads, *([] if additive else [None])


def assert_as_exact(got, truth, plain):
    """At most twice the error of the plain computation in the inputs' dtype, and a little for what
    that one happens to hit."""
    for name, ours, right, rough in zip(
        ("out", "lse", "dq", "dk", "dv", "dbias"), got, truth, plain, strict=True
    ):
        if right is None:
            assert ours is None
            continue
        assert ours.shape == right.shape, name
        assert torch.equal(ours.isinf(), right.isinf()) and not ours.isnan().any(), name
        seen = ~right.isinf()
        error = (ours.double() - right)[seen].abs()
        allowed = 2 * (rough.double() - right)[seen].abs().max() + 3e-6 if error.numel() else 0
        assert not error.numel() or error.max() <= allowed, (
            f"{name}: {error.max():.3g} > {allowed:.3g}"
        )


LONG = (
    "bias of every pair", "bias of heads and keys", "ALiBi, packed, split", "ALiBi and a bias",
    "ALiBi, softcap, window", "sink, grouped, causal",
)  # fmt: skip
LONGER = (
    "ALiBi, grouped, causal", "bias of queries", "bias of short rows, shared by sequences",
    "bias shared by sequences, summed in parts", "causal, fewer queries", "grouped, causal",
    "left only, more queries", "lse has a gradient", "mask", "mask of keys, split",
    "one bias for all", "plain", "window", "window over split keys",
)  # fmt: skip
MARKS = dict.fromkeys(LONG, pytest.mark.matrix) | dict.fromkeys(LONGER, pytest.mark.slow)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(name, ())) for name in CASES],
)
def test_the_answer_and_the_gradients_are_those_of_the_reference(interpreted, name):
    q, k, v, dout, bias = data(CASES[name])
    rules = rules_of(CASES[name])
    if "slopes" in CASES[name]:
        rules["slopes"] = torch.rand(CASES[name]["slopes"])
    if "sink" in CASES[name]:
        rules["sink"] = torch.linspace(-1.0, 4.0, q.shape[1])
    if "lse_grad" in CASES[name]:
        rules["dlse"] = torch.randn(q.shape[:3])
    expanded = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
    got = interpreted(gradients, dout, q, k, v, bias=expanded, **rules)
    assert_as_exact(
        got, exact(q, k, v, dout, bias, **rules), exact(q, k, v, dout, bias, dtype=q.dtype, **rules)
    )


SHORT, CAPPED, IN_PARTS = (
    "bias of short rows, shared by sequences", "bias of short rows with a softcap",
    "bias shared by sequences, summed in parts",
)  # fmt: skip
OF_BIAS = ("attention_dk_dv", "attention_dbias", "attention_dq_dbias")


@contextlib.contextmanager
def altered(module, source, kernels, old, new):
    """Let a module launch the kernels of a source with a defect."""
    text = Path(source.__file__).read_text()
    if text.count(old) != 1:
        raise ValueError(f"{text.count(old)} times: {old}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "planted.py"
        file.write_text(text.replace(old, new))
        spec = importlib.util.spec_from_file_location("planted", file)
        other = sys.modules["planted"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(other)
        with replaced(module, {name: getattr(other, name) for name in kernels}):
            yield


@contextlib.contextmanager
def replaced(module, names):
    """Let a module plan with other names for a while."""
    known = {name: getattr(module, name) for name in names}
    vars(module).update(names)
    forget_plans()
    try:
        yield
    finally:
        vars(module).update(known)
        forget_plans()


def forget_plans():
    for module in PASSES:
        module._plan.cache_clear()


def planted(old, new, *args, **given):
    """Return `gradients` with a defect in the source of the kernels of the bias's gradient."""
    module = PASSES[1]
    # without streams, a program of attention_dq_dbias takes all sequences
    with altered(module, kernel_backward, OF_BIAS, old, new), replaced(module, {"_STREAMS": 0}):
        return gradients(*args, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("ds_at + cols[:, None] * hint(", "ds_at + 1 + cols[:, None] * hint(", SHORT),
        ("ds_at += (place * heads + head)", "ds_at += (place * heads + kv_head)", SHORT),
        ("(batch * heads + head) * seq_k * width", "head * seq_k * width", SHORT),
        ("head // group * k_strides.head", "head * 0 * k_strides.head", SHORT),
        ("rows[None, :] * dbias_strides.row + cols", "rows[None, :] * dbias_strides.element + cols",
         SHORT),
        ("total += ds.to(tl.float32)", "total = ds.to(tl.float32)", SHORT),
        ("// sum_heads).to(tl.int64)", "// sum_heads * 0).to(tl.int64)", CAPPED),
        ("(part * chunk, tl.minimum(terms", "(part * chunk + 1, tl.minimum(terms", IN_PARTS),
        ("(terms, (part + 1) * chunk)", "(terms, (part + 1) * chunk - 1)", IN_PARTS),
        ("at = dbias_ptr + part.to(tl.int64) * part_stride\n", "at = dbias_ptr\n", IN_PARTS),
    ],
)  # fmt: skip
def test_a_planted_defect_of_the_gradient_of_a_bias_is_seen(interpreted, old, new, name):
    q, k, v, dout, bias = data(CASES[name])
    rules = rules_of(CASES[name])
    expanded = bias.expand(*q.shape[:3], k.shape[2])
    truth, plain = (exact(q, k, v, dout, bias, dtype=t, **rules) for t in (torch.float64, q.dtype))
    assert_as_exact(interpreted(gradients, dout, q, k, v, bias=expanded, **rules), truth, plain)
    got = interpreted(planted, old, new, dout, q, k, v, bias=expanded, **rules)
    with pytest.raises(AssertionError):
        assert_as_exact(got, truth, plain)


HALF = torch.float16
SHORT_KERNELS = ("attention_short", "attention_short_backward")
SEQUENCES = {
    "short, grouped, window": case((5, 4, 40, 20), (5, 2, 37, 20), HALF, left=9, right=3),
    "short, window": case((4, 3, 20, 16), (4, 3, 33, 16), HALF, left=5, right=30),
    "short, a sink, lse has a gradient": case(
        (2, 2, 33, 16), (2, 2, 20, 16), HALF, right=0, sink=True
    ),
    "short, a bias of heads": case((5, 2, 33, 16), dtype=HALF, bias=(1, 2, 33, 33)),
    "short, a bias of keys": case((3, 1, 100, 40), (3, 1, 64, 40), HALF, bias=(1, 1, 1, 64)),
    "short, a mask": case((3, 2, 20, 16), dtype=HALF, bias=(1, 1, 20, 20), mask=True),
    "one short sequence": case((1, 1, 5, 8), (1, 1, 1, 8), HALF, right=0),
}


def gradients_in_turn(planted, *args, **given):
    """Return the results of a GPU so small that a program takes several sequences."""
    with contextlib.ExitStack() as changes:
        for module in PASSES:
            changes.enter_context(replaced(module, {"target_of": lambda _: Target(80, 0)}))
        if planted:
            changes.enter_context(altered(short, kernel_short, SHORT_KERNELS, *planted))
        return gradients(*args, **given)


def in_turn(interpreted, name, planted=None):
    """Return the results, and those of the references in float64 and in half precision."""
    q, k, v, dout, bias = data(SEQUENCES[name])
    rules = rules_of(SEQUENCES[name])
    if "sink" in SEQUENCES[name]:
        rules |= {"sink": torch.linspace(-1.0, 4.0, q.shape[1]), "dlse": torch.randn(q.shape[:3])}
    expanded = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
    got = interpreted(gradients_in_turn, planted, dout, q, k, v, bias=expanded, **rules)
    return got, *(exact(q, k, v, dout, bias, dtype=t, **rules) for t in (torch.float64, HALF))


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_program_takes_several_short_sequences(interpreted, name):
    assert_as_exact(*in_turn(interpreted, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("kv_head = head // group", "kv_head = head * 0", "short, grouped, window"),
        ("first + each, sequences", "first + each, sequences - 1", "short, a bias of heads"),
        ("acc, lse = softmax_end(", "acc, lse = softmax_end(2 * ", "short, a bias of heads"),
        ("tile * BLOCK_M +", "0 * BLOCK_M +", "short, a bias of keys"),
        (
            "_at + hint(place * dout_strides",
            "_at + hint(part * dout_strides",
            "short, a bias of heads",
        ),
        ("total += ds", "total = ds", "short, a bias of heads"),
        ("qk_scale + turned", "qk_scale", "short, a bias of heads"),
        ("anchor(m, FORM.bias is not None or FORM.left or FORM.right)", "m", "short, a mask"),
        ("delta -= tl.load", "delta += tl.load", "short, a sink, lse has a gradient"),
        ("delta[None, :])\n        dk", "0)\n        dk", "short, window"),
        ("part * each, tl.min", "part * each + 1, tl.min", "short, window"),
    ],
)
def test_a_planted_defect_of_short_sequences_is_seen(interpreted, old, new, name):
    with pytest.raises(AssertionError):
        assert_as_exact(*in_turn(interpreted, name, (old, new)))


def test_sequences_end_to_end_do_not_see_each_other(interpreted):
    torch.manual_seed(1)
    lengths_q, lengths_k = [5, 0, 40, 1, 3], [5, 4, 33, 0, 50]
    starts = [
        torch.tensor([0, *torch.tensor(n).cumsum(0)], dtype=torch.int32)
        for n in (lengths_q, lengths_k)
    ]
    q, dout = (torch.randn(1, 4, sum(lengths_q), 16) for _ in range(2))
    k, v = (torch.randn(1, 2, sum(lengths_k), 16) for _ in range(2))
    rules = {"left": None, "right": 0, "scale": 0.25, "softcap": 0.0}
    ragged = (*starts, max(lengths_q), max(lengths_k))
    got = interpreted(gradients, dout, q, k, v, ragged=ragged, **rules)
    truth, plain = (
        exact(q, k, v, dout, None, dtype=d, ragged=Ragged(*ragged), **rules)
        for d in (torch.float64, torch.float32)
    )
    assert_as_exact(got, truth, plain)


def test_few_queries_of_sequences_end_to_end_are_packed_and_split(interpreted):
    torch.manual_seed(1)
    starts_q, starts_k = (
        torch.tensor([0, 1, 3], dtype=torch.int32),
        torch.tensor([0, 600, 620], dtype=torch.int32),
    )
    q, dout = (torch.randn(1, 2, 3, 16) for _ in range(2))
    k, v = (torch.randn(1, 1, 620, 16) for _ in range(2))
    rules = {"left": None, "right": 0, "scale": 0.25, "softcap": 0.0}
    got = interpreted(gradients, dout, q, k, v, ragged=(starts_q, starts_k, 2, 600), **rules)
    truth, plain = (
        exact(q, k, v, dout, None, dtype=d, ragged=Ragged(starts_q, starts_k, 2, 600), **rules)
        for d in (torch.float64, torch.float32)
    )
    assert_as_exact(got, truth, plain)


def test_any_strides_serve(interpreted):
    """Sequence before heads, one packed tensor, heads whose elements are not side by side, and one
    key for all places."""
    torch.manual_seed(2)
    packed = torch.randn(1, 40, 3, 2, 16)
    q, k = packed[:, :, 0].transpose(1, 2), packed[:, :, 1].transpose(1, 2)
    v = torch.randn(1, 2, 16, 40).transpose(2, 3)
    dout = torch.randn(1, 1, 40, 1).expand(1, 2, 40, 16)
    rules = {"left": None, "right": None, "scale": 0.25, "softcap": 0.0}
    got = interpreted(gradients, dout, q, k, v, **rules)
    assert_as_exact(
        got,
        exact(q, k, v, dout, None, **rules),
        exact(q, k, v, dout, None, dtype=torch.float32, **rules),
    )
    one = k[:, :, :1].expand(1, 2, 40, 16)
    torch.testing.assert_close(
        interpreted(forward, q, one, v, Rules(**rules))[0].double(),
        exact(q, one, v, dout, None, **rules)[0],
    )


def test_nan_stays_in_its_sequence_and_its_head(interpreted):
    """33 queries and keys: the last tile is mostly beyond the sequence, where the next one's NaN
    lie."""
    torch.manual_seed(3)
    rules = {"left": None, "right": 0, "scale": 0.25, "softcap": 0.0}
    q, k, v, dout = (torch.randn(2, 2, 33, 16) for _ in range(4))
    clean = interpreted(gradients, dout, q, k, v, **rules)
    spoilt = [x.clone() for x in (dout, q, k, v)]
    for x in spoilt:
        x[1, 1] = float("nan")
    got = interpreted(gradients, *spoilt, **rules)
    for ours, before in zip(got[:5], clean[:5], strict=True):
        assert torch.equal(ours[0], before[0]) and torch.equal(ours[1, 0], before[1, 0])
        assert ours[1, 1].isnan().all()


def test_a_bias_of_minus_infinity_hides_like_a_mask(interpreted):
    torch.manual_seed(4)
    q, k, v, dout = (torch.randn(1, 1, 20, 16) for _ in range(4))
    mask = torch.rand(1, 1, 20, 20) > 0.5
    mask[..., 3, :] = False
    rules = {"left": None, "right": None, "scale": 0.25, "softcap": 0.0}
    hidden = interpreted(gradients, dout, q, k, v, bias=mask, **rules)
    added = interpreted(
        gradients,
        dout,
        q,
        k,
        v,
        bias=torch.zeros(mask.shape).masked_fill(~mask, float("-inf")),
        **rules,
    )
    for a, b in zip(hidden[:5], added[:5], strict=True):
        assert torch.equal(a, b)
    assert hidden[0][..., 3, :].eq(0).all() and hidden[1][..., 3] == float("-inf")


def test_what_lies_behind_the_rows_of_a_bias_is_not_seen(interpreted):
    """Rows of 18 keys, 24 apart: several keys are loaded at once, also past the last."""
    torch.manual_seed(5)
    q, k, v, dout = (torch.randn(2, 1, 18, 16) for _ in range(4))
    rules = {"left": None, "right": None, "scale": 0.25, "softcap": 0.0}
    padded = torch.full((2, 1, 18, 24), float("nan"))
    bias = padded[..., :18].copy_(torch.randn(2, 1, 18, 18))
    got = interpreted(gradients, dout, q, k, v, bias=bias, **rules)
    same = interpreted(gradients, dout, q, k, v, bias=bias.contiguous(), **rules)
    assert bias_layout(bias).step == 4
    for ours, right in zip(got, same, strict=True):
        assert torch.equal(ours, right)


def test_a_bias_is_loaded_no_wider_than_its_memory_allows():
    rows = torch.zeros(2, 3, 5, 24, dtype=torch.bfloat16)
    steps = {
        "all": (rows, 8),
        "rows of 20": (rows[..., :20].contiguous(), 4),
        "rows of 20, 24 apart": (rows[..., :20], 8),
        "begins at 3": (rows[..., 3:], 1),
        "keys apart": (rows.transpose(2, 3), 1),
        "the same for all heads": (rows[:, :1].expand(2, 3, 5, 24), 8),
        "no memory behind the last row": (
            torch.zeros(47, dtype=torch.bfloat16).as_strided((1, 1, 2, 23), (48, 48, 24, 1)), 1,
        ),
    }  # fmt: skip
    for name, (bias, step) in steps.items():
        assert bias_layout(bias).step == step, name


H100 = Target(90, 132)


def calls(q, kv, dtype=torch.bfloat16, target=H100, **rules):
    q, k = (torch.empty(shape, dtype=dtype, device="meta") for shape in (q, kv))
    return forward_calls(geometry_of(geometry_key(q, k, k, take_rules(rules), **rules)), target)


@pytest.mark.parametrize(
    ("batch", "keys", "least"),
    [(1, 65536, 100), (1, 8192, 100), (4, 16384, 100), (16, 65536, 100), (1, 256, 8)],
)
def test_one_query_over_a_long_cache_fills_the_gpu(batch, keys, least):
    planned = calls((batch, 32, 1, 128), (batch, 8, keys, 128))
    assert planned.attend.grid >= least
    assert (
        planned.attend.constants["PACK"] == 4
    )  # K and V are read once for the four heads that share them
    assert (planned.combine is None) == (planned.splits == 1)


def test_many_programs_are_not_split():
    assert calls((8, 16, 2048, 128), (8, 16, 2048, 128)).splits == 1


def test_what_cannot_be_done_is_said():
    q = torch.randn(1, 1, 4, 16)
    with pytest.raises(ValueError, match=r"take float16, bfloat16 and float32; got torch\.float64"):
        forward(q.double(), q.double(), q.double(), Rules())
    wide = torch.randn(1, 1, 4, 513)
    with pytest.raises(ValueError, match="head sizes 1 to 512; got 513"):
        forward(wide, wide, wide, Rules())
    starts = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(ValueError, match="got one for ragged sequences"):
        forward(q, q, q, Rules(), ragged=Ragged(starts, starts, 4, 4), bias=torch.zeros(1, 1, 4, 4))


def test_an_older_gpu_is_refused_in_words(monkeypatch):
    class Turing:
        name, major, minor = "NVIDIA GeForce RTX 2080 Ti", 7, 5

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Turing)
    with pytest.raises(
        ValueError, match=r"need compute capability 8\.0 or newer.* RTX 2080 Ti has 7\.5"
    ):
        target_of(torch.device("cuda", 0))


@pytest.mark.parametrize("blocks", [(16, 64), (128, 16), (None, 32)])
def test_any_tile_gives_the_answer(interpreted, blocks):
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 90, 32) for _ in range(3))
    out, _ = interpreted(forward, q, k, v, Rules(right=0, scale=0.2), blocks=blocks)
    torch.testing.assert_close(
        out.double(), reference(q, k, v, causal=True, scale=0.2), rtol=1e-5, atol=1e-5
    )


def test_a_tile_that_no_kernel_has_is_refused():
    q = torch.empty(1, 1, 8, 16)
    for blocks, message in (
        ((48, None), "block_m is one of 16, 32, 64, 128, or None; got 48"),
        ((None, 256), "block_n is one of .* got 256"),
    ):
        with pytest.raises(ValueError, match=message):
            forward_calls(
                geometry_of(geometry_key(q, q, q, Rules())),
                Target(90, 132),
                blocks,
            )
    with pytest.raises(ValueError, match=r"backend triton cannot do this: it needs a CUDA GPU"):
        flashcore.attention(q, q, q, block_m=64)


def each_differs(b, h, q, k):
    return (q * 3 + b < k) | (h == 1)


BLOCK_MASKS = {
    "causal, odd": ((1, 2, 100, 16), (1, 1, 90, 16), lambda b, h, q, k: q >= k),
    "each batch and head": ((2, 2, 70, 16), (2, 2, 70, 16), each_differs),
    "rows without keys": ((1, 1, 65, 16),) * 2 + (lambda b, h, q, k: (q >= k) & (q % 3 > 0),),
    "nothing": ((1, 1, 40, 16), (1, 1, 40, 16), lambda b, h, q, k: q < 0),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "rows without keys" else pytest.mark.matrix)
        for name in BLOCK_MASKS
    ],
)
def test_block_masks_are_what_the_dense_mask_is(interpreted, name):
    """Blocks smaller and larger than the kernels' tiles, with ALiBi, and lse's gradient."""
    shape, kv, mod = BLOCK_MASKS[name]
    torch.manual_seed(5)
    q, dout, k, v = (torch.randn(s) for s in (shape, shape, kv, kv))
    lengths = (shape[2], kv[2])
    each = shape[:2] if name.startswith("each") else (None, None)
    mask = create_block_mask(mod, *each, *lengths, device="cpu", BLOCK_SIZE=(16, 64))
    visible = lists_of(mask, (*shape[:3], kv[2]), q.device)
    dense = create_mask(mod, *shape[:2], *lengths, device="cpu")
    rules = {"left": None, "right": None, "scale": 0.25, "softcap": 0.0}
    rules |= {"slopes": torch.rand(shape[1]) / 8, "dlse": torch.randn(shape[:3])}
    if shape[2] != kv[2]:
        del rules["slopes"]  # ALiBi is aligned with the last key
    got = interpreted(gradients, dout, q, k, v, visible=visible, **rules)
    truth, plain = (
        exact(q, k, v, dout, dense, dtype=d, **rules) for d in (torch.float64, torch.float32)
    )
    assert_as_exact(got, truth, plain)


def test_the_lists_of_a_block_mask_are_read_where_they_lie():
    """Each head of each sequence has lists of its own; there are more keys than queries."""
    kinds = torch.randint(0, 2, (2, 3, 4, 5), dtype=torch.int8) * FULL
    lists = BlockLists.of(kinds, torch.zeros(0, 16, 16, dtype=torch.uint8), (64, 80))
    for by_keys, side in ((False, lists.of_queries), (True, lists.of_keys)):
        has = list_arguments(lists.geometry, by_keys=by_keys)
        width = has["lists_width"]
        steps = (has["lists_batch"] * width, has["lists_head"] * width, width, 1)
        assert side[1].stride() == steps
