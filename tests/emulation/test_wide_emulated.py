"""Hopper's forward kernel for heads of 512, its own source, on an emulated GPU, and planted
defects."""

import pytest
import torch

from gpudeck.accel.attention.problem import Rules
from tests.emulation.checks import FULL, RULES, assert_forward, poisoned, tensors
from tests.emulation.hopper import Hopper
from tests.emulation.machine import Defect


def check(dim, heads, lengths, *, dtype=torch.bfloat16, changes=None, **rule):
    _, q, k, v = tensors(dim, heads, lengths, dtype=dtype)
    asked = {"scale": dim**-0.5, **rule}
    wide = Hopper(changes=changes or {}).module("forward_wide")
    with poisoned():
        out, lse = wide.plan_run(q, k, v, Rules(**asked))(q, k, v)
    assert_forward(q, k, v, out, lse, **asked)


@pytest.mark.parametrize("name", RULES)
def test_forward(name):
    check(512, (2, 1), (100, 150), **RULES[name])


def test_more_queries_than_keys_some_of_which_see_nothing():
    check(512, (1, 1), (150, 70), **RULES["causal"])


@pytest.mark.parametrize("dim", [264, 400])
def test_narrower_heads_in_float16(dim):
    check(dim, (2, 2), (65, 70), dtype=torch.float16, **FULL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    await_slot(p_empty, step)\n", ""),
        ("    fence_async_shared()\n    publish", "    publish"),
        ("        release_tile(right_empty, step)\n", ""),
        ("        release_tile(left_empty, step - 1)\n", ""),
        ("        release_tile(k_empty, step)\n", ""),
        ("warpgroup_mma_wait(2, [acc])", "warpgroup_mma_wait(3, [acc])"),
        ("    await_slot(p_empty, count)\n", ""),
        ("    publish_tile(p_full, count)\n", ""),
        ("False, SIDE * HALF)", "False)"),
        ("        if is_cut(query,", "        if is_cut(query + 64,"),
    ],
    ids=[
        "weights",
        "fence",
        "kept right",
        "kept left",
        "kept keys",
        "wait",
        "last factor",
        "last step",
        "half",
        "mask",
    ],
)
def test_planted_defects_are_caught(old, new):
    with pytest.raises((Defect, AssertionError, RuntimeError)):
        check(512, (2, 1), (100, 150), changes={"forward_wide.py": (old, new)}, **RULES["causal"])
