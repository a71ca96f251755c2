"""Find the lengths from which the Hopper backward pass should add up dq atomically.

    python -m tests.benchmarks.attention_tiles [--out DIR]

For shorter sequences a kernel of its own computes dq. Both ways are measured over the grid, in turn
with cuDNN and, if it is installed, flash-attn-4; every result is checked against cuDNN's. The
lengths go into TILES of `gpudeck.accel.attention.kernels.hopper.backward`.
"""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from pathlib import Path

import torch

from gpudeck.accel.attention.backends import Gradients
from gpudeck.accel.attention.backends.fa4 import find_version
from gpudeck.accel.attention.inputs import arrange, problem_of, rules_of
from gpudeck.accel.attention.kernels.hopper import backward as kernels
from gpudeck.accel.attention.passes import backward, forward
from gpudeck.accel.runtime.timing import measure_in_turn, timing_of
from tests.benchmarks.rows import RESULTS, context, write

OURS = {"atomic": False, "own kernel": True}
"""True to require the same dq every time, which rules out atomics."""
WRONG = 5e-3
SECONDS = 0.15


def cells() -> list[tuple[int, int, bool]]:
    return [
        (dim, seq, causal)
        for dim in (64, 128)
        for seq in (512, 2048, 8192, 16384)
        for causal in (False, True)
    ]


def cell_rows(dim: int, seq: int, causal: bool, about: dict[str, str]) -> list[dict[str, object]]:
    size = (16384 // seq, 2048 // dim, seq, dim)
    q, k, v, dout = (torch.randn(size, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    x = arrange(q, k, v, None, None, "bhsd")
    p = problem_of(x, rules_of(q, causal))
    solved = forward(x, p, "cudnn")
    exact = backward(dout, x, *solved, p, "cudnn")[:3]
    kernels.TILES[dim] = dataclasses.replace(kernels.TILES[dim], atomic_from=0)
    names = [*OURS, "cudnn", *(["fa4"] if find_version() else [])]

    def solve(name: str) -> Gradients:
        if name not in OURS:
            return backward(dout, x, *solved, p, name)
        return backward(
            dout, x, *solved, dataclasses.replace(p, deterministic=OURS[name]), "hopper"
        )

    calls = [partial(solve, name) for name in names]
    errors = []
    for call in calls:
        call()
        errors.append(
            max(float((a - b).norm() / b.norm()) for a, b in zip(call()[:3], exact, strict=True))
        )
    loops = measure_in_turn(calls, SECONDS, q.device, lambda *_: None, lambda _: None)
    rows = []
    for name, loop, error in zip(names, loops, errors, strict=True):
        t = timing_of(loop.samples_ms)
        rate = {
            "tflops": round(2.5 * p.flops / t.median / 1e9, 1),
            "median_ms": t.median,
            "p5_ms": t.p5,
            "p95_ms": t.p95,
            "calls": t.count,
        }
        shape = {"head_dim": dim, "seq": seq, "causal": causal, "contender": name}
        rows.append({**about, **shape, **rate, "error": f"{error:.2e}", "right": error < WRONG})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS)
    out = parser.parse_args().out
    about = context(torch.cuda.get_device_name(), ["torch", "triton"])
    rows: list[dict[str, object]] = []
    for cell in cells():
        new = cell_rows(*cell, about)
        rows += new
        print(
            *cell,
            *(f"{r['contender']}: {r['tflops']}{'' if r['right'] else ' WRONG'}" for r in new),
            flush=True,
        )
        write("attention_tiles", rows, out)


if __name__ == "__main__":
    main()
