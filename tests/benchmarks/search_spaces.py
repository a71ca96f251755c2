"""What the search finds in a few seconds and in a minute, beside the best of the whole space, and
for rows beside Triton's autotuner and Helion's search.

    python -m tests.benchmarks.search_spaces --minutes 2.5 --kept spaces.jsonl > spaces.csv

For each problem the search runs with empty caches but for a process that waits, and goes on until
it has measured the whole space. Then it decides between the best that it had found by each of the
two moments. Triton's autotuner then chooses from the same configurations, whose
kernels are compiled by then; Helion searches a space of its own within the budget. In the end all
are timed by `triton.testing.do_bench` in turn, with a cleared cache. A row tells the microseconds
of what the search had found after the budget and after 60 s, of the best configuration, of the
configuration that the kernel chooses itself, and of the peers. `--kept` takes the microseconds of
every configuration, by which strategies of search can be compared without a GPU, and those that the
search itself measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpudeck.accel.runtime.capability import ComputeDevice, find_device
from gpudeck.accel.search import api
from gpudeck.accel.search.contender import Desk
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.journal import Entry, Journal
from gpudeck.accel.search.judge import nursery
from gpudeck.accel.search.space import Config
from gpudeck.accel.search.tasks import EPS, Task, task_of
from gpudeck.accel.search.templates import ATTENTION, REDUCING, ROWWISE, Template
from gpudeck.accel.search.worker import load

_ROWS = (
    ("softmax", 16384, 1024), ("layer_norm", 4096, 4096), ("cross_entropy", 4096, 8192),
    ("rms_norm", 8192, 2048), ("row_sum", 16384, 4096), ("gelu", 4096, 4096),
    ("swiglu", 4096, 8192), ("softmax", 2048, 16384), ("layer_norm", 32768, 768),
    ("rms_norm", 4096, 5120),
)  # fmt: skip
_DECODING = ((64, 4096, 128), (256, 1000, 64), (8, 32768, 128), (16, 8192, 64), (128, 2048, 128))
_FORWARD = ((32, 2048, 128), (32, 4096, 64), (8, 8192, 128), (96, 1024, 64), (24, 3000, 80))
PROBLEMS = (
    *((name, {"rows": rows, "columns": columns}) for name, rows, columns in _ROWS),
    *(("decoding", {"sequences": n, "keys": k, "width": w}) for n, k, w in _DECODING),
    *(("attention", {"heads": h, "tokens": t, "width": w}) for h, t, w in _FORWARD),
)
"""Rows in float32, attention in bfloat16."""
_LONGER_S = 60.0
_TURNS = 3
_SHARED = 3 << 30
"""Bytes of the memory that processes share: enough for each problem."""
HEAD = (
    "problem", "configurations", "measured", "all after s", "best us", "best", "search us",
    "search", "search 60 s us", "usual us", "triton us", "triton s", "helion us", "helion s",
    "torch us",
)  # fmt: skip


def searched(
    task: Task, template: Template, crew: Crew, device: ComputeDevice, moments: Sequence[float]
) -> tuple[list[tuple[float, Entry]], list[Config | None]]:
    """Search a whole space.

    Args:
        moments: seconds after which a search might have ended.

    Returns:
        What was tried and after how many seconds, and what the search would have chosen at each
        moment.
    """
    assert device.capability is not None
    capability = 10 * device.capability[0] + device.capability[1]
    found: list[tuple[float, Entry]] = []
    with tempfile.TemporaryDirectory() as home:  # no lessons of other problems
        os.environ["GPUDECK_HOME"] = home
        with Journal(api.problem_of(task, template, device)) as journal:
            begun = time.monotonic()
            with closing(Engine(
                task, template, journal, crew, capability,
                lambda entry: found.append((time.monotonic() - begun, entry)),
            )) as engine:  # fmt: skip
                engine.run(Budget(3.0))
                known = [timed_until(found, moment) for moment in moments]
                chosen = [engine.decide(timed)[0] if timed else None for timed in known]
    return found, chosen


def timed_until(found: list[tuple[float, Entry]], seconds: float) -> list[tuple[Config, float]]:
    """Return the configurations that were timed until then, the fastest first."""
    timed = [e for after, e in found if e.state == "timed" and after <= seconds]
    return [(e.config, e.microseconds) for e in sorted(timed, key=lambda e: e.microseconds)]


def chosen_by_triton(task: Task, template: Template, inputs: list[Tensor]) -> Config:
    """Return what Triton's autotuner chooses."""
    import triton

    from gpudeck.accel.search import row_kernels

    configs = [
        triton.Config({"ROWS": c["rows"]}, num_warps=c["warps"], num_stages=1)
        for c in template.space.all()
    ]
    (rows, columns), name = inputs[0].shape, task.name
    rowwise = name in ROWWISE
    kernel = row_kernels.compute_rows if rowwise else row_kernels.reduce_rows
    tuned = triton.autotune(configs=configs, key=["columns"])(kernel)
    two = inputs[1] if name in ("swiglu", "cross_entropy") else None
    given: list[Any] = [inputs[0], two]
    if rowwise:
        given += [inputs[1] if name.endswith("norm") else None]
        given += [inputs[2] if name == "layer_norm" else None]
    out = torch.empty_like(inputs[0]) if rowwise else inputs[0].new_empty(rows)
    given += [out, rows, columns, *([EPS] if rowwise else [])]
    tuned[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](
        *given, OP=name, BLOCK=triton.next_power_of_2(columns)
    )
    torch.cuda.synchronize()
    return {"rows": tuned.best_config.kwargs["ROWS"], "warps": tuned.best_config.num_warps}


def chosen_by_helion(task: Task, inputs: list[Tensor], budget_s: float) -> Callable[..., Tensor]:
    """Return the kernel that Helion's search finds within the budget."""
    from tests.benchmarks.helion_rows import kernel_of

    kernel = kernel_of(task.name, int(budget_s))
    got, wanted = kernel(*inputs), task.reference(*inputs)
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-3)
    found: Callable[..., Tensor] = kernel
    return found


def timed(
    functions: Mapping[str, Callable[..., Tensor]], inputs: list[Tensor], turns: int
) -> dict[str, float]:
    """Return the microseconds of functions, the median of some turns.

    Each is called in a graph: the processor prepares a call of attention for longer than some
    kernels take.
    """
    from triton.testing import do_bench

    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        for name, function in functions.items():
            function(*inputs)  # which may compile
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                function(*inputs)
            ms = do_bench(graph.replay, warmup=3, rep=15, return_mode="median")
            times[name].append(1e3 * ms)
    return {name: statistics.median(found) for name, found in times.items()}


def measure(
    name: str, sizes: dict[str, int], budget_s: float, crew: Crew, device: ComputeDevice,
    keep: Callable[..., None],
) -> tuple[object, ...]:  # fmt: skip
    """Return the row of a problem.

    `keep` is told its name, each configuration's time, and the time that the search had found.
    """
    dtype = torch.bfloat16 if name in ATTENTION else torch.float32
    task = task_of(name, dtype, sizes)
    template = api.template_for(task, "cuda")
    found, chosen = searched(task, template, crew, device, (budget_s, _LONGER_S))
    random = torch.Generator(device.torch_device).manual_seed(0)
    inputs = [
        torch.randn(shape, device=device.torch_device, generator=random).to(dtype)
        for shape in task.shapes(sizes)
    ]
    functions: dict[str, Callable[..., Tensor]] = {
        json.dumps(e.config): load(template.make(e.config)) for _, e in found if e.state == "timed"
    }
    peers, took = {}, {"triton": "", "helion": ""}
    rows = name in (*ROWWISE, *REDUCING)
    for peer, choose in _peers(task, template, inputs, budget_s) if rows else ():
        begun = time.monotonic()
        try:
            peers[peer] = choose()
        except Exception as e:  # noqa: BLE001 - a peer that fails is a finding
            took[peer] = f"{type(e).__name__}: {e}"[:200]
        else:
            took[peer] = f"{time.monotonic() - begun:.1f}"
    once = timed(functions, inputs, 1)
    shape = f"{name} {'x'.join(map(str, sizes.values()))}"
    keep(shape, once, {json.dumps(c): us for c, us in timed_until(found, math.inf)})
    best = min(once, key=lambda key: once[key])
    now, later = map(json.dumps, chosen)
    usual = json.dumps(template.usual[0]) if template.usual else ""
    told = {key: functions[key] for key in (best, now, later, usual) if key in functions}
    us = timed(
        {**told, **peers, "eager": task.reference, **library(task)}, inputs, _TURNS
    )  # fmt: skip

    def shown(key: str) -> str:
        return f"{us[key]:.2f}" if key in us else ""

    return (
        shape, len(template.space), len(functions), f"{found[-1][0]:.1f}",
        shown(best), best, shown(now), now, shown(later), shown(usual), shown("triton"),
        took["triton"], shown("helion"), took["helion"],
        f"{min(us['eager'], us.get('library', us['eager'])):.2f}",
    )  # fmt: skip


def _peers(
    task: Task, template: Template, inputs: list[Tensor], budget_s: float
) -> tuple[tuple[str, Callable[[], Callable[..., Tensor]]], ...]:
    """Return what has a peer search for a kernel, by its name."""
    return (
        ("triton", lambda: load(template.make(chosen_by_triton(task, template, inputs)))),
        ("helion", lambda: chosen_by_helion(task, inputs, budget_s)),
    )


def library(task: Task) -> dict[str, Callable[..., Tensor]]:
    """Return torch's own operator, if the task has one."""
    return {name: load(source) for name, source in task.alternatives.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_spaces")
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--problems", type=int, nargs="*", default=range(len(PROBLEMS)))
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of a search")
    parser.add_argument("--kept", type=Path, help="takes the time of each configuration")
    args = parser.parse_args()

    def keep(problem: str, us: dict[str, float], searched_us: dict[str, float]) -> None:
        if args.kept:
            line = {"problem": problem, "us": us, "searched us": searched_us}
            with args.kept.open("a") as file:
                file.write(json.dumps(line) + "\n")

    end = time.monotonic() + 60 * args.minutes
    device = find_device()
    write = csv.writer(sys.stdout)
    write.writerow(HEAD)
    with tempfile.TemporaryDirectory() as caches, torch.no_grad():
        os.environ["TRITON_CACHE_DIR"] = caches  # before processes start that compile
        crew = Crew(nursery(), device.torch_device)
        first = task_of("softmax", torch.float32, {})
        desk = Desk(crew.arena(_SHARED), first, device.torch_device)
        crew.release(crew.start(first.source, desk, trusted=True))
        for number in args.problems:
            if time.monotonic() > end:
                break
            for held in Path(caches).iterdir():  # shapes share kernels
                shutil.rmtree(held)
            problem = PROBLEMS[number]
            try:
                row = measure(*problem, args.budget, crew, device, keep)
            except Exception as e:  # noqa: BLE001 - one problem that fails must not end the others
                row = (problem, f"failed: {type(e).__name__}: {e}"[:300])
            write.writerow(row)
            sys.stdout.flush()
        crew.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
