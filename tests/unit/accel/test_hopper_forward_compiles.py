"""The Hopper forward kernel, compiled for sm_90 without a GPU, and what it says it does not
take."""

import heapq
import re

import pytest
import torch

from gpudeck.accel.attention.kernels.geometry import bias_layout
from gpudeck.accel.attention.kernels.hopper.descriptors import fits
from gpudeck.accel.attention.kernels.hopper.forward import (
    SHAPES,
    SHORT,
    _shape,
    forward_call,
)
from gpudeck.accel.attention.kernels.hopper.forward_wide import forward_wide_call
from gpudeck.accel.runtime.call import Pointer, TensorBox, compile_kernel
from tests.unit.accel.compiled import SHARED_KIB, idle_barriers, needs, problem, serialised

BF16 = torch.bfloat16


def call(dim, length=8192, **rules):
    return forward_call(problem(16, length, dim, **rules), processors=132)


@pytest.mark.parametrize("dim", [64, 128, 256])
@pytest.mark.parametrize("length", [2048, 4096, 8192, 16384])
def test_causal_tiles_keep_all_multiprocessors_busy(dim, length):
    """Who is free takes the next tile, which costs as much as the blocks of keys that it sees."""
    heads = 16384 // length * 2048 // dim
    numbers = forward_call(problem(heads, length, dim, right=0), processors=132)
    asked, at_once = numbers.arguments, numbers.arguments["group"]
    rows, keys = numbers.constants["C"] * 64, numbers.constants["BN"]
    free, work = [0] * 132, 0
    for first in range(0, heads, at_once):
        for place in range(min(at_once, heads - first) * asked["row_tiles"]):
            row = asked["row_tiles"] - 1 - place // min(at_once, heads - first)
            blocks = -(-min((row + 1) * rows, length) // keys)
            work += blocks
            heapq.heapreplace(free, free[0] + blocks)
    assert work / 132 / max(free) > 0.97


MAIN = {
    "64": (64, 8192, {}),
    "64, short, causal": (64, 2048, {"right": 0}),
    "64, window": (64, 8192, {"right": 0, "left": 512}),
    "72, causal": (72, 8192, {"right": 0}),
    "96": (96, 8192, {}),
    "128": (128, 8192, {}),
    "128, causal": (128, 8192, {"right": 0}),
    "160": (160, 8192, {}),
    "192, causal": (192, 8192, {"right": 0}),
    "256": (256, 8192, {}),
}


def passed(value):
    """The PTX types in which an argument arrives."""
    if isinstance(value, TensorBox):
        return ["b8", *["u32"] * len(value.shape), *["u64"] * len(value.strides)]
    return ["u64"] if isinstance(value, Pointer) else ["f32" if isinstance(value, float) else "u32"]


def test_the_compiled_kernel_takes_what_is_passed():
    """Of a box its tensor map, its shape and its strides; at the end two pointers of Triton's
    own."""
    asked = call(128, ragged=(3, 4000, 4000))
    entry = compile_kernel(asked, 90).asm["ptx"].partition(".entry")[2].partition(")")[0]
    expected = [
        kind
        for name in asked.kernel.arg_names
        if asked.arguments.get(name) is not None
        for kind in passed(asked.arguments[name])
    ]
    assert re.findall(r"\.param (?:\.align 64 )?\.(\w+)", entry) == [*expected, "u64", "u64"]
    assert entry.count("[128]") == 4


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.matrix] * (n != "128, causal")) for n in MAIN]
)
def test_it_fits_a_multiprocessor(name):
    dim, length, rules = MAIN[name]
    kernel = compile_kernel(call(dim, length, **rules), 90)
    asks = needs(kernel)
    assert asks.shared <= SHARED_KIB[90] * 1024
    assert "wgmma.mma_async" in asks.ptx
    assert "cp.async.bulk.tensor" in asks.ptx
    assert asks.ptx.index("griddepcontrol.wait") < asks.ptx.index("cp.async.bulk.tensor")
    shape = _shape(dim, length, masked=bool(rules), window="left" in rules)
    assert f"setmaxnreg.dec.sync.aligned.u32 \t{shape.spare}" in asks.ptx
    assert not serialised(kernel)
    assert not idle_barriers(kernel)
    # Places and counts of a tile at most, which are needed once a tile: the running sums and
    # weights stay in registers.
    assert asks.spilled <= 96


@pytest.mark.matrix
@pytest.mark.timeout(300)
@pytest.mark.parametrize("more", [{"slopes": 0}, {"sink": True}], ids=["ALiBi", "sink"])
@pytest.mark.parametrize("name", ["64, short, causal", "128", "128, causal"])
def test_variants_keep_their_terms_in_registers(name, more):
    dim, length, rules = MAIN[name]
    asked = forward_call(problem(16, length, dim, **rules)._replace(**more), processors=132)
    kernel = compile_kernel(asked, 90)
    assert needs(kernel).spilled <= 128
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


@pytest.mark.matrix
@pytest.mark.timeout(300)
def test_biases_are_loaded_in_pairs_and_stay_in_registers():
    """Of rows of 2044 keys, which no tile divides."""
    bias = bias_layout(torch.empty(1, 16, 2044, 2044, dtype=BF16, device="meta"))
    asked = forward_call(problem(16, 2044, 64)._replace(bias=bias), processors=132)
    kernel = compile_kernel(asked, 90)
    found = needs(kernel)
    assert re.search(r"ld\.global\S*\.b32 ", found.ptx)
    assert not re.search(r"ld\.global\S*\.b16 ", found.ptx)
    assert found.spilled <= 128
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_at_once_compiles():
    kernel = compile_kernel(call(128, right=0, left=100, softcap=3.0, ragged=(3, 4000, 4000)), 90)
    assert needs(kernel).shared <= SHARED_KIB[90] * 1024
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


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
    assert _shape(64, 8192, masked=True, added=True) is SHORT
    assert _shape(72, 512, masked=True) is SHAPES[80]
    assert _shape(256, 1, masked=False) is SHAPES[256]


@pytest.mark.parametrize("rule", [{"right": 0}, {}, {"softcap": 3.0, "right": 0, "left": 100}])
def test_the_kernel_of_the_widest_heads_fits(rule):
    kernel = compile_kernel(forward_wide_call(problem(16, 8192, 512, **rule)), 90)
    found = needs(kernel)
    assert found.spilled <= 600 and found.shared <= SHARED_KIB[90] * 1024
    assert not serialised(kernel)
    assert not idle_barriers(kernel)


def test_strides_are_taken_as_they_are_or_refused():
    packed = torch.zeros(2, 10, 3, 4, 64, dtype=BF16)
    assert fits(packed[:, :, 1].transpose(1, 2))
    assert fits(torch.zeros(1, 1, 10, 64, dtype=BF16).expand(2, 4, 10, 64))
    assert not fits(torch.zeros(2, 1, 10, 68, dtype=BF16)[..., :64])
    assert not fits(torch.zeros(10 * 64 + 1, dtype=BF16)[1:].view(1, 1, 10, 64))
    assert not fits(torch.zeros(1, 1, 64, 10, dtype=BF16).mT)
