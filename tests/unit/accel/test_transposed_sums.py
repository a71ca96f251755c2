"""No kernel of ours is written as Triton 3.4 to 3.7.0 compiles wrongly for Hopper."""

import pytest
import torch
import triton
import triton.language as tl

from gpudeck.accel.runtime.call import KernelCall, Pointer, compile_kernel
from tests import kernel_code
from tests.unit.accel.transposed import fed_by_transposed_sums


@triton.jit
def transposed_sums(a, b, c, out, carried: tl.constexpr, turned: tl.constexpr):
    """Multiply sums, transposed or not, that are a step's own or carried from the step before."""
    steps = tl.arange(0, 64)
    at = steps[:, None] * 64 + steps[None, :]
    before = tl.zeros([64, 64], tl.bfloat16)
    acc = tl.zeros([64, 64], tl.float32)
    for i in range(4):
        sums = tl.dot(tl.load(a + at + i * 4096), tl.trans(tl.load(b + at))).to(tl.bfloat16)
        factor = before if carried else sums
        acc = tl.dot(tl.trans(factor) if turned else factor, tl.load(c + at), acc)
        before = sums
    tl.store(out + at, acc)


def between(call):
    return compile_kernel(call, 90).asm["ttgir"]


@pytest.mark.parametrize(
    ("carried", "turned"),
    [
        (False, True),
        pytest.param(False, False, marks=pytest.mark.matrix),
        pytest.param(True, True, marks=pytest.mark.matrix),
    ],
)
def test_transposed_sums_are_found(carried, turned):
    """Those of the step before are stored first, and transposed as they are read: that is right."""
    given = dict.fromkeys("abc", Pointer(torch.bfloat16)) | {"out": Pointer(torch.float32)}
    call = KernelCall(transposed_sums, 1, given, {"carried": carried, "turned": turned})
    found = fed_by_transposed_sums(between(call))
    assert len(found) == (turned and not carried)


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", [kernel_code.others, kernel_code.attention])
def test_none_of_our_kernels_does_it(part):
    products = 0
    for name, call in part():
        code = between(call)
        products += code.count("ttng.warp_group_dot ")
        assert not fed_by_transposed_sums(code), name
    assert products > 20
