"""Kernels are specialised on their arguments, and graphs refuse bad inputs; launches need a GPU."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from gpudeck.accel.runtime.call import KernelCall, Pointer, compile_kernel, source
from gpudeck.accel.runtime.graphs import Replay


@triton.jit(do_not_specialize=["n"])
def scaled(x_ptr, y_ptr, missing_ptr, stride, n, factor, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * stride)
    tl.store(y_ptr + at, x * factor, mask=at < n)


def call(stride=1, n=1, aligned=True):
    arguments = {
        "x_ptr": Pointer(torch.float16, aligned),
        "y_ptr": Pointer(torch.bfloat16),
        "missing_ptr": None,
        "stride": stride,
        "n": n,
        "factor": 2.0,
    }
    return KernelCall(scaled, 1, arguments, {"BLOCK": 1024})


def divisible(asked):
    return {scaled.arg_names[position] for (position,) in asked.attrs}


def test_types_constants_and_alignment_are_those_of_the_arguments():
    asked = source(call(stride=32, n=64))
    assert asked.signature == {
        "x_ptr": "*fp16",
        "y_ptr": "*bf16",
        "missing_ptr": "constexpr",
        "stride": "i32",
        "n": "i32",
        "factor": "fp32",
        "BLOCK": "constexpr",
    }
    assert divisible(asked) == {"x_ptr", "y_ptr", "stride"}
    assert divisible(source(call(stride=33, aligned=False))) == {"y_ptr"}


def test_a_stride_of_one_is_compiled_in_and_a_count_of_one_is_not():
    asked = source(call(stride=1, n=1))
    assert asked.signature["stride"] == "constexpr" and asked.constants[(3,)] == 1
    assert asked.signature["n"] == "i32"


def test_a_number_beyond_32_bits_is_passed_in_64():
    assert source(call(n=1 << 31)).signature["n"] == "i64"


def test_wide_loads_need_an_aligned_pointer():
    assert "ld.global.v4.b32" in compile_kernel(call(), 80).asm["ptx"]
    assert "ld.global.v4.b32" not in compile_kernel(call(aligned=False), 80).asm["ptx"]


def test_a_graph_needs_inputs_on_one_gpu():
    with pytest.raises(ValueError, match="example inputs on one CUDA GPU; got cpu"):
        Replay(torch.sin, torch.zeros(3))
    with pytest.raises(ValueError, match="got none"):
        Replay(torch.sin)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_the_driver_is_found_by_the_name_that_it_is_installed_under(tmp_path):
    """`libcuda.so` is for compilers, and comes with the toolkit."""
    (tmp_path / "driver.c").write_text("int cuTensorMapReplaceAddress() { return 7; }")
    build = ("cc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c")
    subprocess.run(build, cwd=tmp_path, check=True)
    code = "from gpudeck.accel.runtime.launch import driver; " + (
        "print(driver().cuTensorMapReplaceAddress(None, None))"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", code], env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout == "7\n"
