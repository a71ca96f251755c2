"""The Hopper forward kernel, compiled for sm_90 without a GPU, and what it says it does not take."""

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

from accel.attention.kernels.hopper.descriptors import layout, misfit
from accel.attention.kernels.hopper.forward import SHAPES, SHORT, _forward, _shape, supports
from tests.unit.accel.compiled import SHARED_KIB, needs, serialised

BF16 = torch.bfloat16


def compiled(shape, **asked):
    """The kernel of `shape` for bf16, with RIGHT, LEFT, RAGGED or SOFTCAP as asked."""
    kind = {"RIGHT": False, "LEFT": False, "RAGGED": False, "SOFTCAP": False, **asked}
    fixed = {
        "C": shape.consumers,
        "BN": shape.keys,
        "D": shape.dim,
        "STAGES": shape.stages,
        "Q_STAGES": shape.query_stages,
        "O_SLOTS": shape.output_slots,
        "REGISTERS": shape.registers,
        "SPARE": shape.spare,
        "CUT": any(kind.values()),
        **kind,
    }
    if not kind["RAGGED"]:
        fixed |= {"starts_q": None, "starts_k": None}
    rank = 5 if kind["RAGGED"] else 4

    def box(rows):
        return f"tensordesc<bf16[{','.join(['1'] * (rank - 2))},{rows},{shape.dim}],{layout(rows, shape.dim, BF16, rank=rank)!r}>"

    types = {"q_desc": box(64), "k_desc": box(shape.keys), "v_desc": box(shape.keys), "o_desc": box(64)}
    types |= {"lse": "*fp32", "claims": "*i32", "starts_q": "*i32", "starts_k": "*i32"}
    types |= dict.fromkeys(("scale", "cap", "scale_in"), "fp32")
    names = _forward.arg_names
    signature = {name: "constexpr" if name in fixed else types.get(name, "i32") for name in names}
    source = GluonASTSource(_forward, signature, {(names.index(name),): value for name, value in fixed.items()})
    options = {"num_warps": 4, "maxnreg": shape.registers_at_launch, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


MAIN = {
    "64": (SHAPES[64], {}),
    "64, short, causal": (SHORT, {"RIGHT": True}),
    "128": (SHAPES[128], {}),
    "128, causal": (SHAPES[128], {"RIGHT": True}),
    "256": (SHAPES[256], {}),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MAIN)
def test_it_fits_a_multiprocessor(name):
    shape, asked = MAIN[name]
    kernel = compiled(shape, **asked)
    asks = needs(kernel)
    assert asks.shared <= SHARED_KIB[90] * 1024
    assert "wgmma.mma_async" in asks.ptx
    assert "cp.async.bulk.tensor" in asks.ptx
    assert f"setmaxnreg.dec.sync.aligned.u32 \t{shape.spare}" in asks.ptx
    assert not serialised(kernel)
    # Places and counts of a tile at most, which are needed once a tile: the running sums and weights stay in registers.
    assert asks.spilled <= 96


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_at_once_compiles():
    kernel = compiled(SHAPES[128], RIGHT=True, LEFT=True, RAGGED=True, SOFTCAP=True)
    assert needs(kernel).shared <= SHARED_KIB[90] * 1024
    assert not serialised(kernel)


@pytest.mark.parametrize("shape", [SHORT, *SHAPES.values()])
def test_the_registers_suffice_for_all_warps(shape):
    """A warpgroup that asks for more than are left would wait for ever."""
    warpgroups = shape.consumers + 1
    assert warpgroups * 128 * shape.registers_at_launch <= 65536
    assert shape.consumers * shape.registers + shape.spare <= warpgroups * shape.registers_at_launch


def test_short_sequences_of_small_heads_take_smaller_tiles():
    assert _shape(64, 512, masked=False) is SHORT
    assert _shape(64, 4096, masked=True) is SHORT
    assert _shape(64, 8192, masked=True) is SHAPES[64]
    assert _shape(72, 512, masked=True) is SHAPES[128]
    assert _shape(256, 1, masked=False) is SHAPES[256]


def test_it_says_what_it_does_not_take():
    q = torch.zeros(1, 2, 16, 64, dtype=BF16)
    assert supports(q, q, q) is None
    assert "float16" in supports(*[q.float()] * 3)
    assert "multiples of 8" in supports(*[q[..., :20].contiguous()] * 3)
    assert "up to 256" in supports(*[torch.zeros(1, 1, 4, 264, dtype=BF16)] * 3)
    assert "k: " in supports(q, q.mT.contiguous().mT, q)


def test_strides_are_taken_as_they_are_or_refused():
    packed = torch.zeros(2, 10, 3, 4, 64, dtype=BF16)
    assert misfit(packed[:, :, 1].transpose(1, 2)) is None
    assert misfit(torch.zeros(1, 1, 10, 64, dtype=BF16).expand(2, 4, 10, 64)) is None
    assert "16 bytes" in misfit(torch.zeros(2, 1, 10, 68, dtype=BF16)[..., :64])
    assert "16 bytes" in misfit(torch.zeros(10 * 64 + 1, dtype=BF16)[1:].view(1, 1, 10, 64))
    assert "side by side" in misfit(torch.zeros(1, 1, 64, 10, dtype=BF16).mT)
