"""The Hopper kernels, their own source, on an emulated GPU: every feature, in orders of events that
hardware may choose.

`make test` runs each kernel, and each feature with one of them; `make emulation` every feature with
each kernel, many shapes, numbers of multiprocessors and orders.
"""

import math
import random

import pytest
import torch

from tests.emulation.checks import (
    CAUSAL,
    FULL,
    RULES,
    VARIANTS,
    assert_forward,
    assert_gradients,
    backward,
    check_backward,
    check_forward,
    check_ragged_forward,
    claiming,
    forward,
    ragged_of,
    tensors,
    with_atomics,
)
from tests.emulation.hopper import Hopper

BIASES = ("bias", "mask", "mask of keys")
FORWARD = RULES | {name: VARIANTS[name] for name in ("ALiBi", "sink", *BIASES)}
GRADIENTS = RULES | {name: VARIANTS[name] for name in ("ALiBi", "lse")}
BF16, FP16 = torch.bfloat16, torch.float16
DIMS = pytest.mark.parametrize("dim", [64, 128, 256])
MAIN = pytest.mark.parametrize(
    "dim", [128, *(pytest.param(dim, marks=pytest.mark.emulation) for dim in (64, 256))]
)


def crossed(names, ways, features, main):
    """Each of `ways` with each of `features`; in `make test` every feature with the way `main`, and
    causal with the others."""
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *way,
                rule,
                id=f"{way_id}-{feature}",
                marks=() if main == way_id or feature == "causal" else pytest.mark.emulation,
            )
            for way_id, way in ways.items()
            for feature, rule in features.items()
        ],
    )


BACKWARD = {
    "64, atomic": (64, False),
    "64": (64, True),
    "128, atomic": (128, False),
    "128": (128, True),
    "256": (256, True),
}
"""Head size, and whether the sums are deterministic: heads of 256 never add to dq atomically."""

PLACES = {
    "causal": CAUSAL,
    "full": FULL,
    "narrow": {**FULL, "left": 5, "right": 3},
    "beside": {**FULL, "left": 300, "right": -20},
}
"""Rules under which few queries see few keys."""


@crossed(
    ("dim", "rule"), {str(dim): (dim,) for dim in (64, 72, 96, 128, 160, 192, 256)}, FORWARD, "128"
)
def test_forward(dim, rule):
    """Two batches, two query heads a key head, lengths off the tiles, more tiles than
    multiprocessors."""
    _, q, k, v = tensors(dim, (2, 1), (150, 290), batch=2, dtype=FP16 if dim == 72 else BF16)
    check_forward(Hopper(), q, k, v, scale=dim**-0.5, **rule)


@crossed(("dim", "deterministic", "rule"), BACKWARD, GRADIENTS, "128")
def test_backward(dim, deterministic, rule):
    inputs = tensors(dim, (2, 1), (150, 290))
    check_backward(
        with_atomics(Hopper()), *inputs, deterministic=deterministic, scale=dim**-0.5, **rule
    )


@crossed(
    ("dim", "atomic", "rule"),
    {
        f"{dim}{', atomic' * atomic}": (dim, atomic)
        for dim in (64, 96, 128)
        for atomic in (False, True)
    },
    GRADIENTS,
    "64",
)
def test_backward_with_claimed_tiles(dim, atomic, rule):
    """More tiles than multiprocessors, off the lengths, with groups, and some that nobody sees."""
    inputs = tensors(dim, (4, 2), (150, 290), batch=2)
    check_backward(claiming(Hopper(), atomic=atomic), *inputs, scale=dim**-0.5, **rule)


@pytest.mark.parametrize("atomic", [False, True], ids=["two kernels", "atomic"])
def test_claimed_tiles_of_a_group_over_several_ctas(atomic):
    hopper = claiming(Hopper(), atomic=atomic)
    check_backward(hopper, *tensors(64, (12, 4), (150, 290)), scale=0.1, waves=20, **CAUSAL)


@crossed(
    ("dim", "values", "rule"),
    {f"{d} with {v}": (d, v) for d, v in ((192, 128), (192, 40), (80, 64), (128, 72), (256, 200))},
    FORWARD,
    "192 with 128",
)
def test_forward_with_values_narrower_than_keys(dim, values, rule):
    _, q, k, v = tensors(dim, (2, 1), (150, 290), batch=2)
    check_forward(Hopper(), q, k, v[..., :values].contiguous(), scale=dim**-0.5, **rule)


@crossed(
    ("dim", "heads", "rule"),
    {f"{d}, {h[0]} heads": (d, h) for d, h in ((64, (6, 2)), (256, (4, 1)), (128, (12, 1)))},
    GRADIENTS,
    "64, 6 heads",
)
def test_backward_with_a_group_over_several_ctas(dim, heads, rule):
    """All of its heads in a CTA of their own, or some in each."""
    inputs = tensors(dim, heads, (150, 290))
    given = {"deterministic": False, "scale": dim**-0.5, "waves": 20}
    check_backward(with_atomics(Hopper()), *inputs, **given, **rule)


@crossed(
    ("dim", "values", "rule"),
    {f"{d} with {v}": (d, v) for d, v in ((192, 128), (64, 40), (128, 72), (256, 200))},
    GRADIENTS,
    "192 with 128",
)
def test_backward_with_values_narrower_than_keys(dim, values, rule):
    dout, q, k, v = tensors(dim, (2, 1), (150, 290))
    dout, v = (x[..., :values].contiguous() for x in (dout, v))
    given = {"deterministic": dim > 128, "scale": dim**-0.5}
    check_backward(with_atomics(Hopper()), dout, q, k, v, **given, **rule)


@pytest.mark.parametrize(
    ("dim", "dtype"),
    [
        pytest.param(
            dim,
            dtype,
            marks=() if (dim, dtype) in ((40, FP16), (200, BF16)) else pytest.mark.emulation,
        )
        for dim in (8, 40, 72, 200)
        for dtype in (FP16, BF16)
    ],
)
def test_head_sizes_without_a_kernel_of_their_own(dim, dtype):
    inputs = tensors(dim, (2, 1), (70, 140), dtype=dtype)
    check_backward(with_atomics(Hopper()), *inputs, scale=dim**-0.5, **CAUSAL)


@crossed(
    ("rule",),
    {"": ()},
    {
        "causal": CAUSAL,
        "full": FULL,
        "narrow": {**FULL, "left": 5, "right": 3},
        "beside": {**FULL, "left": 300, "right": -20},
    },
    None,
)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 300), (129, 7), (200, 64), (64, 128)])
def test_lengths(lengths, rule):
    """One query, more queries than keys (some see none), whole tiles only; windows that lie beside
    the keys."""
    inputs = tensors(64, (1, 1), lengths)
    check_forward(Hopper(), *inputs[1:], scale=0.1, **rule)
    dq = check_backward(with_atomics(Hopper()), *inputs, scale=0.1, **rule)[0]
    if rule is CAUSAL:
        assert not dq[:, :, : max(0, lengths[0] - lengths[1])].any()


def test_the_kernel_for_many_queries():
    """Heads of 64 are cut otherwise from 513 queries on, with three consumers."""
    _, q, k, v = tensors(64, (2, 1), (520, 200))
    check_forward(Hopper(), q, k, v, scale=0.1, **FULL)


@pytest.mark.parametrize("dim", [64, 128])
def test_dq_added_up_by_the_keys(dim):
    check_backward(with_atomics(Hopper()), *tensors(dim, (1, 1), (130, 520)), scale=0.1, **CAUSAL)


@crossed(("dim", "deterministic", "rule"), BACKWARD, {"full": FULL, "causal": CAUSAL}, None)
def test_ragged_is_each_sequence_alone(dim, deterministic, rule):
    """Empty ones among them, and one full of NaN, which stays where it is."""
    ragged, places = ragged_of([5, 0, 130, 64, 70, 1], [70, 10, 135, 0, 140, 9])
    dout, q, k, v = tensors(dim, (2, 1), (270, 364))
    for x, place in zip((dout, q, k, v), (0, 0, 1, 1), strict=True):
        x[:, :, places[4][place]] = math.nan
    asked = {**rule, "scale": dim**-0.5}
    out, lse = forward(Hopper(), q, k, v, ragged=ragged, **asked)
    got = backward(
        with_atomics(Hopper()),
        dout,
        q,
        k,
        v,
        out,
        lse,
        ragged=ragged,
        deterministic=deterministic,
        **asked,
    )
    for i, (at_q, at_k) in enumerate(places):
        alone = dout[:, :, at_q], q[:, :, at_q], k[:, :, at_k], v[:, :, at_k]
        own_out, own_lse = out[:, :, at_q], lse[:, :, at_q]
        own = got[0][:, :, at_q], got[1][:, :, at_k], got[2][:, :, at_k]
        if i == 4:
            assert own_out.isnan().all()
        elif not alone[1].numel() or not alone[2].numel():
            assert not own_out.any() and (own_lse == -math.inf).all()
            assert not any(x.any() for x in own)
        else:
            assert_forward(*alone[1:], own_out, own_lse, **asked)
            assert_gradients(own, *alone, own_out, **asked)


@pytest.mark.parametrize("rule", [CAUSAL, pytest.param(FULL, marks=pytest.mark.emulation)])
def test_rounds_of_heads(rule):
    """Three heads whose tiles are claimed together, and then two."""
    hopper = Hopper(processors=2)
    hopper.forward.ROUND = 2
    check_forward(hopper, *tensors(64, (5, 5), (150, 290))[1:], scale=0.1, **rule)


@pytest.mark.emulation
@pytest.mark.parametrize("seed", range(4))
def test_rounds_of_ragged_batches(seed):
    """Rounds begin and end within a sequence; each tile past a sequence's end is skipped once."""
    hopper = Hopper(seed=seed, processors=2)
    hopper.forward.ROUND = 4
    check_ragged_forward(hopper, (3, 3), [70, 0, 130, 20, 1], [50, 9, 140, 40, 1])


@DIMS
def test_nan_stays_in_its_head(dim):
    dout, q, k, v = tensors(dim, (2, 2), (100, 100), batch=2)
    clean = forward(Hopper(), q, k, v, scale=0.1, **FULL)
    for x in (q, k, v):
        x[0, 1] = math.nan
    dout[1, 0, 99] = math.nan
    out, lse = forward(Hopper(), q, k, v, scale=0.1, **FULL)
    kept = torch.tensor([[True, False], [True, True]])
    assert torch.equal(out[kept], clean[0][kept]) and torch.equal(lse[kept], clean[1][kept])
    assert out[0, 1].isnan().all()
    for x in backward(with_atomics(Hopper()), dout, q, k, v, out, lse, scale=0.1, **FULL):
        assert x[0, 0].isfinite().all() and x[1, 1].isfinite().all()
        assert x[0, 1].isnan().any() and x[1, 0].isnan().any()


def test_any_strides():
    """Slices of one packed tensor, and a dout that no box fits."""
    packed = torch.randn(2, 100, 3, 2, 64).to(BF16)
    q, k, v = (packed[:, :, i].transpose(1, 2) for i in range(3))
    dout = torch.randn(2, 2, 64, 100).to(BF16).mT
    out, _ = check_forward(Hopper(), q, k, v, scale=0.1, **CAUSAL)
    got = check_backward(with_atomics(Hopper()), dout, q, k, v, scale=0.1, **CAUSAL)
    for x, like in zip((out, *got), (q, q, k, v), strict=True):
        assert x.stride() == torch.empty_like(like).stride()


@MAIN
def test_the_order_of_events_does_not_change_a_bit(dim):
    dout, q, k, v = tensors(dim, (1, 1), (150, 290))
    answers = []
    for seed in range(4):
        hopper = Hopper(seed=seed, processors=1 + seed)
        out, lse = forward(hopper, q, k, v, scale=0.1, **CAUSAL)
        answers.append(
            (
                out,
                lse,
                *backward(hopper, dout, q, k, v, out, lse, scale=0.1, deterministic=True, **CAUSAL),
            )
        )
    assert all(
        torch.equal(x, y) for other in answers[1:] for x, y in zip(answers[0], other, strict=True)
    )


def test_a_second_launch_uses_what_the_first_compiled():
    """Claim tiles of other lengths from a counter that starts anew."""
    hopper = Hopper()
    for lengths in ((150, 290), (100, 300), (400, 33)):
        check_forward(hopper, *tensors(128, (2, 1), lengths)[1:], scale=0.1, **CAUSAL)


def drawn(at):
    """A problem that nobody chose."""
    kv_heads, dim = at.choice([1, 2]), at.choice([8, 40, 64, 72, 128, 160, 256])
    heads = kv_heads * at.choice([1, 2, 3])
    lengths = at.randint(1, 420), at.randint(1, 420)
    inputs = tensors(
        dim, (heads, kv_heads), lengths, batch=at.choice([1, 1, 2]), dtype=at.choice([FP16, BF16])
    )
    asked = {
        "left": at.choice([None, None, at.randint(-20, 300)]),
        "right": at.choice([None, 0, 0, at.randint(-20, 300)]),
        "scale": at.choice([0.05, 0.125]),
        "softcap": at.choice([0.0, 0.0, 15.0]),
    }
    hopper = Hopper(
        seed=at.randrange(1 << 30), processors=at.choice([1, 2, 3, 5]), resident=at.choice([1, 2])
    )
    return with_atomics(hopper) if at.random() < 0.6 else hopper, inputs, asked


@pytest.mark.emulation
@pytest.mark.parametrize("seed", range(150))
def test_drawn_problems(seed):
    at = random.Random(seed)
    hopper, inputs, asked = drawn(at)
    check_forward(hopper, *inputs[1:], **asked)
    check_backward(hopper, *inputs, deterministic=at.random() < 0.3, **asked)


@pytest.mark.emulation
@pytest.mark.parametrize("seed", range(40))
def test_drawn_ragged_batches(seed):
    """Many sequences, most of them short, over few multiprocessors."""
    at = random.Random(seed)
    dim, asked = (
        at.choice([64, 128, 200]),
        {**at.choice([FULL, CAUSAL, RULES["window"]]), "scale": 0.1},
    )
    lengths = [
        [at.choice([0, 1, at.randint(2, 64), at.randint(65, 200)]) for _ in range(at.randint(1, 8))]
        for _ in range(2)
    ]
    lengths = [[*x[: min(map(len, lengths))], 1] for x in lengths]
    ragged, places = ragged_of(*lengths)
    dout, q, k, v = tensors(dim, (2, 1), (sum(lengths[0]), sum(lengths[1])))
    hopper = Hopper(seed=seed, processors=at.choice([1, 2, 4]))
    hopper = with_atomics(hopper) if at.random() < 0.6 else hopper
    out, lse = forward(hopper, q, k, v, ragged=ragged, **asked)
    got = backward(hopper, dout, q, k, v, out, lse, ragged=ragged, **asked)
    for at_q, at_k in places:
        alone = dout[:, :, at_q], q[:, :, at_q], k[:, :, at_k], v[:, :, at_k]
        if alone[1].numel():
            assert_forward(*alone[1:], out[:, :, at_q], lse[:, :, at_q], **asked)
        own = got[0][:, :, at_q], got[1][:, :, at_k], got[2][:, :, at_k]
        if alone[1].numel() and alone[2].numel():
            assert_gradients(own, *alone, out[:, :, at_q], **asked)
        else:
            assert not any(x.any() for x in own)
