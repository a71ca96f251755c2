"""Sinks, gradients of lse, ALiBi, documents, unequal head sizes and block masks, by float64."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, create_mask

from gpudeck.accel.attention import Ragged, attention, explain
from gpudeck.accel.attention.block_masks import lists_of
from gpudeck.accel.attention.reference import reference

CPU = torch.device("cpu")
ON_CPU = ("flash", "math", "reference", "auto")
SHAPES = {
    "odd, grouped": ((2, 4, 5, 8), (2, 2, 7, 8)),
    "one key": ((1, 2, 3, 4), (1, 1, 1, 4)),
    "empty rows": ((2, 2, 7, 8), (2, 1, 3, 8)),
    "one query": ((1, 3, 1, 5), (1, 3, 9, 5)),
}


def random(shape_q, shape_kv=None, dtype=torch.float32, grad=True):
    shapes = (shape_q, shape_kv or shape_q, shape_kv or shape_q)
    return tuple(torch.randn(s, dtype=dtype, requires_grad=grad) for s in shapes)


def softmax_with_sink(q, k, v, sink, causal):
    """The definition: one more column in the softmax, dropped afterwards. No code is shared."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, -math.inf)
    column = sink[:, None, None].expand(*scores.shape[:3], 1)
    whole = torch.cat([scores, column], -1)
    return whole.softmax(-1)[..., :-1] @ v, whole.logsumexp(-1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("backend", ON_CPU)
def test_a_sink_is_one_more_score_and_learns(backend, name, causal):
    torch.manual_seed(0)
    q, k, v = random(*SHAPES[name])
    sink = torch.randn(q.shape[1], requires_grad=True)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v, sink)]
    weight = torch.randn(q.shape)
    out = attention(q, k, v, causal=causal, sink=sink, backend=backend)
    due, due_lse = softmax_with_sink(*exact, causal)
    torch.testing.assert_close(out.double(), due, rtol=1e-5, atol=1e-5)
    (out * weight).sum().backward()
    (due * weight).sum().backward()
    for ours, theirs in zip((q, k, v, sink), exact, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)
    _, lse = attention(q, k, v, causal=causal, sink=sink, backend=backend, return_lse=True)
    torch.testing.assert_close(lse.double(), due_lse, rtol=1e-5, atol=1e-5)
    found, _ = reference(q, k, v, causal=causal, sink=sink, return_lse=True)
    torch.testing.assert_close(found, due, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("backend", ON_CPU)
def test_sinks_at_the_ends_of_the_numbers(backend):
    q, k, v = random((1, 3, 7, 8), (1, 1, 4, 8))
    sink = torch.tensor([-math.inf, 200.0, -200.0], requires_grad=True)
    out, lse = attention(q, k, v, causal=True, sink=sink, backend=backend, return_lse=True)
    plain, plain_lse = attention(q, k, v, causal=True, backend=backend, return_lse=True)
    torch.testing.assert_close(out[:, [0, 2]], plain[:, [0, 2]])
    assert torch.equal(lse[:, 0], plain_lse[:, 0])
    assert out[:, 1].abs().max() < 1e-30 and (lse[:, 1] == 200).all()
    assert (lse[:, 2, :3] == -200).all()  # rows that see no key have the sink alone
    out.sum().backward()
    assert all(x.grad.isfinite().all() for x in (q, k, v, sink))


def test_a_sink_of_no_keys_and_of_ragged_sequences():
    q, k, v = random((1, 2, 3, 4), (1, 2, 0, 4))
    sink = torch.tensor([0.5, -1.0], requires_grad=True)
    out, lse = attention(q, k, v, sink=sink, return_lse=True)
    assert not out.any() and torch.equal(lse[0, :, 0], sink)
    lengths = [3, 0, 1, 5]
    packed = random((9, 2, 4))
    ragged = Ragged.of(lengths, device="cpu")
    found = attention(*packed, seqlens=ragged, causal=True, sink=sink)
    begin = 0
    for n in lengths:
        one = [x[begin : begin + n].transpose(0, 1)[None] for x in packed]
        due, _ = softmax_with_sink(*one, sink, True)
        torch.testing.assert_close(found[begin : begin + n], due[0].transpose(0, 1))
        begin += n


@pytest.mark.parametrize("sink", [None, 1.5])
def test_out_and_lse_have_the_gradients_of_finite_differences(sink):
    inputs = random((1, 2, 4, 3), (1, 1, 5, 3), torch.float64)
    sinks = () if sink is None else (torch.full((2,), sink, dtype=torch.float64).requires_grad_(),)

    def program(q, k, v, *sinks):
        return attention(q, k, v, causal=True, backend="reference", return_lse=True,
                         sink=sinks[0] if sinks else None)[0]  # fmt: skip

    assert torch.autograd.gradcheck(program, (*inputs, *sinks))


@pytest.mark.parametrize("rule", [{}, {"causal": True}, {"window": (2, 1)}, {"softcap": 2.0}])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("backend", ["math", "reference", "auto"])
def test_lse_has_gradients(backend, name, rule):
    torch.manual_seed(1)
    inputs = random(*SHAPES[name])
    exact = [x.detach().double().requires_grad_() for x in inputs]
    _, lse = attention(*inputs, **rule, backend=backend, return_lse=True)
    _, due = reference(*exact, **rule, return_lse=True)
    weight = torch.randn(lse.shape)
    seen = ~lse.isneginf()
    (lse[seen] * weight[seen]).sum().backward()
    (due[seen] * weight[seen]).sum().backward()
    for ours, theirs in zip(inputs, exact, strict=True):
        truth = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
        torch.testing.assert_close(ours.grad.double(), truth, rtol=1e-4, atol=1e-5)


def test_halves_of_the_keys_merged_by_their_lse_have_the_gradients_of_the_whole():
    """What ring attention does, and why lse needs a gradient; the rows' NaN stay outside."""
    q, k, v = random((1, 2, 6, 8))
    whole = torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))
    halves = [
        attention(q, k[:, :, s], v[:, :, s], return_lse=True) for s in (slice(3), slice(3, 6))
    ]
    shares = torch.stack([lse for _, lse in halves]).softmax(0)
    out = sum(w[..., None] * x for w, (x, _) in zip(shares, halves, strict=True))
    for ours, due in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), whole, strict=True):
        torch.testing.assert_close(ours, due, rtol=1e-4, atol=1e-5)


def test_a_named_backend_without_the_gradient_of_lse_says_so():
    q, k, v = random((1, 2, 4, 8))
    out, lse = attention(q, k, v, backend="flash", return_lse=True)
    out.sum().backward(retain_graph=True)
    with pytest.raises(ValueError, match=r"flash cannot .* no gradient of the log-sum-exp\. These"):
        lse.sum().backward()


@pytest.mark.parametrize("backend", ["math", "reference", "auto"])
@pytest.mark.parametrize("by_batch", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_alibi_is_the_bias_of_distances(name, by_batch, backend):
    torch.manual_seed(2)
    inputs = random(*SHAPES[name])
    q, k, _ = inputs
    slopes = torch.rand(q.shape[:2] if by_batch else q.shape[1])
    places = (
        torch.arange(k.shape[2]) - (torch.arange(q.shape[2]) + k.shape[2] - q.shape[2])[:, None]
    )
    bias = slopes[..., None, None] * places
    answers = [
        attention(*inputs, causal=True, backend=backend, return_lse=True, **given)
        for given in ({"alibi": slopes}, {"bias": bias})
    ]
    for ours, due in zip(*answers, strict=True):
        torch.testing.assert_close(ours, due, rtol=1e-5, atol=1e-5)
    grads = [torch.autograd.grad(x.square().sum(), inputs) for x, _ in answers]
    for ours, due in zip(*grads, strict=True):
        torch.testing.assert_close(ours, due, rtol=1e-4, atol=1e-5)
    found = reference(*inputs, causal=True, alibi=slopes)
    torch.testing.assert_close(found.float(), answers[1][0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("alibi", [None, 1, 2])
def test_documents_in_rows(layout, own, alibi):
    """Those of one row for all, or of each; with values of another head size, a sink and ALiBi."""
    torch.manual_seed(3)
    ids = torch.tensor([[7, 7, 7, 2, 5, 5, 5, 5, 5, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9]])
    ids = ids if own else ids[:1]
    q, k, v = torch.randn(2, 4, 11, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 5)
    turned = [x.transpose(1, 2) if layout == "bshd" else x for x in (q, k, v)]
    given = [x.contiguous().requires_grad_() for x in turned]
    rules = {"sink": torch.randn(4, requires_grad=True)}
    if alibi:
        rules["alibi"] = torch.rand(4) if alibi == 1 else torch.rand(2, 4)
    rules |= {"causal": True}
    asked = {"seqlens": Ragged.of_ids(ids), "layout": layout, "return_lse": True, **rules}
    if own and alibi == 2:
        with pytest.raises(ValueError, match=r"alibi must be \[4\] or \[1, 4\] of float32"):
            attention(*given, **asked)
        return
    out, lse = attention(*given, **asked)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    mask = (ids[:, None, :, None] == ids[:, None, None]).expand(2, 1, 11, 11)
    wide = torch.nn.functional.pad(exact[2], (0, 3))
    due, due_lse = reference(exact[0], exact[1], wide, bias=mask, return_lse=True, **rules)
    out = out.transpose(1, 2) if layout == "bshd" else out
    assert out.shape == (2, 4, 11, 5)
    torch.testing.assert_close(out.double(), due[..., :5], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse.double(), due_lse, rtol=1e-5, atol=1e-5)
    (out.square().sum() + lse.sum()).backward()
    (due[..., :5].square().sum() + due_lse.sum()).backward()
    for ours, theirs in zip(given, exact, strict=True):
        grad = ours.grad.transpose(1, 2) if layout == "bshd" else ours.grad
        torch.testing.assert_close(grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_documents_that_do_not_fit_are_refused():
    q, k, v = random((2, 2, 4, 8))
    for lengths in ([4, 1], [3]):
        with pytest.raises(
            ValueError, match="the documents of a row must add up to 4 queries and 4 keys, or"
        ):
            attention(q, k, v, seqlens=Ragged.of(lengths, device="cpu"))
    with pytest.raises(ValueError, match="each document must lie in one piece"):
        Ragged.of_ids(torch.tensor([0, 1, 0]))
    with pytest.raises(ValueError, match="ids must be integers"):
        Ragged.of_ids(torch.zeros(3))


SIZES = [(6, 4), (4, 9), (12, 8)]


@pytest.mark.parametrize(
    ("backend", "size", "of_values"),
    [
        ("compiled", 6, 4),
        *((name, *sizes) for name in ("auto", "math", "reference") for sizes in SIZES),
    ],
)
def test_values_may_have_another_head_size(backend, size, of_values):
    q, k, v = (
        torch.randn(2, heads, length, dim).transpose(1, 2).contiguous().transpose(1, 2)
        for heads, length, dim in ((4, 5, size), (2, 7, size), (2, 7, of_values))
    )
    tensors = [x.requires_grad_() for x in (q, k, v)]
    if backend == "compiled":
        run = torch.compile(attention, backend="aot_eager", fullgraph=True)
        out, lse = run(*tensors, causal=True, return_lse=True)
    else:
        out, lse = attention(*tensors, causal=True, return_lse=True, backend=backend)
    scores = q @ k.repeat_interleave(2, 1).mT / math.sqrt(size)
    hidden = torch.ones(5, 7, dtype=torch.bool).triu(3)
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    due = weights @ v.repeat_interleave(2, 1)
    torch.testing.assert_close(out, due)
    torch.testing.assert_close(lse, scores.masked_fill(hidden, -math.inf).logsumexp(-1))
    grads = [torch.autograd.grad(x.square().sum(), tensors) for x in (out, due)]
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert explain(q, k, v, causal=True)[0].backend


STEPS = torch.tensor([1, 2])
MASKS = {
    "causal": lambda b, h, q, k: q >= k,
    "prefix": lambda b, h, q, k: (q >= k) | (k < 20 + 50 * b),
    "scattered": lambda b, h, q, k: (q * 7 + k * 13) % 11 < 3,
    "heads differ": lambda b, h, q, k: (q >= k) | (h % 2 == 0),
    "heads differ, not traced": lambda b, h, q, k: (q >= k) & ((k + h) % int(STEPS.max()) == 0),
    "nothing": lambda b, h, q, k: q < 0,
    "rows without keys": lambda b, h, q, k: (q >= k) & (q % 3 > 0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("lengths", [(130, 130), (70, 133), (1, 40)])
def test_a_block_mask_is_taken_as_it_is(name, lengths):
    """Odd lengths, blocks cut off, masks broadcast over batches that their functions tell apart."""
    torch.manual_seed(4)
    mod = MASKS[name]
    each = (2, 2) if name in ("prefix", "heads differ") else (None, None)
    mask = create_block_mask(mod, *each, *lengths, device="cpu", BLOCK_SIZE=(64, 32))
    dense = create_mask(mod, 2, 2, *lengths, device="cpu")
    lists = lists_of(mask, (2, 2, *lengths), CPU)
    assert torch.equal(lists.dense().expand(2, 2, *lengths), dense)
    inputs = random((2, 2, lengths[0], 8), (2, 1, lengths[1], 8))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    out = attention(*inputs, block_mask=mask)
    due = reference(*exact, bias=dense)
    torch.testing.assert_close(out.double(), due, rtol=1e-5, atol=1e-5)
    out.square().sum().backward()
    due.square().sum().backward()
    for ours, theirs in zip(inputs, exact, strict=True):
        torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_block_lists_name_each_visible_block_once_from_both_sides():
    mask = create_block_mask(MASKS["causal"], None, None, 200, 260, device="cpu", BLOCK_SIZE=32)
    lists = lists_of(mask, (3, 2, 200, 260), CPU)
    assert lists is lists_of(mask, (3, 2, 200, 260), CPU)
    sides = []
    for counts, listed, numbers, _ in (lists.of_queries, lists.of_keys):
        found = {}
        for i in range(counts.shape[2]):
            full, partial = counts[0, 0, i].tolist()
            for n in range(full + partial):
                found[i, int(listed[0, 0, i, n])] = None if n < full else int(numbers[0, 0, i, n])
        sides.append(found)
    assert sides[0] == {(q, k): number for (k, q), number in sides[1].items()}
    assert len(sides[0]) == int((lists.kinds > 0).sum())
    # Rows of partial blocks with every pair visible have become full ones.
    assert all(0 < int(bits.sum()) < bits.numel() for bits in lists.bits)


def test_a_mask_made_from_lists_without_full_blocks_is_the_same():
    made = create_block_mask(MASKS["causal"], None, None, 128, 128, device="cpu", BLOCK_SIZE=32)
    whole = lists_of(made, (1, 1, 128, 128), CPU)
    counts = (whole.kinds > 0).sum(-1).int()
    order = torch.argsort((whole.kinds > 0).int(), dim=-1, descending=True, stable=True).int()
    mask = BlockMask.from_kv_blocks(counts, order, BLOCK_SIZE=32, mask_mod=MASKS["causal"])
    assert torch.equal(lists_of(mask, (1, 1, 128, 128), CPU).kinds, whole.kinds)


def test_block_masks_that_do_not_fit_are_refused():
    q, k, v = random((2, 2, 64, 8))
    mask = create_block_mask(MASKS["causal"], None, None, 64, 96, device="cpu")
    three = create_block_mask(MASKS["causal"], 3, None, 64, 64, device="cpu")
    odd = create_block_mask(MASKS["causal"], None, None, 64, 64, device="cpu", BLOCK_SIZE=24)
    fits = create_block_mask(MASKS["causal"], None, None, 64, 64, device="cpu")
    for given, message in (
        ({"block_mask": mask}, "block_mask is for 64 queries and 96 keys; got 64 and 64"),
        ({"block_mask": three}, "for 1 or 2 batches and 1 or 2 heads; got 3 and 1"),
        ({"block_mask": odd}, "blocks of 16, .*; got 24 x 24"),
        ({"block_mask": fits, "causal": True}, "cannot be given with causal or window"),
        ({"block_mask": fits, "bias": torch.zeros(64, 64)}, "with a bias or seqlens"),
        ({"block_mask": fits, "precision": "fp8"}, "fp8 takes no ALiBi and no block mask"),
        ({"dropout": 0.1}, "attention has no dropout of weights; got dropout=0.1"),
        ({"alibi": torch.rand(3)}, r"alibi must be \[2\] or \[2, 2\] of float32"),
        ({"alibi": torch.rand(2, requires_grad=True)}, "the slopes of alibi get no gradient"),
        ({"sink": torch.zeros(2, dtype=torch.int32)}, r"sink must be \[2\] of float16"),
    ):
        with pytest.raises(ValueError, match=message):
            attention(q, k, v, **given)
