"""The Hopper backward kernels compiled for sm_90, on a machine without a GPU."""

from dataclasses import replace

import pytest

from gpudeck.accel.attention.kernels.hopper import backward
from gpudeck.accel.attention.kernels.hopper.backward import backward_calls
from gpudeck.accel.runtime.call import compile_kernel
from tests.unit.accel.compiled import SHARED_KIB, idle_barriers, needs, problem, serialised

SPILLED = {("queries", 256, True): 96, ("keys", 128, False): 48}
"""Bytes a thread: descriptors of tiles that stay, where the accumulators take nearly all
registers."""


def build(which, dim, *, deterministic=False, **rules):
    """One of the three kernels for long sequences, which are added up atomically unless that is to
    be deterministic."""
    g = problem(16, 8192, dim, **rules)
    lse_strides = (16 * 8192, 8192, 1)
    asked = {"deterministic": deterministic, "processors": 132}
    calls = backward_calls(g, g.q.strides, g.q.strides, lse_strides, **asked)
    return compile_kernel(getattr(calls, which), 90)


def assert_fits(kernel, instruction="wgmma.mma_async"):
    found = needs(kernel)
    assert found.shared <= SHARED_KIB[90] * 1024
    assert instruction in found.ptx
    return found


KERNELS = [
    ("keys", 64, False),
    ("keys", 128, False),
    ("keys", 128, True),
    ("keys", 256, True),
    ("queries", 64, True),
    ("queries", 128, True),
    ("queries", 256, True),
]
ALWAYS = (("keys", 128, True), ("queries", 128, True))
"""Compiled with a mask by `make test`; the others, and all without a mask, by `make matrix`."""


@pytest.mark.parametrize(
    ("which", "dim", "deterministic", "rule"),
    [
        *(
            pytest.param(
                *k,
                {},
                id=f"{k[0]}-{k[1]}-{k[2]}-full",
                marks=pytest.mark.matrix,
            )
            for k in KERNELS
        ),
        *(
            pytest.param(
                *k,
                {"right": 0},
                id=f"{k[0]}-{k[1]}-{k[2]}-causal",
                marks=[pytest.mark.matrix] * (k not in ALWAYS),
            )
            for k in KERNELS
        ),
    ],
)
def test_no_register_spills_and_no_multiplication_waits_for_the_one_before(
    which, dim, deterministic, rule
):
    kernel = build(which, dim, deterministic=deterministic, **rule)
    assert assert_fits(kernel).spilled <= SPILLED.get((which, dim, deterministic), 0)
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


CLAIMED_SPILLS = {("keys", 128, False): 80}


def claim_all(monkeypatch):
    claimed = {
        size: replace(tiles, claimed_to=1 << 20, claimed_atomic_from=tiles.atomic_from)
        for size, tiles in backward.TILES.items()
        if size < 256
    }
    monkeypatch.setattr(backward, "TILES", backward.TILES | claimed)


@pytest.mark.parametrize("which", ["keys", "queries"])
def test_heads_of_96_in_claimed_tiles_multiply_no_zeros(monkeypatch, which):
    """Their sums have 64 and 32 columns, where those of heads of 128 have all at once."""
    claim_all(monkeypatch)
    kernel = build(which, 96, deterministic=True, right=0)
    ptx = assert_fits(kernel).ptx
    assert "m64n32k16" in ptx and "m64n128k16" not in ptx
    assert needs(kernel).spilled == 0 and not serialised(kernel) and not idle_barriers(kernel)


@pytest.mark.parametrize(
    ("which", "dim", "deterministic"),
    [pytest.param(*k, marks=[pytest.mark.matrix] * (k[1] == 128)) for k in KERNELS if k[1] < 256],
)
def test_kernels_that_claim_tiles_fit_as_well(monkeypatch, which, dim, deterministic):
    claim_all(monkeypatch)
    kernel = build(which, dim, deterministic=deterministic, right=0)
    assert assert_fits(kernel).spilled <= CLAIMED_SPILLS.get((which, dim, deterministic), 0)
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


def test_the_sums_are_rounded_without_spills():
    assert assert_fits(build("queries", 128), "cp.async.bulk.tensor").spilled == 0


@pytest.mark.slow
@pytest.mark.parametrize(("which", "dim"), [("keys", 128), ("keys", 256), ("queries", 256)])
@pytest.mark.parametrize(
    "rule",
    [{"softcap": 3.0, "right": 0}, {"left": 100, "right": 0, "ragged": (3, 4000, 4000)}],
    ids=["capped", "ragged"],
)
def test_every_feature_fits(which, dim, rule):
    assert_fits(build(which, dim, **rule))


@pytest.mark.parametrize("dim", [64, 128, 256])
def test_the_rows_are_loaded_sixteen_bytes_at_a_time(dim):
    ptx = build("rows", dim).asm["ptx"]
    assert "ld.global.v4.b32" in ptx and "ld.global.b16" not in ptx


def test_deterministic_kernels_have_no_atomic():
    for which, dim in (("keys", 128), ("keys", 256), ("queries", 128)):
        ptx = build(which, dim, deterministic=True).asm["ptx"]
        assert "red.relaxed" not in ptx and "atom." not in ptx
    assert "red.relaxed.gpu.global.add.v4.f32" in build("keys", 128).asm["ptx"]
