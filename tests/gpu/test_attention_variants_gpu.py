"""Sinks, gradients of lse, ALiBi, documents and block masks on a GPU, against float64.

python -m pytest tests/gpu/test_attention_variants_gpu.py -n 0
"""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask

from gpudeck import accel
from gpudeck.accel.attention import Ragged, attention, choose, describe
from gpudeck.accel.attention.reference import reference

if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
    pytest.skip("needs a GPU since Ampere", allow_module_level=True)

OURS = ("hopper", "triton", "auto")
SHAPES = {
    "grouped": ((2, 4, 300, 64), (2, 2, 300, 64)),
    "more keys": ((1, 4, 190, 128), (1, 4, 333, 128)),
    "more queries": ((1, 2, 333, 128), (1, 1, 190, 128)),
    "long": ((1, 2, 2500, 64), (1, 2, 2500, 64)),
    "wide": ((1, 2, 200, 256), (1, 1, 200, 256)),
    "one key": ((2, 2, 5, 64), (2, 2, 1, 64)),
}
VARIANTS = {
    "sink": {"sink": True},
    "sink, causal": {"sink": True, "causal": True},
    "ALiBi": {"alibi": True},
    "ALiBi, causal": {"alibi": True, "causal": True},
    "ALiBi, window, sink": {"alibi": True, "window": (70, 20), "softcap": 5.0, "sink": True},
    "lse": {"causal": True},
}  # fmt: skip


def solved(function, tensors, sink, dout, dlse, cast=None, **rules):
    """Return out, lse and all gradients, of out and, if given, of lse."""
    leaves = [x.detach().to(cast or x.dtype).requires_grad_() for x in tensors]
    sinks = [] if sink is None else [sink.detach().to(cast or sink.dtype).requires_grad_()]
    more = {"sink": sinks[0]} if sinks else {}
    out, lse = function(*leaves, return_lse=True, **more, **rules)
    answers, upstream = [out], [dout.to(out.dtype)]
    if dlse is not None:
        answers.append(lse.masked_fill(lse.isneginf(), 0.0))
        upstream.append(dlse.to(lse.dtype))
    return out.detach(), lse.detach(), *torch.autograd.grad(answers, [*leaves, *sinks], upstream)


def assert_close(got, exact, plain):
    """No further from float64 than twice what the computation in bf16 is."""
    for i, (x, true, simple) in enumerate(zip(got, exact, plain, strict=True)):
        seen = ~true.isinf()
        assert torch.equal(x.isinf(), true.isinf()) and not x.isnan().any(), i
        error, rough = ((t.double() - true)[seen].norm() for t in (x, simple))
        assert error <= 2 * rough + 1e-3 * true[seen].norm() + 1e-4, (i, float(error), float(rough))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("backend", OURS)
def test_variants(name, variant, backend):
    if backend == "hopper" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("needs a Hopper GPU")
    torch.manual_seed(0)
    q_shape, kv_shape = SHAPES[name]
    draw = [
        torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in (q_shape, kv_shape, kv_shape)
    ]
    dout = torch.randn(q_shape, device="cuda", dtype=torch.bfloat16)
    dlse = torch.randn(q_shape[:3], device="cuda")
    rules = dict(VARIANTS[variant])
    sink = torch.randn(q_shape[1], device="cuda") if rules.pop("sink", False) else None
    if rules.pop("alibi", False):
        rules["alibi"] = torch.rand(q_shape[:2], device="cuda") / 8
    exact, plain = (
        solved(reference, draw, sink, dout, dlse, dtype, dtype=dtype, **rules)
        for dtype in (torch.float64, torch.bfloat16)
    )
    got = solved(attention, draw, sink, dout, dlse, backend=backend, **rules)
    assert_close(got, exact, plain)


BIASES = {
    "of every pair": ((2, 4, 300, 500), torch.bfloat16),
    "shared by sequences": ((1, 4, 300, 500), torch.bfloat16),
    "rows that no two keys divide": ((1, 4, 300, 499), torch.bfloat16),
    "mask": ((2, 1, 300, 500), torch.bool),
    "mask of keys": ((2, 1, 1, 499), torch.bool),
}


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_biases_and_masks(name, causal, dim):
    """With the gradient of the bias; every backend that can do the forward pass."""
    torch.manual_seed(5)
    shape, kind = BIASES[name]
    q, dout = (torch.randn(2, 4, 300, dim, device="cuda", dtype=torch.bfloat16) for _ in "qd")
    k, v = (torch.randn(2, 2, shape[3], dim, device="cuda", dtype=torch.bfloat16) for _ in "kv")
    bias = torch.randn(shape, device="cuda") > -1 if kind is torch.bool else None
    given = (
        (q, k, v) if bias is not None else (q, k, v, torch.randn(shape, device="cuda", dtype=kind))
    )

    def function(attend):
        def call(q, k, v, added=None, **more):
            return attend(q, k, v, bias=bias if added is None else added, causal=causal, **more)

        return call

    exact, plain = (
        solved(function(reference), given, None, dout, None, dtype, dtype=dtype)
        for dtype in (torch.float64, torch.bfloat16)
    )
    got = solved(function(attention), given, None, dout, None)
    assert_close(got, exact, plain)
    able = choose(describe(q, k, v, bias=bias if bias is not None else given[3], causal=causal))
    for each in able.candidates:
        if each.refusal is None and each.backend != "reference":
            out = attention(*given[:3], bias=bias if bias is not None else given[3], causal=causal,
                            backend=each.backend)  # fmt: skip
            assert_close((out,), exact[:1], plain[:1])


@pytest.mark.parametrize("shape", [(20, 4, 200, 32), (30, 4, 49, 32), (3, 2, 120, 64)])
def test_short_rows_with_a_bias_of_all_sequences(shape):
    torch.manual_seed(6)
    *draw, dout = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in "qkvd")
    bias = torch.randn(1, shape[1], shape[2], shape[2], device="cuda", dtype=torch.bfloat16)

    def function(attend):
        return lambda q, k, v, added, **more: attend(q, k, v, bias=added, **more)

    exact, plain = (
        solved(function(reference), (*draw, bias), None, dout, None, dtype, dtype=dtype)
        for dtype in (torch.float64, torch.bfloat16)
    )
    got = solved(function(attention), (*draw, bias), None, dout, None, backend="triton")
    assert_close(got, exact, plain)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("sizes", [(192, 128), (128, 64), (256, 200), (80, 72)])
def test_values_narrower_than_keys(sizes, causal):
    """By every backend that can do the pass."""
    torch.manual_seed(7)
    dim, values = sizes
    q = torch.randn(2, 4, 300, dim, device="cuda", dtype=torch.bfloat16)
    k, v, dout = (
        torch.randn(2, heads, 300, d, device="cuda", dtype=torch.bfloat16)
        for heads, d in ((2, dim), (2, values), (4, values))
    )
    exact, plain = (
        solved(reference, (q, k, v), None, dout, None, dtype, dtype=dtype, causal=causal)
        for dtype in (torch.float64, torch.bfloat16)
    )
    problem = describe(q, k, v, causal=causal)
    for direction in ("forward", "backward"):
        for each in choose(problem, "auto", direction).candidates:
            if each.refusal is not None or each.backend == "reference":
                continue
            if direction == "forward":
                out = attention(q, k, v, causal=causal, backend=each.backend)
                assert_close((out,), exact[:1], plain[:1])
            else:
                got = solved(attention, (q, k, v), None, dout, None, causal=causal,
                             backend=each.backend)  # fmt: skip
                assert_close(got, exact, plain)


def test_a_sink_serves_every_backend_that_can_compute_the_rest():
    torch.manual_seed(1)
    draw = [torch.randn(2, 4, 257, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    sink = torch.randn(4, device="cuda")
    exact, plain = (
        solved(reference, draw[:3], sink, draw[3], None, dtype, dtype=dtype, causal=True)
        for dtype in (torch.float64, torch.bfloat16)
    )
    problem = describe(*draw[:3], causal=True, sink=sink)
    able = [
        c.backend
        for c in choose(problem, "auto", "backward").candidates
        if c.refusal is None and c.backend != "reference"
    ]
    assert {"flash", "triton", "math"} <= set(able)
    for backend in able:
        got = solved(attention, draw[:3], sink, draw[3], None, causal=True, backend=backend)
        assert_close(got, exact, plain)


MASKS = {
    "prefix": lambda b, h, q, k: (q >= k) | (k < 200 * (b + 1)),
    "scattered": lambda b, h, q, k: (q * 7 + k * 13) % 11 < 3,
    "rows without keys": lambda b, h, q, k: (q >= k) & (q % 3 > 0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dim", [64, 128])
def test_block_masks(name, dim):
    torch.manual_seed(2)
    lengths = (1000, 1000) if name == "prefix" else (700, 901)
    q, dout = (
        torch.randn(2, 4, lengths[0], dim, device="cuda", dtype=torch.bfloat16) for _ in "qd"
    )
    k, v = (torch.randn(2, 2, lengths[1], dim, device="cuda", dtype=torch.bfloat16) for _ in "kv")
    mask = create_block_mask(MASKS[name], 2 if name == "prefix" else None, None, *lengths)
    dense = create_mask(MASKS[name], 2, 4, *lengths)
    exact, plain = (
        solved(reference, (q, k, v), None, dout, None, dtype, dtype=dtype, bias=dense)
        for dtype in (torch.float64, torch.bfloat16)
    )
    out, choice = attention(q, k, v, block_mask=mask, return_choice=True)
    assert choice.backend == "triton"
    got = solved(attention, (q, k, v), None, dout, None, block_mask=mask)
    assert torch.equal(got[0], out)
    assert_close(got, exact, plain)


def test_documents_of_all_rows_and_of_each():
    torch.manual_seed(3)
    draw = [torch.randn(2, 4, 500, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    lengths = [100, 1, 399]
    ids = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths)).cuda()
    each = torch.stack([ids, ids.flip(0)])
    for given in (ids, each):
        mask = each if given is each else ids.expand(2, 500)
        mask = mask[:, None, :, None] == mask[:, None, None]
        exact, plain = (
            solved(reference, draw[:3], None, draw[3], None, d, dtype=d, causal=True,
                   bias=mask.expand(2, 4, 500, 500))
            for d in (torch.float64, torch.bfloat16)
        )  # fmt: skip
        got = solved(attention, draw[:3], None, draw[3], None, causal=True,
                     seqlens=Ragged.of_ids(given))  # fmt: skip
        assert_close(got, exact, plain)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile's own
def test_flex_attention_says_what_ran():
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, 2, 640, 64, device="cuda", dtype=torch.bfloat16) for _ in "qkv")
    table = torch.randn(2000, device="cuda")
    at = torch.arange(640, device="cuda")
    causal = create_block_mask(lambda b, h, i, j: i >= j, None, None, 640, 640)
    # torch's default tile keeps three blocks of what a table gives in shared memory: 240 KiB in all
    small = {"BLOCK_M": 64, "BLOCK_N": 64}
    for score, options, ran in (
        (None, None, "causal recognised"),
        (lambda s, b, h, i, j: s + (j - i) * 0.1, None, "ALiBi, causal recognised"),
        (lambda s, b, h, i, j: s + table[i - j + 700], small, "auto: kernel_options are given"),
    ):
        out, choice = accel.flex_attention(
            q, k, v, score, causal, kernel_options=options, return_choice=True
        )
        assert str(choice.reason).startswith(ran)
        scores = q.double() @ k.double().mT / 8
        if score is not None:
            scores = score(scores, 0, 0, at[:, None], at)
        hidden = at[:, None] < at
        due = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v.double()
        assert (out.double() - due).norm() < 0.01 * due.norm()
