"""The Hopper backward kernels compiled for sm_90, on a machine without a GPU."""

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from accel.attention.kernels.hopper.backward import ALL, TILES, supports
from accel.attention.kernels.hopper.backward_keys import backward_keys
from accel.attention.kernels.hopper.backward_queries import backward_queries
from accel.attention.kernels.hopper.backward_wide import backward_wide
from accel.attention.kernels.hopper.descriptors import layout
from tests.unit.accel.compiled import SHARED_KIB, needs, serialised

KERNELS = {f.__name__: f for f in (backward_keys, backward_queries, backward_wide)}
SHARED = 3
"""One of so many key tiles leaves dq alone."""
SPILLED = {("backward_queries", 256, ALL): 96, ("backward_keys", 128, SHARED): 40}
"""Bytes a thread: descriptors of tiles that stay, where the accumulators take nearly all registers."""
NUMBERS = ("scale", "scale_log2", "cap_log2")


def boxes(rows, size, ragged):
    rank = 5 if ragged else 4
    shape = ",".join(["1"] * (rank - 2) + [str(rows), str(size)])
    return f"tensordesc<bf16[{shape}],{layout(rows, size, torch.bfloat16, rank=rank)!r}>"


def build(name, size, alone, *, ragged=False, **rule):
    tiles = TILES[size]
    kernel = KERNELS[name]
    owner_of_queries = kernel is backward_queries
    rows_q, rows_k = (64, tiles.keys_of_dq) if owner_of_queries else (tiles.queries, 64)
    per_row = f"tensordesc<fp32[2,{tiles.queries}],{gl.NVMMASharedLayout(0, 32, 2)!r}>"
    types = {"rows_desc": per_row, "rows": "*fp32", "acc": "*fp32", "dq": "*fp32"}
    types |= {"q_desc": boxes(rows_q, size, ragged), "do_desc": boxes(rows_q, size, ragged), "dq_desc": boxes(64, size, ragged)}
    types |= {"k_desc": boxes(rows_k, size, ragged), "v_desc": boxes(rows_k, size, ragged)}
    types |= {"dk_desc": boxes(64, size, ragged), "dv_desc": boxes(64, size, ragged)}
    fixed = {"LEFT": False, "RIGHT": False, "CAPPED": False, "RAGGED": ragged, "GROUP": 1, "D": size, "ALONE": alone, **rule}
    fixed |= {"BM": tiles.queries, "STAGES": 2, "ROTATE": False, "BN": tiles.keys_of_dq, "K_STAGES": 2, "V_STAGES": tiles.stages_of_v}
    fixed |= {"TILE": tiles.queries, "MASKED": ragged or bool(rule)}
    if not ragged:
        fixed |= {"starts_q": None, "starts_k": None}
    fixed = {n: value for n, value in fixed.items() if n in kernel.arg_names}
    signature = {
        n: "constexpr" if n in fixed else types.get(n, "*i32" if n.startswith("starts") else "fp32" if n in NUMBERS else "i32")
        for n in kernel.arg_names
    }
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(kernel.arg_names) if signature[n].startswith("*fp32")}
    source = GluonASTSource(kernel, signature, {(kernel.arg_names.index(n),): value for n, value in fixed.items()}, aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "maxnreg": 168, "enable_fp_fusion": True})


def assert_fits(kernel):
    found = needs(kernel)
    assert found.shared <= SHARED_KIB[90] * 1024
    assert "wgmma.mma_async" in found.ptx
    return found


@pytest.mark.parametrize("rule", [{}, {"RIGHT": True}], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("name", "size", "alone"),
    [
        ("backward_keys", 64, SHARED),
        ("backward_keys", 128, SHARED),
        ("backward_keys", 128, ALL),
        ("backward_wide", 256, ALL),
        ("backward_queries", 64, SHARED),
        ("backward_queries", 128, ALL),
        ("backward_queries", 256, ALL),
    ],
)
def test_no_register_spills_and_no_multiplication_waits_for_the_one_before(name, size, alone, rule):
    kernel = build(name, size, alone, **rule)
    assert assert_fits(kernel).spilled <= SPILLED.get((name, size, alone), 0)
    assert not serialised(kernel)


@pytest.mark.parametrize(("name", "size"), [("backward_keys", 128), ("backward_wide", 256), ("backward_queries", 256)])
@pytest.mark.parametrize("rule", [{"CAPPED": True, "RIGHT": True}, {"LEFT": True, "RIGHT": True, "ragged": True}], ids=["capped", "ragged"])
def test_every_feature_fits(name, size, rule):
    assert_fits(build(name, size, TILES[size].alone, **rule))


def test_deterministic_kernels_have_no_atomic():
    for name, size in (("backward_keys", 128), ("backward_wide", 256), ("backward_queries", 128)):
        ptx = build(name, size, ALL).asm["ptx"]
        assert "red.relaxed" not in ptx and "atom." not in ptx
    assert "red.relaxed.gpu.global.add.v4.f32" in build("backward_keys", 128, SHARED).asm["ptx"]


def test_what_it_cannot_do_is_said():
    x = torch.zeros(1, 1, 16, 64, dtype=torch.bfloat16)
    assert supports(x, x, x) is None
    assert "float32" in (supports(x.float(), x.float(), x.float()) or "")
    assert "264" in (supports(*[torch.zeros(1, 1, 16, 264, dtype=torch.bfloat16)] * 3) or "")
