"""Read the resources that a compiled kernel needs, and what is launched, without a GPU."""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import triton
from triton.backends.nvidia.compiler import get_ptxas

from gpudeck.accel.attention.kernels.geometry import Geometry, Layout
from gpudeck.accel.attention.problem import Rules
from gpudeck.accel.runtime import launch, named
from gpudeck.accel.runtime.call import KernelCall
from gpudeck.accel.search.resources import read_usage

TARGETS = (80, 86, 89, 90, 100, 120, 121)
FP8_TARGETS = tuple(t for t in TARGETS if t >= 89)
"""Before, GPUs have no FP8, and torch rounds."""
FP4_TARGETS = tuple(t for t in TARGETS if t >= 100)
SHARED_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99, 121: 99}
"""The most shared memory of a block (CUDA C++ Programming Guide, compute capabilities)."""
TENSOR_CORES = {
    80: "mma.sync",
    86: "mma.sync",
    89: "mma.sync",
    90: "wgmma.mma_async",
    100: "tcgen05.mma",
    120: "mma.sync",
    121: "mma.sync",
}


class Needs(NamedTuple):
    """`spilled` is in bytes a thread: whatever it keeps in local memory, as registers that were too
    few."""

    shared: int
    spilled: int
    ptx: str


_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def needs(kernel) -> Needs:
    """Of a kernel that triton.compile returned, by the cuobjdump that comes with Triton."""
    used = read_usage(kernel.kernel)
    return Needs(kernel.metadata.shared, used.stack + used.local, kernel.asm["ptx"])


_LOST = re.compile(r"LOP3\.LUT R\d+, R1(?:\.reuse)?, 0xffff")
"""The low half of R1, the stack pointer, which ptxas names where it takes a value as undefined."""


def lost(kernel) -> int:
    """Return how many values of 16 bits ptxas replaced by undefined ones in a kernel for Hopper.

    ptxas 12.8 and 12.9 do so with pairs of FP8 numbers that are stored both in whole words and, one
    by one, elsewhere: what they store there is garbage.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(kernel.kernel)
        cubin.flush()
        said = subprocess.run(
            [_TOOLS / "nvdisasm", "-c", cubin.name], capture_output=True, text=True, check=True
        ).stdout
    return len(_LOST.findall(said))


_BARRIER = re.compile(r"(%\S+) = ttg\.local_alloc[^\n]*?memdesc<\w+xi64")


def idle_barriers(kernel) -> list[str]:
    """Return the barriers of a kernel for Hopper that are set up, but which nobody uses.

    Triton gives the memory of such a barrier to what is allocated after it. PTX forbids any other
    access to that of a barrier, and racecheck, which follows barriers, writes there.
    """
    lines = kernel.asm["ttgir"].splitlines()

    def uses(name: str) -> list[str]:
        named = re.compile(re.escape(name) + r"(?!\w)")
        return [line for line in lines if named.search(line) and f" {name} = " not in line]

    def idle(name: str) -> bool:
        return all(
            "init_barrier" in line
            or ("memdesc_index" in line and idle(line.split(" = ")[0].strip()))
            for line in uses(name)
        )

    return [name for name in _BARRIER.findall(kernel.asm["ttgir"]) if idle(name)]


def serialised(kernel) -> bool:
    """Return True if ptxas serialised the wgmma of a kernel for sm_90, which can cost 25 % of the
    speed."""
    with tempfile.NamedTemporaryFile(suffix=".ptx", mode="w") as ptx:
        ptx.write(kernel.asm["ptx"])
        ptx.flush()
        asked = [get_ptxas(90).path, "-v", "--gpu-name", "sm_90a", "-o", "/dev/null", ptx.name]
        return (
            "wgmma.mma_async instructions are serialized"
            in subprocess.run(asked, capture_output=True, text=True, check=True).stderr
        )


def problem(heads, length, dim, *, left=None, right=None, softcap=0.0, ragged=None):
    """Attention of bf16 tensors of `heads` heads, on a GPU that need not be there."""
    x = torch.zeros(1, heads, length, dim, dtype=torch.bfloat16, device="meta")
    layout = Layout(tuple(x.shape), x.stride())
    return Geometry(
        layout,
        layout,
        layout,
        x.dtype,
        True,
        torch.device("cuda", 0),
        Rules(left, right, dim**-0.5, softcap),
        ragged,
        None,
    )


def launched(run: Callable[[], object]) -> Iterator[tuple[str, KernelCall]]:
    """Yield what a function launches by `gpudeck.accel.runtime.named`."""
    calls: list[KernelCall] = []

    def record(call: KernelCall, device: torch.device) -> Callable[..., None]:
        calls.append(call)
        return lambda *tensors: None

    named._prepare.cache_clear()
    vars(named)["prepare"] = record
    try:
        run()
    finally:
        vars(named)["prepare"] = launch.prepare
        named._prepare.cache_clear()
    for number, call in enumerate(calls):
        yield f"{number} {call.kernel.__name__}", call
