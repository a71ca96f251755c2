"""Tell what a kernel needs of a multiprocessor, whether that can be fast, and what its machine code
is, without a GPU."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gpudeck.accel.search.code import Code
from gpudeck.language.text import Message, phrase

_SHARED = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
"""KiB of shared memory that a block may have (CUDA C++ Programming Guide, compute capabilities)."""
_THREADS = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}
"""Threads of a multiprocessor, from the same table."""
_REGISTERS = 65536
TARGETS = {"2080ti": 75, "a100": 80, "l40s": 89, "h100": 90, "h200": 90, "b200": 100}
"""Compute capabilities by the names of `optimize_kernel`'s `target_hardware`."""
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?;)", re.MULTILINE)
_MOST = 200_000
"""Characters of the instructions of a kernel that are kept."""
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+).*?LOCAL:(\d+)")


class Resources(msgspec.Struct, frozen=True):
    """Hold what a compiled kernel needs."""

    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a block."""
    spilled: int
    """Bytes of a thread that did not fit into registers."""
    threads: int
    """Of a block."""

    def unfit(self, capability: int) -> Message:
        """Return what keeps the kernel from running, or from being fast; empty if nothing does."""
        if too_large := self.too_large(capability):
            return too_large
        return phrase("a thread spills {size} bytes", size=self.spilled) if self.spilled else ""

    def too_large(self, capability: int) -> Message:
        """Return what keeps the kernel from running; empty if nothing does."""
        if self.shared <= 1024 * _SHARED[capability]:
            return ""
        return phrase("a block needs {size} bytes of shared memory", size=self.shared)

    def occupancy(self, capability: int) -> float:
        """Return the share of a multiprocessor's threads that can be resident, by registers and
        shared memory."""
        most = _THREADS[capability]
        blocks = min(
            most // self.threads,
            _REGISTERS // max(1, self.registers * self.threads),
            1024 * (_SHARED[capability] + 1) // max(1, self.shared + 1024),
        )
        return blocks * self.threads / most


def compiled_resources(calls: Any, capability: int) -> Resources:
    """Compile a `KernelCall` or several for a compute capability, and read the most that one needs.

    Args:
        calls: what is launched, or what returns it for a capability.
        capability: ten times the compute capability, as 90.

    Raises:
        Exception: whatever Triton or ptxas raises if they cannot be compiled.
    """
    each = [_resources(call, capability) for call in _each(calls, capability)]
    return Resources(
        max(r.registers for r in each), max(r.shared for r in each), max(r.spilled for r in each),
        max(r.threads for r in each),
    )  # fmt: skip


def _each(calls: Any, capability: int) -> tuple[Any, ...]:
    found = calls(capability) if callable(calls) else calls
    return found if isinstance(found, tuple) else (found,)


def _resources(call: Any, capability: int) -> Resources:
    from gpudeck.accel.runtime.call import compile_kernel

    kernel = compile_kernel(call, capability)
    used, metadata = read_usage(kernel.kernel), kernel.metadata
    threads = 32 * metadata.num_warps
    return Resources(used.registers, metadata.shared, used.stack + used.local, threads)


class Usage(NamedTuple):
    """Hold what a thread of a kernel takes: registers, and bytes of local memory."""

    registers: int
    stack: int
    local: int


def read_usage(code: bytes) -> Usage:
    """Return what the first kernel of a cubin takes, by the cuobjdump that comes with Triton."""
    said = _said(code, "cuobjdump", "-res-usage")
    found = _USAGE.search(said)
    assert found is not None, said
    return Usage(*map(int, found.groups()))


def code_of(calls: Any, capability: int) -> tuple[Code, ...]:
    """Return the code of a `KernelCall` or of several, compiled for a compute capability.

    Args:
        calls: as for `compiled_resources`.
        capability: likewise.

    Raises:
        Exception: whatever Triton or ptxas raises if they cannot be compiled.
    """
    from gpudeck.accel.runtime.call import compile_kernel

    return tuple(
        Code(
            call.kernel.__name__, call.kernel.src,
            _instructions(compile_kernel(call, capability).kernel),
        )
        for call in _each(calls, capability)
    )  # fmt: skip


def _instructions(cubin: bytes) -> str:
    """Return the instructions of a cubin, by the nvdisasm that comes with Triton."""
    return "\n".join(_INSTRUCTION.findall(_said(cubin, "nvdisasm", "-c")))[:_MOST]


def _said(cubin: bytes, tool: str, option: str) -> str:
    """Return what a tool that comes with Triton says of a cubin."""
    import triton

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run(
            [tools / tool, option, file.name], capture_output=True, text=True, check=True
        ).stdout
