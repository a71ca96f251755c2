"""Measure which layout of q, k and v each attention backend is fastest with.

    python -m tests.benchmarks.attention_layouts [--seconds 0.1] [--out DIR]

The attribute `layout` of a backend goes by this. Each backend takes part in both layouts, in turn,
as CUDA graphs; the copy that brings the tensors into a layout is not measured.
"""

from __future__ import annotations

import argparse
from functools import partial
from itertools import product
from pathlib import Path

import torch

from gpudeck.accel.attention import BACKENDS
from gpudeck.accel.attention.dispatch import refuse
from gpudeck.accel.attention.inputs import Inputs
from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.runtime.graphs import Captured
from gpudeck.accel.runtime.timing import measure_in_turn, timing_of
from gpudeck.accel.workloads.contender import pose
from gpudeck.accel.workloads.grid import Shape
from tests.benchmarks.rows import RESULTS, context, write

NAMES = ("hopper", "triton", "flash", "cudnn", "fa4", "fa3", "efficient")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device = find_device()
    about = context(device.name, ["torch", "triton"])
    rows: list[dict[str, object]] = []
    for dim, seq, causal in product((64, 128, 256), (2048, 8192), (False, True)):
        case = pose(
            Shape(16384 // seq, 2048 // dim, 2048 // dim, seq, dim, causal, "bfloat16"),
            "forward", device, seed=1,
        )  # fmt: skip
        able = [n for n in NAMES if refuse(case.problem, n, "forward") is None]
        ways = list(product(able, ("bhsd", "bshd")))
        replays = []
        for name, layout in ways:
            x = case.laid_out(layout).sets[0]  # type: ignore[arg-type]
            given = Inputs(x.q, x.k, x.v)
            run = partial(BACKENDS[name].forward, given, case.problem)
            replays.append(Captured(run, device.torch_device))
        loops = measure_in_turn(
            replays, options.seconds, device.torch_device, lambda *_: None, lambda _: None
        )
        for (name, layout), loop in zip(ways, loops, strict=True):
            t = timing_of(loop.samples_ms)
            shape = {"head_dim": dim, "seq": seq, "causal": causal, "backend": name}
            speed = {"layout": layout, "us": f"{1e3 * t.median:.5g}", "p5": f"{1e3 * t.p5:.5g}"}
            rows.append({**shape, **speed, "p95": f"{1e3 * t.p95:.5g}", "count": t.count, **about})
        medians = {
            way: timing_of(loop.samples_ms).median for way, loop in zip(ways, loops, strict=True)
        }
        both = ", ".join(f"{n} {medians[n, 'bhsd'] / medians[n, 'bshd']:.3f}" for n in able)
        print(f"d{dim} S{seq} causal={causal}, bhsd / bshd: {both}", flush=True)
        write("attention_layouts", rows, options.out)


if __name__ == "__main__":
    with torch.no_grad():
        main()
