"""The FP8 forward kernel for Hopper, its own source, on an emulated GPU, against the same roundings
in float64; and defects planted in it."""

import math
from dataclasses import replace

import pytest
import torch

from accel.attention import emulation
from accel.attention.problem import Problem
from tests.emulation.checks import CAUSAL, FULL, RULES, poisoned, tensors
from tests.emulation.hopper import Hopper
from tests.emulation.machine import Defect

BF16, FP16 = torch.bfloat16, torch.float16


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
            made, torch.zeros(1, dtype=torch.int32), q, k, v, scale=dim**-0.5, ragged=None, **rule
        )
    p = Problem(
        batch=2, heads=heads[0], kv_heads=heads[1], seq_q=lengths[0], seq_k=lengths[1],
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
    "centre of the next head": ("row = head // kv_group\n", "row = head // kv_group + 1\n"),
    "shift left in the sums": ("m - SHIFT, sums", "m, sums"),
    "one half of a block's sum forgotten": ("(total + part) * rows", "total + part * rows"),
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
@pytest.mark.parametrize(
    "change",
    [("m_kept = m\n                segments", "segments"), ("acc += _fetch(", "acc -= _fetch(")],
)
def test_a_planted_defect_of_segments_is_found(change):
    with pytest.raises((AssertionError, Defect)):
        check(
            Hopper(changes={"forward_fp8.py": change}), 256, (1, 1), (130, 900), segment=256, **FULL
        )
