"""MLA's decoding kernel for Hopper, its own source, on an emulated GPU, and planted defects."""

import math

import pytest
import torch

from tests.emulation.checks import poisoned
from tests.emulation.hopper import Hopper
from tests.emulation.machine import Defect


def away(batch: int, heads: int, keys: int, splits: int, dtype=torch.bfloat16, **machine) -> float:
    """Return the largest relative error of a sequence, and check that all heads are written."""
    torch.manual_seed(batch + keys)
    q = torch.randn(batch, heads, 576).to(dtype)
    # Nothing past the end is seen.
    room = torch.full((batch, keys + 8, 576), torch.nan, dtype=dtype)
    room[:, :keys] = torch.randn(batch, keys, 576).to(dtype)
    k = room[:, :keys]
    latent = Hopper(**machine).module("latent")
    out, lse = (torch.full((batch, heads, n), torch.nan) for n in (512, 1))
    out = out.to(dtype)
    strides = tuple((x.stride(0), x.stride(1)) for x in (q, k, out))
    problem = latent.Latent(batch, heads, keys, *strides, dtype, 576**-0.5, True)
    with poisoned():
        parts = latent.plan_run(problem, latent.parts(keys, splits), q.device)(q, k, out, lse)
    if parts:
        most, total = parts[1].double().unbind(-1)
        weights = torch.exp2(most - most.amax(1, keepdim=True))
        out = (parts[0] * weights.unsqueeze(3)).sum(1) / (total * weights).sum(1).unsqueeze(2)
        lse = ((total * weights).sum(1).log2() + most.amax(1)).mul(math.log(2)).unsqueeze(2)
    scores = q.double() @ k.double().mT * 576**-0.5
    assert (lse.double() - scores.logsumexp(2, keepdim=True)).abs().max() < 1e-5
    exact = scores.softmax(2) @ k[..., :512].double()
    return float(((out - exact).norm(dim=(1, 2)) / exact.norm(dim=(1, 2))).max())


@pytest.mark.parametrize(
    ("batch", "heads", "keys", "splits"),
    [
        (1, 64, 64, 1),
        (2, 128, 200, 2),  # a last tile of eight keys
        (1, 64, 300, 4),  # five tiles, three parts
    ],
)
def test_sums_of_parts(batch, heads, keys, splits):
    assert away(batch, heads, keys, splits) < 3e-3


def test_float16():
    assert away(1, 64, 130, 1, torch.float16) < 5e-4


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    await_slot(p_empty, step)\n", ""),
        ("    fence_async_shared()\n", ""),
        ("        release_tile(right_empty, step)\n    if not", "    if not"),
        ("        release_tile(left_empty, step - 1)\n", ""),
        ("warpgroup_mma_wait(3, [acc])", "warpgroup_mma_wait(4, [acc])"),
        ("right_empty = barriers(STAGES, 2)", "right_empty = barriers(STAGES, 1)"),
        ("if key + ROWS > keys", "if key > keys"),
        ("acc * gl.expand_dims(shrinks.load(O_ROW), 1)", "acc"),
        ("ready, k_right.index(slot), False, HALF)", "ready, k_right.index(slot), False)"),
        ("splits, part * span", "splits, part * span + part"),
        ("        await_slot(p_empty, end - first)\n", ""),
        ("        publish_tile(p_full, end - first)\n", ""),
        ("(acc * gl.expand_dims(shrinks.load(O_ROW), 1)).to", "acc.to"),
    ],
    ids=[
        "weights",
        "fence",
        "kept",
        "kept left",
        "wait",
        "readers",
        "mask",
        "shrink",
        "half",
        "part",
        "last factor",
        "last step",
        "means",
    ],
)
def test_planted_defects_are_caught(old, new):
    with pytest.raises((Defect, AssertionError, RuntimeError)):
        for splits in (1, 2):
            assert away(1, 64, 300, splits, changes={"latent.py": (old, new)}) < 3e-3
