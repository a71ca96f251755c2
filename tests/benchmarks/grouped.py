"""Products of experts on a GPU, beside one dense product of the same size.

    python -m tests.benchmarks.grouped --out FOLDER

The rows of each expert are drawn unevenly, one expert has none. All contenders of a shape take
turns; the kernel of experts and the dense one also read the same tiles. Every result is checked
against float64 first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.primitives.gemm.api import gemm
from gpudeck.accel.primitives.gemm.grouped import grouped_gemm
from gpudeck.accel.primitives.quantize.fp8 import Fp8, fp8_quantize
from gpudeck.accel.runtime.graphs import Captured
from tests.benchmarks.code_state import SOURCES
from tests.benchmarks.rows import RESULTS, context, spread, write
from tests.benchmarks.turns import in_turn

CUDA = torch.device("cuda", 0)
SHAPES = ((8192, 4096, 7168, 8), (16384, 7168, 2048, 8), (8192, 4096, 7168, 32))
"""Rows of all experts, columns, k, experts; columns and k are DeepSeek-V3's."""
CHECKED = 64
BOUNDS = {"bfloat16": 4e-3, "fp8-block": 0.05}


def starts_of(rows: int, experts: int) -> Tensor:
    """Return where each expert's rows begin, unevenly; the second has none."""
    share = torch.rand(experts, generator=torch.Generator().manual_seed(5)) + 0.3
    share[1] = 0
    ends = (share.cumsum(0) / share.sum() * rows).round().long()
    return torch.cat((torch.zeros(1, dtype=torch.long), ends)).int().to(CUDA)


def contenders(
    rows: int, n: int, k: int, experts: int, precision: str, starts: Tensor
) -> tuple[dict[str, Callable[[], Tensor]], Tensor, Tensor]:
    """Return calls by name, and the operands of the check in float64."""
    a = torch.randn(rows, k, device=CUDA, dtype=torch.bfloat16)
    b = torch.randn(experts, n, k, device=CUDA, dtype=torch.bfloat16)
    if precision == "bfloat16":
        calls: dict[str, Callable[[], Tensor]] = {
            "grouped": lambda: grouped_gemm(a, b.mT, starts, backend="hopper"),
            "dense hopper": lambda: gemm(a, b[0].t(), backend="hopper"),
            "dense cublas": lambda: gemm(a, b[0].t(), backend="cublas"),
        }
        return calls, a, b
    left = fp8_quantize(a, "tile")
    parts: list[Fp8] = [fp8_quantize(one, "block") for one in b]
    values = torch.stack([p.values for p in parts]).mT
    scales = torch.stack([p.t.scales for p in parts])
    one = (left.scales, parts[0].t.scales)
    every = (left.scales, scales)
    bf16 = torch.bfloat16
    calls = {
        "grouped": lambda: grouped_gemm(
            left.values, values, starts, scales=every, out_dtype=bf16, backend="hopper"
        ),
        "dense hopper": lambda: gemm(
            left.values, parts[0].t.values, scales=one, out_dtype=bf16, backend="hopper"
        ),
        "dense cublas": lambda: gemm(
            left.values, parts[0].t.values, scales=one, out_dtype=bf16, backend="cublas"
        ),
    }
    return calls, a, b


def error(name: str, out: Tensor, a: Tensor, b: Tensor, starts: Tensor) -> float:
    """Return the relative error of some rows against float64."""
    rows = torch.randperm(len(a), device=CUDA)[:CHECKED]
    expert = torch.searchsorted(starts[1:].long(), rows, right=True)
    if name != "grouped":
        expert = expert * 0
    exact = torch.stack(
        [b[e].double() @ a[r].double() for r, e in zip(rows.tolist(), expert.tolist(), strict=True)]
    )
    found = float((out[rows].double() - exact).norm() / exact.norm())
    return found if found == found else 1e30


def measured(seconds: float) -> Iterator[dict[str, object]]:
    """Measure every shape in each precision."""
    where = context(torch.cuda.get_device_name(), ("torch", "triton"), SOURCES["grouped"])
    for precision, bound in BOUNDS.items():
        for rows, n, k, experts in SHAPES:
            starts = starts_of(rows, experts)
            calls, a, b = contenders(rows, n, k, experts, precision, starts)
            ready, errors = {}, {}
            for name, call in calls.items():
                try:
                    errors[name] = error(name, call(), a, b, starts)
                    assert errors[name] < bound, errors[name]
                    ready[name] = Captured(call, CUDA)
                except Exception as e:  # noqa: BLE001 - the others are measured all the same
                    print("refused:", name, precision, f"{type(e).__name__}: {e}"[:160], flush=True)
            loops = dict(zip(ready, in_turn(list(ready.values()), seconds, CUDA), strict=True))
            ms = {name: spread(loop.samples_ms) for name, (loop, _) in loops.items()}
            for name, found in ms.items():
                yield {
                    **where, "precision": precision, "rows": rows, "n": n, "k": k,
                    "experts": experts, "contender": name, "ms": found["median"],
                    "p95_ms": found["p95"], "count": found["count"],
                    "clock_mhz": round(loops[name][1]),
                    "tflops": f"{2.0 * rows * n * k / found['median'] / 1e9:.0f}",
                    "grouped_times_it": f"{found['median'] / ms['grouped']['median']:.3f}"
                    if "grouped" in ms else "",
                    "error": f"{errors[name]:.2e}",
                }  # fmt: skip
            print(
                precision, rows, n, k, experts, {m: f["median"] for m, f in ms.items()}, flush=True
            )


def main() -> None:
    """Measure and write grouped.csv."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.15, help="for each contender")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = []
    for row in measured(given.seconds):
        found.append(row)
        write("grouped", found, given.out)


if __name__ == "__main__":
    main()
