"""The kernel search on tasks of KernelBench (MIT, not part of this repository).

    python -m tests.benchmarks.search_kernelbench list FOLDER
    python -m tests.benchmarks.search_kernelbench run FOLDER --count 30 --minutes 5 > tasks.csv

FOLDER holds KernelBench's files, named by level, as `level2_12_Gemm_Multiply_LeakyReLU.py`. `list`
tells what the templates compute of each. `run` draws tasks by a seed from those of which they
compute a part, and searches and judges them one after the other.

A task whose inputs and result take more than 1.2 GB has its first size, the batch as a rule, halved
until they do not: the judge holds fresh inputs for several calls.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.search import api
from gpudeck.accel.search.contender import Contender
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.fusion.template import library_operators
from gpudeck.accel.search.journal import Journal
from gpudeck.accel.search.judge import judge, nursery
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Verdict

MOST_BYTES = 1.2e9
COMPILED = ("max-autotune-no-cudagraphs",)
"""The default mode chooses among fewer kernels; it is left out for time."""
HEAD = (
    "task", "sizes", "template", "left to the library", "config", "tried", "verdict", "baseline",
    "speedup", "at least", "us", "eager us", "compile us", "max-autotune us", "roofline share",
    "memory-bound", "error", "honest error", "seconds",
)  # fmt: skip


def prepared(file: Path) -> tuple[Task, Template, str]:
    """Return the task and the template of a file, and the size that was made smaller.

    Raises:
        ValueError: if it cannot be fused, or is too large.
    """
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    first = next(k for k, v in vars(module).items() if isinstance(v, int) and not k.startswith("_"))
    changed = ""
    while True:
        with torch.device("meta"):
            model = module.Model(*module.get_init_inputs())
            inputs = module.get_inputs()
        model.__class__.__name__ = file.stem
        task, template = api.fused_template(model, inputs)
        if task.moved(task.timed) <= MOST_BYTES:
            return task, template, changed
        if getattr(module, first) < 64:
            raise ValueError("too large")
        setattr(module, first, getattr(module, first) // 2)
        changed = f"{first}={getattr(module, first)}"


def show(folder: Path) -> None:
    """Tell what the templates compute of each task."""
    for file in sorted(folder.glob("*.py")):
        try:
            task, template, changed = prepared(file)
        except Exception as e:  # noqa: BLE001 - a task that is not taken is the finding
            print(file.stem, "-", " ".join(str(e).split())[:100], sep=",", flush=True)
            continue
        left = " ".join(library_operators(task))
        print(file.stem, "+", changed, template.name.replace(", ", " "), left, sep=",", flush=True)


def drawn(folder: Path, seed: int, count: int) -> list[Path]:
    """Return tasks that a seed draws from those in the folder."""
    files = sorted(folder.glob("*.py"))
    random.Random(seed).shuffle(files)
    return files[:count]


def warm(file: Path) -> None:
    """Fill the caches of compilers: what is judged later finds its kernels there."""
    task, template, _ = prepared(file)
    children = [Contender(nursery().fork(), []) for _ in template.usual[:4]]
    capability = torch.cuda.get_device_capability()
    with ThreadPoolExecutor(4) as pool, torch.no_grad():
        assert template.launch is not None
        jobs = [
            pool.submit(child.compile, template.launch(c), 10 * capability[0] + capability[1])
            for child, c in zip(children, template.usual, strict=False)
        ]
        inputs = [torch.randn(s, dtype=task.dtype, device="cuda") for s in task.shapes(task.timed)]
        for mode in COMPILED:
            torch.compile(task.reference, mode=mode, dynamic=False)(*inputs)
        for job in jobs:
            job.result()
    for child in children:
        child.end()


def warm_all(files: Sequence[Path], seconds: float) -> None:
    """Fill the caches for all tasks, several at a time, within a time."""
    end = time.monotonic() + seconds

    def one(file: Path) -> None:
        left = end - time.monotonic()
        if left <= 5:
            return
        command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "warm", str(file)]
        try:
            subprocess.run(command, timeout=left, check=False, capture_output=True)
        except subprocess.TimeoutExpired:
            print(f"warming {file.stem} took too long", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        list(pool.map(one, files))


def searched(file: Path, configurations: int) -> tuple[Any, ...]:
    """Search and judge one task; return its row."""
    begun = time.monotonic()
    task, template, changed = prepared(file)
    device = find_device()
    assert device.capability is not None
    capability = 10 * device.capability[0] + device.capability[1]
    with Journal(api.problem_of(task, template, device)) as journal, torch.no_grad():
        engine = Engine(task, template, journal, nursery(), device.torch_device, capability)
        try:
            engine.run(Budget(minutes=0.2, configurations=configurations))
        finally:
            engine.close()
        tried = len(journal.entries)
        if not journal.timed:
            why = journal.entries[-1].why if journal.entries else "nothing was tried"
            return (file.stem, changed, template.name, "", "", tried, f"no kernel: {why}")
        config = journal.timed[0][0]
    verdict = judge(
        template.make(config), task, compiled=COMPILED, device=device,
        effort=Effort(seconds=2.0, rounds=40, trials=1),
    )  # fmt: skip
    left = " ".join(library_operators(task))
    return (
        file.stem, changed, template.name, left, config, tried, *_judged(verdict),
        f"{time.monotonic() - begun:.1f}",
    )  # fmt: skip


def _judged(verdict: Verdict) -> tuple[Any, ...]:
    worst = max(verdict.trials, key=lambda t: t.error / t.bound, default=None)
    errors = (f"{worst.error:.3g}", f"{worst.honest:.3g}") if worst else ("", "")
    race, roof = verdict.race, verdict.roofline
    if race is None:
        return (str(verdict.text), *[""] * 9, *errors)
    us = {d.name: f"{d.microseconds:.1f}" for d in race.denominators}
    share = memory = ""
    if roof is not None:
        share = f"{roof.share(race.microseconds):.3f}"
        memory = str(roof.moved / 3.35e12 * 1e6 >= 0.99 * roof.least_us)
    return (
        str(verdict.text), race.baseline, f"{race.net:.3f}", f"{race.speedup.low:.3f}",
        f"{race.microseconds:.1f}", us.get("eager", ""), us.get("torch.compile default", ""),
        us.get("torch.compile max-autotune-no-cudagraphs", ""), share, memory, *errors,
    )  # fmt: skip


def run(folder: Path, seed: int, count: int, minutes: float, configurations: int) -> None:
    """Search and judge tasks until the time is over."""
    end = time.monotonic() + 60 * minutes
    files = drawn(folder, seed, count)
    warm_all(files, 60 * minutes * 0.3)
    print(f"warm after {time.monotonic() - end + 60 * minutes:.0f} s", file=sys.stderr, flush=True)
    write = csv.writer(sys.stdout)
    write.writerow(HEAD)
    for file in files:
        if time.monotonic() > end:
            write.writerow((file.stem, "", "", "", "", "", "not reached"))
            continue
        try:
            row = searched(file, configurations)
        except Exception as e:  # noqa: BLE001 - one task that fails must not end the others
            row = (file.stem, "", "", "", "", "", f"failed: {type(e).__name__}: {e}"[:300])
        write.writerow(row)
        sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_kernelbench")
    parser.add_argument("what", choices=("list", "run", "warm"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--configurations", type=int, default=10)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("GPUDECK_HOME", home)
        if args.what == "list":
            show(args.folder)
        elif args.what == "warm":
            warm(args.folder)
        else:
            run(args.folder, args.seed, args.count, args.minutes, args.configurations)
    return 0


if __name__ == "__main__":
    sys.exit(main())
