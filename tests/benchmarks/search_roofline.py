"""The share of the memory's bandwidth that fused kernels reach on tasks of KernelBench.

    python -m tests.benchmarks.search_roofline FOLDER > roofline.csv

FOLDER holds KernelBench's files as for `search_kernelbench`. The tasks are the element-wise ones
that were judged there. A judge's window holds the copies of inputs and results, and what is left
after they are subtracted is less exact than the share that is wanted. So trusted kernels are timed
here without any copies: calls follow one another, on two sets of inputs in turn, each larger than
the last-level cache. A row tells the best configuration of the whole space, the template's first
one, torch's own operator, and a copy of as many bytes by the driver.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search.roofline import roofline
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.worker import load
from tests.benchmarks.search_kernelbench import named, prepared

TASKS = (
    "level1_19", "level1_20", "level1_22", "level1_25", "level1_26", "level1_27", "level1_28",
    "level1_29", "level1_31", "level1_88",
)  # fmt: skip
_CALLS = 10
_TURNS = 5
HEAD = (
    "task", "MB", "roofline us", "configurations", "best", "best us", "best share", "usual us",
    "usual share", "eager us", "eager share", "copy us", "copy share",
)  # fmt: skip


def in_a_row(function: Callable[..., Tensor], inputs: Sequence[Sequence[Tensor]]) -> float:
    """Return the microseconds of a call among others, the median of some turns."""
    for given in inputs:
        function(*given)  # which may compile
    found = []
    for _ in range(_TURNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for number in range(_CALLS):
            function(*inputs[number % len(inputs)])
        end.record()
        end.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / _CALLS)
    return statistics.median(found)


def row_of(task: Task, template: Template, device: torch.device, end: float) -> tuple[object, ...]:
    """Time a task's configurations, torch and a copy until the time is over."""
    roof = roofline(task, device)
    assert roof is not None, "the peaks of this GPU are not known"
    shapes = task.shapes(task.timed)
    inputs = [[torch.randn(s, device=device, dtype=task.dtype) for s in shapes] for _ in range(2)]
    configs = {json.dumps(c): c for c in (*template.usual, *template.space.all())}
    us = {}
    for name, config in configs.items():
        if us and time.monotonic() > end:
            break
        us[name] = in_a_row(load(template.make(config)), inputs)
    result = torch.empty(math.prod(shapes[0]), device=device, dtype=task.dtype)
    times = {
        "best": min(us.values()), "usual": next(iter(us.values())),
        "eager": in_a_row(task.reference, inputs),
        "copy": in_a_row(lambda x: result.copy_(x.view(-1)), [given[:1] for given in inputs]),
    }  # fmt: skip
    shown = [f(t) for t in times.values() for f in (_us, lambda t: f"{roof.least_us / t:.3f}")]
    best = min(us, key=us.__getitem__)
    return (task.name, f"{roof.moved / 1e6:.0f}", _us(roof.least_us), len(us), best, *shown)


def _us(microseconds: float) -> str:
    return f"{microseconds:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_roofline")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--minutes", type=float, default=1.0)
    args = parser.parse_args()
    begun = time.monotonic()
    device = find_device().torch_device
    write = csv.writer(sys.stdout)
    write.writerow(HEAD)
    with tempfile.TemporaryDirectory() as home, torch.no_grad():
        os.environ["GPUDECK_HOME"] = home
        for number, file in enumerate(named(args.folder, args.tasks)):
            end = begun + 60 * args.minutes * (number + 1) / len(args.tasks)
            _, task, template, *_ = prepared(file)
            write.writerow(row_of(task, template, device, end))
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
