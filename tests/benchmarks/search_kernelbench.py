"""The kernel search on tasks of KernelBench (MIT, not part of this repository).

    python -m tests.benchmarks.search_kernelbench list FOLDER
    python -m tests.benchmarks.search_kernelbench run FOLDER --minutes 7 > tasks.csv

FOLDER holds KernelBench's files, named by level, as `level2_12_Gemm_Multiply_LeakyReLU.py`. `list`
tells what the templates compute of each. `run` takes the 30 tasks of `TASKS`, or those that are
named; `--drawn` adds those of `DRAWN`. First everything is compiled: the configurations that are
searched, and what torch.compile makes of the task in its default mode and with max-autotune.
Nothing is timed meanwhile but what max-autotune compares, one kernel at a time. Then each task is
searched and judged beside what was compiled in time.

A task whose inputs and result take more than 0.61 GB has its first size, the batch as a rule,
halved until they do not: the judge holds fresh inputs for several calls.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import fcntl
import importlib.util
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpudeck.accel.runtime.capability import ComputeDevice, find_device
from gpudeck.accel.runtime.state_files import state_folder
from gpudeck.accel.search import api, contender
from gpudeck.accel.search.arena import calls_that_fit, lay_out
from gpudeck.accel.search.baselines import compiled
from gpudeck.accel.search.candidate_protocol import Bind
from gpudeck.accel.search.contender import Desk
from gpudeck.accel.search.contest import CALLS, Effort
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.fusion.template import library_operators
from gpudeck.accel.search.journal import Journal
from gpudeck.accel.search.judge import judge, nursery
from gpudeck.accel.search.space import Config
from gpudeck.accel.search.tasks import Task
from gpudeck.accel.search.templates import Template
from gpudeck.accel.search.verdict import Source, Verdict

TASKS = (
    "level2_12", "level1_1", "level2_99", "level1_22", "level2_22", "level1_25", "level2_9",
    "level1_16", "level2_53", "level1_26", "level2_64", "level1_3", "level2_76", "level1_88",
    "level2_14", "level1_18", "level2_29", "level1_29", "level2_81", "level1_13", "level2_40",
    "level1_12", "level2_63", "level1_2", "level2_86", "level1_19", "level2_95", "level1_8",
    "level2_70", "level2_51",
)  # fmt: skip
"""Chosen before any was measured: of those that the templates compute whole, all but one of level 2
and half of level 1. Those of one element-wise operator can hardly win: they are bound by memory."""
DRAWN = (
    "level1_20", "level2_46", "level2_13", "level2_91", "level2_32", "level2_25", "level2_60",
    "level2_62", "level2_74", "level1_27", "level2_92", "level2_49", "level2_36", "level2_80",
    "level1_14", "level2_37", "level2_3", "level2_96", "level2_90", "level2_50", "level2_45",
    "level2_71", "level2_27", "level1_38", "level1_17", "level2_85", "level1_28", "level2_26",
    "level1_31", "level2_57",
)  # fmt: skip
"""Drawn by `random.Random(43).sample` from the sorted names of the 66 other files of which the
templates compute a part, after everything was built. The KL divergence is not among the 66: it
takes probabilities only."""
MOST_BYTES = 0.61e9
COMPILED = ("default", "max-autotune-no-cudagraphs")
"""Graphs of launches are left out for time: one launch takes a small part of these tasks."""
_COMPILING = 0.48
"""The share of the time that is for compiling."""
TRIED = 4
"""Configurations of a task that are measured: the template's own first ones, compiled by then."""
HEAD = (
    "task", "sizes", "template", "left to the library", "config", "tried", "verdict", "baseline",
    "speedup", "at least", "us", "eager us", "default us", "max-autotune us", "roofline share",
    "memory-bound", "error", "honest error", "seconds",
)  # fmt: skip


class Prepared(NamedTuple):
    """Hold a task, and what was found out of it."""

    name: str
    task: Task
    template: Template
    changed: str
    """The size that was made smaller."""
    layout: Bind
    """Of the memory for a single call. torch traces for it, which threads must not do."""
    shared: int
    """The bytes for as many calls as the judge needs."""


def prepared(file: Path) -> Prepared:
    """Read a task.

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
            calls = calls_that_fit(task, task.timed, CALLS)
            shared = lay_out(task, task.timed, calls)[1]
            layout = lay_out(task, task.timed, 1)[0]
            return Prepared(file.stem, task, template, changed, layout, shared)
        if getattr(module, first) < 64:
            raise ValueError("too large")
        setattr(module, first, getattr(module, first) // 2)
        changed = f"{first}={getattr(module, first)}"


def show(folder: Path) -> None:
    """Tell what the templates compute of each task."""
    for file in sorted(folder.glob("*.py")):
        try:
            _, task, template, changed, *_ = prepared(file)
        except Exception as e:  # noqa: BLE001 - a task that is not taken is the finding
            print(file.stem, "-", " ".join(str(e).split())[:100], sep=",", flush=True)
            continue
        left = " ".join(library_operators(task))
        print(file.stem, "+", changed, template.name.replace(", ", " "), left, sep=",", flush=True)


def compiled_alone(place: str, entry: str, mode: str, lock: str) -> Callable[..., Tensor]:
    """Return what torch.compile makes of a function; kernels that it compares have the GPU alone.

    Args:
        place: of the function.
        entry: the function's name.
        mode: of torch.compile.
        lock: a file that whoever times holds.
    """
    from torch._inductor.runtime import benchmarking

    def locked(time_it: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, function: Callable[[], Any], *given: Any, **named: Any) -> Any:
            function()  # which may compile
            torch.cuda.synchronize()
            with Path(lock).open("w") as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                return time_it(self, function, *given, **named)

        return run

    maker = type(benchmarking.benchmarker)
    if maker.benchmark_gpu.__name__ != "run":
        maker.benchmark_gpu = locked(maker.benchmark_gpu)  # type: ignore[method-assign]
    return compiled(place, entry, mode)


class Kitchen:
    """Compile for many tasks at the same time, so that caches hold all when the timing begins."""

    def __init__(self, crew: Crew, end: float, say: Callable[[str], None]) -> None:
        self._crew, self._end, self._say = crew, end, say
        self._pool = ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0))))
        self._lock = state_folder() / "timing.lock"
        self._jobs: list[Future[object]] = []
        self._later: dict[object, list[Prepared]] = {}
        """By the shapes of matrices, who waits until another task has compared products."""
        self._active: set[contender.Contender] = set()
        self.fit: dict[str, list[Config]] = {}
        """By task, the configurations that can be of use."""
        self.compiled: dict[str, list[str]] = {}
        """By task, the modes of torch.compile whose kernels are compiled."""

    def take(self, item: Prepared, capability: int) -> None:
        """Have everything of a task compiled.

        Tasks of the same shapes share the products that max-autotune compares: the others wait
        until the first has compared them.
        """
        self.compiled[item.name] = []
        matrices = tuple(s for s in item.task.shapes(item.task.timed) if len(s) > 1)
        if matrices in self._later:
            self._later[matrices].append(item)
        else:
            self._later[matrices] = []
            self._jobs.append(self._pool.submit(self._compile, item, COMPILED[1], matrices))
        self._jobs.append(self._pool.submit(self._compile, item, COMPILED[0]))
        self.fit[item.name] = []
        for config in item.template.usual[:TRIED]:
            self._jobs.append(self._pool.submit(self._examine, item, config, capability))

    def _compile(self, item: Prepared, mode: str, matrices: object = None) -> None:
        """Have torch.compile's kernels compiled, then those of the tasks that wait for it."""
        place = item.task.source
        options = {
            "place": place.place, "entry": place.entry, "mode": mode, "lock": str(self._lock),
        }  # fmt: skip
        source = Source(__spec__.name, "compiled_alone", options)
        if self._call(item, source, f"{item.name} {mode}"):
            self.compiled[item.name].append(mode)
        for other in self._later.pop(matrices, ()):
            self._jobs.append(self._pool.submit(self._compile, other, mode))

    def _call(self, item: Prepared, source: Source, name: str) -> bool:
        """Have a process call a function once; return whether that succeeded."""
        if time.monotonic() > self._end:
            return False
        begun = time.monotonic()
        desk = Desk(self._crew.arena(0), item.task, self._crew.device)
        desk.bind = item.layout
        worker = self._crew.start(source, desk, trusted=True)
        self._active.add(worker)
        done = not worker.flags and worker.bind(desk, name)
        self._active.discard(worker)
        why = "" if done else f": {worker.flags[0].kind} {worker.flags[0].where}"
        self._say(f"{name} {time.monotonic() - begun:.1f} s{why}")
        self._crew.release(worker)
        return done

    def _examine(self, item: Prepared, config: Config, capability: int) -> None:
        """Compile a configuration, and if it can be of use, have it called once."""
        name = f"{item.name} {config}"
        if item.template.launch is not None:
            worker = contender.Contender(self._crew.nursery.fork(), [])
            self._active.add(worker)
            needs = worker.compile(item.template.launch(config), capability)
            self._active.discard(worker)
            worker.end()
            why = worker.flags[0].where if needs is None else needs.unfit(capability)
            if why:
                self._say(f"{name}: {why}")
                return
        if self._call(item, item.template.make(config), name):
            self.fit[item.name].append(config)

    def finish(self) -> None:
        """Wait until everything is compiled, or the time is over; then stop what is left."""
        while left := [job for job in self._jobs if not job.done()]:
            if time.monotonic() > self._end:
                break
            wait(left, max(0.0, self._end - time.monotonic()))
        self._say(f"{len(left)} of {len(self._jobs)} not compiled")
        for job in left:
            job.cancel()
        for worker in list(self._active):
            os.kill(worker.child.pid, signal.SIGKILL)  # its thread notices, and ends
        self._pool.shutdown()


def searched(
    item: Prepared, fit: Sequence[Config], modes: Sequence[str], crew: Crew, device: ComputeDevice
) -> Any:
    """Search and judge one task beside those modes of torch.compile that have been compiled."""
    begun = time.monotonic()
    name, task, template, changed, *_ = item
    usual = tuple(c for c in template.usual if c in fit)
    template = dataclasses.replace(template, usual=usual)
    with Journal(api.problem_of(task, template, device)) as journal, torch.no_grad():
        engine = Engine(task, template, journal, crew, None)
        try:
            engine.run(Budget(minutes=0.15, configurations=len(usual)))
        finally:
            engine.close()
        tried = len(journal.entries)
        if not journal.timed:
            why = journal.entries[-1].why if journal.entries else "nothing was tried"
            return (name, changed, template.name, "", "", tried, f"no kernel: {why}")
        config = journal.timed[0][0]
    verdict = judge(
        template.make(config), task, compiled=modes, device=device, crew=crew,
        effort=Effort(seconds=0.7, rounds=26, trials=1),
    )  # fmt: skip
    left = " ".join(library_operators(task))
    return (
        name, changed, template.name, left, config, tried, *_judged(verdict),
        f"{time.monotonic() - begun:.1f}",
    )  # fmt: skip


def _judged(verdict: Verdict) -> tuple[Any, ...]:
    worst = max(verdict.trials, key=lambda t: t.error / t.bound, default=None)
    errors = (f"{worst.error:.3g}", f"{worst.honest:.3g}") if worst else ("", "")
    race, roof = verdict.race, verdict.roofline
    if race is None:
        return (str(verdict.text), *[""] * 9, *errors)
    us = {d.name: f"{d.microseconds:.1f}" if not d.absent else d.absent for d in race.denominators}
    share = memory = ""
    if roof is not None:
        share = f"{roof.share(race.microseconds):.3f}"
        memory = str(roof.moved / 3.35e12 * 1e6 >= 0.99 * roof.least_us)
    return (
        str(verdict.text), race.baseline, f"{race.net:.3f}", f"{race.speedup.low:.3f}",
        f"{race.microseconds:.1f}", us.get("eager", ""),
        *(us.get(f"torch.compile {mode}", "not in time") for mode in COMPILED),
        share, memory, *errors,
    )  # fmt: skip


def named(folder: Path, tasks: Sequence[str]) -> list[Path]:
    """Return the files of tasks, which are named by level and number."""
    return [next(folder.glob(f"{task}_*.py")) for task in tasks]


def run(folder: Path, tasks: Sequence[str], minutes: float) -> None:
    """Compile for all tasks, then search and judge them until the time is over."""
    begun = time.monotonic()
    end = begun + 60 * minutes

    def say(what: str) -> None:
        print(f"{time.monotonic() - begun:.1f} {what}", file=sys.stderr, flush=True)

    device = find_device()
    capability = 0
    if device.capability is not None:
        capability = 10 * device.capability[0] + device.capability[1]
    items = []
    contender.LOAD_S = 60 * minutes * _COMPILING
    with Crew(nursery(), device.torch_device) as crew:
        crew.arena(int(3.1 * MOST_BYTES))
        kitchen = Kitchen(crew, begun + contender.LOAD_S, say)
        for file in named(folder, tasks):
            try:
                items.append(prepared(file))
                kitchen.take(items[-1], capability)
            except Exception as e:  # noqa: BLE001 - one task that fails must not end the others
                say(f"{file.stem} cannot be prepared: {type(e).__name__}: {e}"[:300])
        say("prepared")
        kitchen.finish()
    contender.LOAD_S = 20.0  # what is used is compiled
    write = csv.writer(sys.stdout)
    write.writerow(HEAD)
    with Crew(nursery(), device.torch_device, ahead=2) as crew:
        crew.arena(max(item.shared for item in items))
        for item in items:
            if time.monotonic() > end - 5:
                row: Any = (item.name, item.changed, "", "", "", "", "not reached")
            else:
                modes = kitchen.compiled[item.name]
                row = _tried(item, kitchen.fit[item.name], modes, crew, device)
            write.writerow(row)
            sys.stdout.flush()
            say(str(row))


def _tried(
    item: Prepared, fit: Sequence[Config], modes: Sequence[str], crew: Crew, device: ComputeDevice
) -> Any:
    try:
        return searched(item, fit, modes, crew, device)
    except Exception as e:  # noqa: BLE001 - one task that fails must not end the others
        return (item.name, item.changed, "", "", "", "", f"failed: {type(e).__name__}: {e}"[:300])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_kernelbench")
    parser.add_argument("what", choices=("list", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tasks", nargs="*", default=TASKS)
    parser.add_argument("--drawn", action="store_true", help="also those of DRAWN")
    parser.add_argument("--minutes", type=float, default=7.0)
    args = parser.parse_args()
    # processes compile side by side, each with one thread
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("GPUDECK_HOME", home)
        if args.what == "list":
            show(args.folder)
        else:
            run(args.folder, [*args.tasks, *(DRAWN if args.drawn else ())], args.minutes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
