"""FlexAttention's call: what is recognised, what is not, and that nothing is recognised wrongly."""

import gc
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from gpudeck import accel
from gpudeck.accel.attention import block_masks, flex, mods, visibility
from gpudeck.accel.attention.block_masks import lists_of

CPU = torch.device("cpu")
HEADS, LENGTH = 4, 150
EAGER = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
TABLE = torch.linspace(0.1, 0.4, HEADS)
DISTANCES = torch.randn(2 * LENGTH)
LEARNED = torch.rand(HEADS, requires_grad=True)


def rule(score_mod, sizes=(2, HEADS, LENGTH, LENGTH)):
    return mods.recognise_scores(score_mod, sizes, CPU)


def told(found):
    slopes = None if found.slopes is None else found.slopes.tolist()
    return found.factor, found.softcap, slopes


POWERS = [0.5, 0.25, 0.125, 0.0625]
HALF = [0.5] * HEADS
SCORES = {
    "nothing": (lambda s, b, h, q, k: s, (1.0, 0.0, None)),
    "factor": (lambda s, b, h, q, k: s * 2, (2.0, 0.0, None)),
    "softcap": (lambda s, b, h, q, k: 20.0 * torch.tanh(s / 20.0), (1.0, 20.0, None)),
    "softcap, turned": (lambda s, b, h, q, k: torch.tanh(s * 0.05) * 20, (1.0, 20.0, None)),
    "ALiBi": (lambda s, b, h, q, k: s + (k - q) * 2.0 ** -(h + 1), (1.0, 0.0, POWERS)),
    "ALiBi, turned": (lambda s, b, h, q, k: s - TABLE[h] * (q - k), (1.0, 0.0, TABLE.tolist())),
    "ALiBi of one slope": (lambda s, b, h, q, k: 0.5 * (k - q) + s, (1.0, 0.0, HALF)),
    "ALiBi in parts": (lambda s, b, h, q, k: s + 0.5 * k - q / 2, (1.0, 0.0, HALF)),
    "both": (lambda s, b, h, q, k: 5 * torch.tanh(s / 5) + 0.5 * (k - q), (1.0, 5.0, HALF)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCORES)
def test_score_functions_that_are_recognised(name):
    score_mod, due = SCORES[name]
    assert told(rule(score_mod)) == pytest.approx(due)


def test_slopes_of_each_batch_are_kept_apart():
    slopes = torch.rand(2, HEADS)
    found = rule(lambda s, b, h, q, k: s + slopes[b, h] * (k - q))
    torch.testing.assert_close(found.slopes, slopes)


def branching(s, b, h, q, k):
    return s if q > 3 else s + 1


NOT_KNOWN = {
    "distance without sign": lambda s, b, h, q, k: s - 0.5 * torch.abs(q - k),
    "distance, bounded": lambda s, b, h, q, k: s + torch.clamp(k - q, max=0) * 0.1,
    "distance, rounded": lambda s, b, h, q, k: s + (k - q) // 2,
    "distance in half precision": lambda s, b, h, q, k: s + 0.1 * (k - q).half(),
    "distance, squared": lambda s, b, h, q, k: s + (k - q) * (k - q) * 0.1,
    "not a distance": lambda s, b, h, q, k: s + 0.1 * k,
    "shifted distance": lambda s, b, h, q, k: s + 0.1 * (k - q + 3),
    "constant": lambda s, b, h, q, k: s + 1.0,
    "table of distances": lambda s, b, h, q, k: s + DISTANCES[q - k + LENGTH],
    "learned slopes": lambda s, b, h, q, k: s + LEARNED[h] * (k - q),
    "hidden pairs": lambda s, b, h, q, k: torch.where(q >= k, s, -math.inf),
    "square of the score": lambda s, b, h, q, k: s * s,
    "negative factor": lambda s, b, h, q, k: -2 * s,
    "no factor": lambda s, b, h, q, k: s * 0.0,
    "factor by head": lambda s, b, h, q, k: s * (h + 1),
    "two softcaps": lambda s, b, h, q, k: torch.tanh(torch.tanh(s)),
    "softcap after ALiBi": lambda s, b, h, q, k: 5 * torch.tanh((s + (k - q)) / 5),
    "chance": lambda s, b, h, q, k: s + torch.rand(()),
    "a branch": branching,
    "no score": lambda s, b, h, q, k: 0.1 * (k - q),
}


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_what_only_looks_like_it_is_not_recognised(name):
    assert rule(NOT_KNOWN[name]) is None


DOCUMENTS = torch.repeat_interleave(torch.arange(4), torch.tensor([30, 1, 69, 50]))
MASKS = {
    "causal": (lambda b, h, q, k: q >= k, (None, 0), None),
    "all": (lambda b, h, q, k: q >= 0, (None, None), None),
    "window": (lambda b, h, q, k: (q - k).abs() <= 30, (30, 30), None),
    "right": (lambda b, h, q, k: k - q <= 7, (None, 7), None),
    "documents": (lambda b, h, q, k: DOCUMENTS[q] == DOCUMENTS[k], (None, None), [30, 1, 69, 50]),
    "causal documents": (
        lambda b, h, q, k: (DOCUMENTS[q] == DOCUMENTS[k]) & (q >= k), (None, 0), [30, 1, 69, 50]
    ),
}  # fmt: skip
OTHERS = {
    "prefix": lambda b, h, q, k: (q >= k) | (k < 20),
    "one pair less": lambda b, h, q, k: (q >= k) & ~((q == 77) & (k == 3)),
    "one pair more": lambda b, h, q, k: (q >= k) | ((q == 77) & (k == 80)),
    "one key less at the end": lambda b, h, q, k: (q >= k) & ~((q == 149) & (k == 149)),
    "first row blind": lambda b, h, q, k: (q >= k) & (q > 0),
    "documents that come back": lambda b, h, q, k: q % 2 == k % 2,
    "documents in a window": lambda b, h, q, k: (DOCUMENTS[q] == DOCUMENTS[k]) & (abs(q - k) < 9),
    "nothing": lambda b, h, q, k: q < 0,
    "skips itself": lambda b, h, q, k: q > k,
}  # fmt: skip


def visible(mask_mod, block=64):
    mask = create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=block)
    return visibility.recognise_mask(lists_of(mask, (1, 1, LENGTH, LENGTH), CPU))


@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize("name", MASKS)
def test_masks_that_are_recognised(name, block):
    mask_mod, window, lengths = MASKS[name]
    found = visible(mask_mod, block)
    assert found.window == window
    starts = None if found.documents is None else found.documents.starts_q.diff().tolist()
    assert starts == lengths


@pytest.mark.parametrize("name", OTHERS)
def test_masks_of_one_pair_more_or_less_are_not(name):
    assert visible(OTHERS[name]) is None


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    left=st.none() | st.integers(0, 45),
    right=st.none() | st.integers(0, 45),
    flipped=st.none() | st.tuples(st.integers(0, 39), st.integers(0, 39)),
)
def test_a_recognised_window_sees_exactly_the_pairs_of_the_mask(lengths, left, right, flipped):
    queries, keys = lengths
    place = torch.arange(queries)[:, None] + keys - queries
    at = torch.arange(keys)
    dense = torch.ones(queries, keys, dtype=torch.bool)
    dense &= (at >= place - left) if left is not None else True
    dense &= (at <= place + right) if right is not None else True
    if flipped is not None:
        dense[flipped[0] % queries, flipped[1] % keys] ^= True
    mask = create_block_mask(
        lambda b, h, q, k: dense[q, k], None, None, queries, keys, device="cpu", BLOCK_SIZE=16
    )
    found = visibility.recognise_mask(lists_of(mask, (1, 1, queries, keys), CPU))
    if flipped is None and dense.any(1).all():
        assert found is not None
    if found is not None:
        again = torch.ones_like(dense)
        low, high = found.window
        again &= (at >= place - low) if low is not None else True
        again &= (at <= place + high) if high is not None else True
        if found.documents is not None:
            ids = torch.repeat_interleave(found.documents.starts_q.diff())
            again &= ids[:, None] == ids
        assert torch.equal(again, dense)


def tensors(batch=2, kv_heads=2, grad=True):
    shapes = ((batch, n, LENGTH, 16) for n in (HEADS, kv_heads, kv_heads))
    return [torch.randn(s, requires_grad=grad) for s in shapes]


@EAGER
@pytest.mark.parametrize(
    ("score", "mask"),
    [
        pytest.param(score, mask, marks=() if i % 5 == 0 else pytest.mark.slow)
        for i, (score, mask) in enumerate(
            itertools.product([None, "ALiBi", "both"], [None, *MASKS, "prefix"])
        )
    ],
)
def test_the_answers_are_those_of_flex_attention(score, mask):
    torch.manual_seed(0)
    score_mod = None if score is None else SCORES[score][0]
    mask_mod = None if mask is None else MASKS[mask][0] if mask in MASKS else OTHERS[mask]
    blocks = mask_mod and create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu")
    given = tensors()
    with torch.no_grad():
        exact = [x.double() for x in given]
        rules = {"enable_gqa": True, "return_aux": AuxRequest(lse=True)}
        due, aux = flex_attention(*exact, score_mod, blocks, **rules)
        also = accel.flex_attention(*given, score_mod, blocks, **rules)
    out, lse = accel.flex_attention(*given, score_mod, blocks, enable_gqa=True, return_lse=True)
    assert torch.equal(also[1].lse, lse) and torch.equal(also[0], out)
    torch.testing.assert_close(out.double(), due, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lse.double(), aux.lse, rtol=1e-4, atol=1e-4)
    (out.sum() + lse.sum()).backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in given)


@EAGER
def test_what_ran_is_told():
    given = tensors(grad=False)
    causal = create_block_mask(MASKS["causal"][0], None, None, LENGTH, LENGTH, device="cpu")
    many = [
        (given, {"block_mask": causal}, "math", "causal recognised"),
        (given, {"score_mod": SCORES["both"][0]}, "math", "softcap 5, ALiBi recognised"),
        (
            given,
            {"score_mod": NOT_KNOWN["table of distances"]},
            "flex",
            "auto: the score function is",
        ),
        (given, {"kernel_options": {}}, "flex", "auto: kernel_options are given"),
        (given, {"backend": "flex"}, "flex", "named by the caller"),
    ]
    for x, rules, backend, reason in many:
        out, choice = accel.flex_attention(*x, enable_gqa=True, return_choice=True, **rules)
        assert (choice.backend, str(choice.reason)[: len(reason)]) == (
            "flash" if backend == "math" and "block_mask" in rules else backend, reason
        )  # fmt: skip
        rules.pop("backend", None)
        due = flex_attention(*(t.double() for t in x), enable_gqa=True, **rules)
        torch.testing.assert_close(out.double(), due, rtol=1e-4, atol=1e-4)
    with pytest.raises(
        ValueError, match="math cannot do this: the score function is not recognised"
    ):
        accel.flex_attention(*given, NOT_KNOWN["constant"], enable_gqa=True, backend="math")


@pytest.mark.slow
def test_within_a_compiled_program_the_call_is_flex_attentions():
    seen = []

    def backend(module, inputs):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return module.forward

    def program(q, k, v):
        return accel.flex_attention(q * 2, k, v, SCORES["ALiBi"][0], enable_gqa=True).relu()

    given = tensors(grad=False)
    out = torch.compile(program, backend=backend, fullgraph=True)(*given)
    assert "flex_attention" in seen
    torch.testing.assert_close(out, program(*given), rtol=1e-4, atol=1e-4)


@EAGER
def test_masks_that_do_not_fit_our_kernels_are_flex_attentions():
    given = tensors(grad=False)
    odd = create_block_mask(
        MASKS["causal"][0], None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=48
    )
    _, choice = accel.flex_attention(*given, block_mask=odd, enable_gqa=True, return_choice=True)
    assert choice.backend == "flex" and "got 48 x 48" in str(choice.reason)


def test_what_a_function_captures_is_compared_and_nothing_is_kept_alive():
    slopes = torch.full((HEADS,), 0.5)

    def score(s, b, h, q, k):
        return s + slopes[h] * (k - q)

    given = tensors(kv_heads=HEADS, grad=False)
    causal = create_block_mask(MASKS["causal"][0], None, None, LENGTH, LENGTH, device="cpu")
    first = accel.flex_attention(*given, score, causal)
    slopes.mul_(0.1)
    second = accel.flex_attention(*given, score, causal)
    assert (first - second).abs().max() > 1e-3
    assert causal not in block_masks._KNOWN
    torch.testing.assert_close(
        second, accel.attention(*given, causal=True, alibi=torch.full((HEADS,), 0.05))
    )
    del score, causal
    gc.collect()
    assert all(mod.__name__ != "score" for mod in flex._RULES)
