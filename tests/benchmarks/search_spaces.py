"""Whole spaces measured: what a search finds in a short time, beside the best of all.

    python -m tests.benchmarks.search_spaces --minutes 2 --budget 0.5 > spaces.csv

For each problem a search runs within its budget, in minutes. Then all configurations that are left
are measured. Each row is one configuration, in the order in which they were tried. A last row for
each row-wise kernel tells what Triton's own autotuner chooses from the same configurations.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator

import torch
from torch import nn

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search import api
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.journal import Entry, Journal
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.tasks import EPS, Task, task_of
from gpudeck.accel.search.templates import Template, template_of

ROWS = (("softmax", 16384, 1024), ("layer_norm", 4096, 4096), ("cross_entropy", 4096, 8192))


def problems() -> Iterator[tuple[str, Task, Template]]:
    """Yield the problems: a product with an activation, and kernels on rows."""
    for name, rows, columns in ROWS[:1]:
        task = task_of(name, torch.float32, {"rows": rows, "columns": columns})
        yield f"{name} {rows}x{columns}", task, template_of(name, task.dtype, task.timed, "cuda")
    module = nn.Sequential(nn.Linear(4096, 4096), nn.GELU()).to("meta")
    task, template = api.fused_template(module, [torch.empty(1024, 4096, device="meta")])
    yield "linear gelu 1024x4096x4096", task, template
    for name, rows, columns in ROWS[1:]:
        task = task_of(name, torch.float32, {"rows": rows, "columns": columns})
        yield f"{name} {rows}x{columns}", task, template_of(name, task.dtype, task.timed, "cuda")


def measure(name: str, task: Task, template: Template, budget: float, end: float) -> None:
    """Search, then measure all that is left; write a row for each configuration."""
    device = find_device()
    assert device.capability is not None
    capability = 10 * device.capability[0] + device.capability[1]
    begun = time.monotonic()
    phase = "search"

    def report(entry: Entry) -> None:
        write(name, phase, json.dumps(entry.config), entry.state, f"{entry.microseconds:.2f}",
              f"{time.monotonic() - begun:.1f}", entry.why)  # fmt: skip

    with Journal(api.problem_of(task, template, device)) as journal, torch.no_grad():
        engine = Engine(task, template, journal, nursery(), device.torch_device, capability, report)
        try:
            engine.run(Budget(budget))
            phase = "rest"
            engine.run(Budget(max(0.0, (end - time.monotonic()) / 60) + journal.seconds / 60))
        finally:
            engine.close()


def tune_by_triton(name: str, rows: int, columns: int) -> None:
    """Have Triton's autotuner choose from the configurations of a row-wise kernel."""
    import triton

    from gpudeck.accel.search.row_kernels import compute_rows

    task = task_of(name, torch.float32, {"rows": rows, "columns": columns})
    space = template_of(name, task.dtype, task.timed, "cuda").space
    configs = [
        triton.Config({"ROWS": c["rows"]}, num_warps=c["warps"], num_stages=1) for c in space.all()
    ]
    tuned = triton.autotune(configs=configs, key=["columns"])(compute_rows)
    x = torch.randn(rows, columns, device="cuda")
    out, w, b = torch.empty_like(x), torch.randn_like(x[0]), torch.randn_like(x[0])
    begun = time.monotonic()
    tuned[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
        x, None, w if name == "layer_norm" else None, b if name == "layer_norm" else None, out,
        rows, columns, EPS, OP=name, BLOCK=triton.next_power_of_2(columns),
    )  # fmt: skip
    torch.cuda.synchronize()
    best = tuned.best_config
    config = {"rows": best.kwargs["ROWS"], "warps": best.num_warps}
    write(f"{name} {rows}x{columns}", "triton.autotune", json.dumps(config), "chosen", "",
          f"{time.monotonic() - begun:.1f}", "")  # fmt: skip


def write(*row: object) -> None:
    csv.writer(sys.stdout).writerow(row)
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_spaces")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--budget", type=float, default=0.5)
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    write("problem", "phase", "config", "state", "us", "seconds", "why")
    with tempfile.TemporaryDirectory() as home:
        os.environ["GPUDECK_HOME"] = home
        for name, task, template in problems():
            if time.monotonic() < end:
                measure(name, task, template, args.budget, end)
        for name, rows, columns in ROWS[:2]:
            tune_by_triton(name, rows, columns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
