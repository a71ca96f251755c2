"""Model the speed of the attention kernels for compute capability 7.5 from their machine code.

    python -m tests.benchmarks.turing_model

No such GPU was measured. The instructions of a turn of each main loop are counted in the
disassembly and weighed with the clocks for which they occupy their unit on a scheduler: float32 and
integer arithmetic 2 (16 lanes), special functions and conversions 8 (4 lanes), a tensor instruction
with float32 sums 16 on GeForce RTX 20 (the half of 8), ldmatrix and 16-byte accesses 8 on a
multiprocessor (64 bytes a clock). The result is an interval in TFLOP/s:

- high: all units work side by side, and the busiest one bounds the turn;
- low: beside the tensor cores' clocks, what the warps of a scheduler cannot hide from each other (a
  warp's other instructions, one after the other, divided by the warps), or if that is more, what an
  existing kernel does not hide: 66 % of the tensor cores' throughput on a T4, where ssiu's
  flash-attention for Turing was measured, whose tensor instructions take half as many clocks.

It leaves out the first and last tiles, the last wave, cache misses, and clocks other than the given
one. Sources: CUDA C++ programming guide, throughput of arithmetic instructions; NVIDIA's data sheet
of the RTX 2080 Ti.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gpudeck.accel.attention.kernels.turing.builds import (
    Build,
    Kind,
    forward_build,
    keys_build,
    queries_build,
)
from gpudeck.accel.search.resources import read_usage
from tests.benchmarks.rows import write
from tests.unit.accel.sass import main_loop

PROCESSORS, SCHEDULERS, MHZ = 68, 4, 1545
"""Of an RTX 2080 Ti."""
TENSOR, TENSOR_T4, UNHIDDEN_T4 = 16, 8, 1 / 0.66 - 1
SPECIAL, ARITHMETIC, MEMORY = 8, 2, 8
REGISTERS, SHARED = 65536, 65536
FLOPS = 2 * 16 * 8 * 8
"""Of a tensor instruction."""
_SPECIAL = ("MUFU", "F2F", "I2F", "F2I", "SHFL")
_FLOAT = ("FFMA", "FMUL", "FADD", "IMAD")
_MEMORY = ("LDSM", "LDG", "STS")


class Turn(NamedTuple):
    """The clocks of a turn of a main loop on a scheduler, for each of its warps."""

    tensor: float
    high: float
    low: float


def turn(build: Build) -> tuple[Turn, Counter[str]]:
    """Model a turn; return the counts by unit, too."""
    code = build.compile("sm_75")
    units: Counter[str] = Counter()
    for name, times in main_loop(code).items():
        kind = name.partition(".")[0]
        for unit, kinds in (("special", _SPECIAL), ("float", _FLOAT), ("memory", _MEMORY)):
            if kind in kinds:
                units[unit] += times
                break
        else:
            units["tensor" if kind == "HMMA" else "integer"] += times
    by_registers = REGISTERS // (-(-read_usage(code).registers // 8) * 8 * build.threads)
    blocks = min(by_registers, SHARED // build.shared)
    warps = blocks * build.threads // 32 // SCHEDULERS
    tensor = TENSOR * units["tensor"]
    special, floats = SPECIAL * units["special"], ARITHMETIC * units["float"]
    integers, memory = ARITHMETIC * units["integer"], SCHEDULERS * MEMORY * units["memory"]
    high = max(tensor, special, floats, integers, memory, units.total())
    alone = (special + floats + integers) / warps
    low = tensor + max(alone, UNHIDDEN_T4 * TENSOR_T4 * units["tensor"])
    return Turn(tensor, high, low), units | Counter(warps=warps)


def rows() -> Iterator[dict[str, object]]:
    """Yield the model of each kernel and of each pass."""
    peak = PROCESSORS * SCHEDULERS * MHZ * 1e6 * FLOPS / TENSOR / 1e12
    for head_dim in (64, 128, 256):
        for causal in (False, True):
            kind = Kind(head_dim, right=causal)
            shape = {"head_dim": head_dim, "causal": causal}
            yield _row("forward", shape, peak, [(forward_build(kind), 2, 2)])
            if head_dim <= 128:
                both = [(keys_build(kind), 4, 5), (queries_build(kind), 3, 5)]
                yield _row("backward", shape, peak, both)


def _row(
    name: str, shape: dict[str, object], peak: float, parts: list[tuple[Build, int, int]]
) -> dict[str, object]:
    """Return a pass whose kernels compute so many products, of so many that count."""
    high = low = 0.0
    told = []
    for build, products, counted in parts:
        clocks, units = turn(build)
        high += products / counted * clocks.high / clocks.tensor
        low += products / counted * clocks.low / clocks.tensor
        told.append(f"{build.kernel}: " + " ".join(f"{k} {v}" for k, v in units.items()))
    return {
        "gpu": "RTX 2080 Ti", "mhz": MHZ, "basis": "modelled", "pass": name, **shape,
        "tflops_low": f"{peak / low:.1f}", "tflops_high": f"{peak / high:.1f}",
        "peak": f"{peak:.1f}", "turns": "; ".join(told),
    }  # fmt: skip


if __name__ == "__main__":
    modelled = list(rows())
    for row in modelled:
        print(*row.values())
    write("turing_modelled", modelled)
