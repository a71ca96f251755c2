"""The FP8 forward kernel for Hopper, its own source, on an emulated GPU, against the same roundings
in float64; and defects planted in it."""

import math
from dataclasses import replace

import pytest
import torch

from gpudeck.accel.attention import emulation
from gpudeck.accel.attention.kernels.quantised import KEYS, QUERIES, Quantised, blocks_of
from gpudeck.accel.attention.problem import Problem, Rules
from tests.emulation.checks import CAUSAL, FULL, RULES, poisoned, ragged_of, tensors
from tests.emulation.hopper import Hopper
from tests.emulation.machine import Defect

BF16, FP16 = torch.bfloat16, torch.float16
MORE = pytest.mark.emulation


def check(hopper, dim, heads, lengths, *, dtype=BF16, segment=0, **rule):
    """Output and lse are as near to float64 as the output's dtype allows, but for a few weights
    that fall to the other of two numbers of E4M3."""
    _, q, k, v = tensors(dim, heads, lengths, batch=2, dtype=dtype)
    v = v + 2  # a centre
    kernels = hopper.module("forward_fp8")
    if segment:
        kernels.SCHEDULES[256] = replace(kernels.SCHEDULES[256], segment=segment)
    made = emulation.quantise(q, k, v)
    with poisoned():
        out, lse = kernels.forward(
            made, torch.zeros(1, dtype=torch.int32), q, k, v, Rules(**rule, scale=dim**-0.5)
        )
    assert_emulated(out, lse, made, q, k, **rule)


def assert_emulated(out, lse, made, q, k, **rule):
    (batch, heads, seq_q, dim), dtype = q.shape, q.dtype
    p = Problem(
        batch=batch, heads=heads, kv_heads=k.shape[1], seq_q=seq_q, seq_k=k.shape[2],
        head_dim=dim, dtype=dtype, device=q.device, capability=None, scale=dim**-0.5, **rule,
    )  # fmt: skip
    exact, exact_lse = emulation.attend(made, p, torch.float64)
    exact = exact[..., :dim]
    blind = exact_lse == -math.inf
    assert torch.equal(lse == -math.inf, blind)
    assert not out[blind].any()
    assert ((lse - exact_lse).abs() < 1e-4)[~blind].all()
    away = (out.double() - exact).abs()
    assert away.max() < 0.05
    assert away.square().mean().sqrt() < 2 * (exact.to(dtype) - exact).square().mean().sqrt() + 1e-4


@pytest.mark.parametrize(
    ("dim", "rule"),
    [
        pytest.param(
            dim,
            name,
            marks=()
            if (dim, name) in ((128, "window"), (256, "causal"))
            else pytest.mark.emulation,
        )
        for dim in (64, 80, 128, 256)
        for name in RULES
    ],
)
def test_forward(dim, rule):
    dtype = FP16 if dim == 80 else BF16
    check(Hopper(), dim, (2, 1), (150, 290), dtype=dtype, **RULES[rule])


@pytest.mark.emulation
@pytest.mark.parametrize("lengths", [(1, 1), (1, 300), (129, 7), (200, 64), (64, 128)])
def test_lengths(lengths):
    for rule in (CAUSAL, FULL, {**FULL, "left": 300, "right": -20}):
        check(Hopper(), 64, (1, 1), lengths, **rule)


def end_to_end(parts, ragged, q, k):
    """Lay the quantised sequences end to end as the pre-pass does; what nobody may read is NaN."""
    q_blocks, k_blocks = (
        blocks_of(x.shape[2], rows, len(parts)) for x, rows in ((q, QUERIES), (k, KEYS))
    )
    dim = q.shape[3]
    starts = list(zip(ragged.starts_q.tolist(), ragged.starts_k.tolist(), strict=False))
    q8, k8, v8 = (
        torch.full((1, x.shape[1], *sizes), 0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn)
        for x, sizes in (
            (q, (q.shape[2], dim)), (k, (k.shape[2], dim)), (k, (dim, k_blocks * KEYS))
        )
    )  # fmt: skip
    q_scales, k_scales, v_scales = (
        torch.full((1, x.shape[1], size), math.nan)
        for x, size in ((q, q_blocks), (k, k_blocks), (k, k_blocks))
    )
    centre = torch.full((len(parts), k.shape[1], dim), math.nan)
    for i, (part, (at_q, at_k)) in enumerate(zip(parts, starts, strict=False)):
        if part is None:
            continue
        centre[i] = part.v_centre[0]
        q8[:, :, at_q : at_q + part.q.shape[2]] = part.q
        k8[:, :, at_k : at_k + part.k.shape[2]] = part.k
        first_q, first_k = at_q // QUERIES + i, at_k // KEYS + i
        blocks = part.k_scales.shape[2]
        q_scales[:, :, first_q : first_q + part.q_scales.shape[2]] = part.q_scales
        k_scales[:, :, first_k : first_k + blocks] = part.k_scales
        v_scales[:, :, first_k : first_k + blocks] = part.v_scales
        v8[..., first_k * KEYS : (first_k + blocks) * KEYS] = part.v
    return Quantised(q8, k8, v8, q_scales, k_scales, v_scales, centre)


@pytest.mark.parametrize(
    "rule", ["causal", pytest.param("full", marks=MORE), pytest.param("window", marks=MORE)]
)
@pytest.mark.parametrize("dim", [64, *(pytest.param(d, marks=MORE) for d in (128, 256))])
def test_ragged_is_each_sequence_alone(dim, rule):
    check_ragged(Hopper(processors=2), dim, **RULES[rule])


def check_ragged(hopper, dim, **rule):
    ragged, places = ragged_of([70, 0, 130, 20], [50, 9, 200, 40])
    _, q, k, v = tensors(dim, (2, 1), (220, 299))
    alone = [(q[:, :, at_q], k[:, :, at_k], v[:, :, at_k]) for at_q, at_k in places]
    for i, (_, _, values) in enumerate(alone):
        values.add_(3 * (i - 1))  # a centre each
    parts = [emulation.quantise(*x) if x[0].numel() else None for x in alone]
    made = end_to_end(parts, ragged, q, k)
    claims = torch.zeros(1, dtype=torch.int32)
    with poisoned():
        out, lse = hopper.module("forward_fp8").forward(
            made, claims, q, k, v, Rules(**rule, scale=dim**-0.5), ragged
        )
    for (at_q, _), part, (q_alone, k_alone, _) in zip(places, parts, alone, strict=True):
        if part is not None:
            assert_emulated(out[:, :, at_q], lse[:, :, at_q], part, q_alone, k_alone, **rule)


@pytest.mark.parametrize(
    ("lengths", "rule"),
    [((130, 700), FULL), pytest.param((700, 900), CAUSAL, marks=pytest.mark.emulation)],
)
def test_segments_are_added_up(lengths, rule):
    check(Hopper(seed=3), 256, (1, 1), lengths, segment=256, **rule)


DEFECTS = {
    "keys of a thread in another order": (
        "return a, c, b, d",
        "return a, b, c, d",
    ),
    "scale of the values of the block before": (
        "unit = v_now / v_next",
        "unit = v_next / v_now",
    ),
    "scale of the wrong keys": (
        "k_next = _block_scale(k_scales, key_base, (block - i - 1) * BN, keys, SHARED)",
        "k_next = _block_scale(k_scales, key_base, (block - i) * BN, keys, SHARED)",
    ),
    "weights not waited for": (
        "        part = warpgroup_mma_wait(0, deps=(part,))\n",
        "",
    ),
    "values never released": (
        "release_tile(v_empty, step + i - 1)",
        "pass",
    ),
    "values released before their product": (
        "        part = warpgroup_mma_wait(0, deps=(part,))\n"
        "        release_tile(v_empty, step + i - 1)\n",
        "        release_tile(v_empty, step + i - 1)\n"
        "        part = warpgroup_mma_wait(0, deps=(part,))\n",
    ),
    "centre of the next head": (
        "+ head // kv_group\n    centre",
        "+ head // kv_group + 1\n    centre",
    ),
    "shift left in the sums": ("m - SHIFT, sums", "m, sums"),
    "one half of a block's sum forgotten": ("(total + part) * _of", "total + part * _of"),
}
LATE_DEFECTS = {
    "a factor a block too early": (
        "return total * _of_rows(due, part)",
        "return total * _of_rows(alpha, part)",
    ),
    "the last factor forgotten": ("part + total * _of_rows(due, part)", "part + total"),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if i < 2 else pytest.mark.emulation)
        for i, name in enumerate(DEFECTS)
    ],
)
def test_a_planted_defect_is_found(name):
    changes = {"forward_fp8.py": DEFECTS[name]}
    with pytest.raises((AssertionError, Defect)):
        for seed in range(4):  # orders of events
            check(Hopper(changes=changes, seed=seed), 128, (1, 1), (150, 900), **FULL)


@pytest.mark.emulation
@pytest.mark.parametrize("name", LATE_DEFECTS)
def test_a_planted_defect_of_late_factors_is_found(name):
    changes = {"forward_fp8.py": LATE_DEFECTS[name]}
    with pytest.raises((AssertionError, Defect)):
        check(Hopper(changes=changes), 64, (1, 1), (150, 900), **FULL)


@pytest.mark.emulation
@pytest.mark.parametrize(
    "change",
    [("m_kept = m\n                segments", "segments"), ("acc += _fetch(", "acc -= _fetch(")],
)
def test_a_planted_defect_of_segments_is_found(change):
    with pytest.raises((AssertionError, Defect)):
        check(
            Hopper(changes={"forward_fp8.py": change}), 256, (1, 1), (130, 900), segment=256, **FULL
        )


@pytest.mark.emulation
@pytest.mark.parametrize(
    "change",
    [
        ("start_q // ROWS + sequence", "start_q // ROWS"),
        ("gl.load(starts + sequence) // SHARED + sequence", "gl.load(starts + sequence) // SHARED"),
        ("row = sequence * (heads // kv_group)", "row = 0"),
    ],
)
def test_a_planted_defect_of_ragged_batches_is_found(change):
    with pytest.raises((AssertionError, Defect)):
        check_ragged(Hopper(processors=2, changes={"forward_fp8.py": change}), 64, **CAUSAL)
