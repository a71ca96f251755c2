"""Validate a backend by many trials with fresh inputs.

Run `python -P -m gpudeck.accel.workloads.validate --backend=hopper --trials=1000 ...`. A trial
draws new inputs from a seed of its own, leaves NaN in the memory of likely outputs, calls once, and
checks the answers against the float64 oracle, so answers of an earlier trial cannot pass.
Operations other than attention are called twice in a trial: once to be timed, once to be checked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import msgspec

from gpudeck.accel.result import BROKEN, Cell, Check, Direction, Trials
from gpudeck.accel.workloads.grid import Shape, directions, shapes
from gpudeck.accel.workloads.harness import Outcome, OutOfMemory, require, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.accel.workloads.task import rate
from gpudeck.language.text import Message, Text, message_of, phrase

if TYPE_CHECKING:
    from torch import Tensor

    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.workloads.inputs import Distribution, Tensors

REPORT_EVERY_S = 0.25


@dataclass
class _Tally:
    """Collect the trials of one cell."""

    backend: str
    reason: Text
    shares: list[float] = field(default_factory=list)
    """The largest error of each trial as a share of its bound."""
    milliseconds: list[float] = field(default_factory=list)
    worst: Check | None = None
    worst_seed: int = 0

    def add(self, checks: tuple[Check, ...], milliseconds: float, seed: int) -> None:
        from gpudeck.accel.workloads.check import share

        check = max(checks, key=share)
        found = min(share(check), BROKEN)
        if not self.shares or found > max(self.shares):
            self.worst, self.worst_seed = check, seed
        self.shares.append(found)
        self.milliseconds.append(milliseconds)

    def cell(self, empty: Cell) -> Cell:
        from gpudeck.accel.runtime.timing import percentiles, timing_of

        timing = timing_of(self.milliseconds)
        failed = sum(share > 1 for share in self.shares)
        p50, p95, p99 = percentiles(self.shares, 50, 95, 99)
        trials = Trials(len(self.shares), failed, p50, p95, p99, max(self.shares), self.worst_seed)
        return msgspec.structs.replace(
            empty,
            backend=self.backend,
            note=self.reason,
            timing=timing,
            tflops=rate(empty.flops, timing.median / 1e3) / 1e12,
            checks=() if self.worst is None else (self.worst,),
            trials=trials,
        )


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Run the trials of one shape after the other."""
    from gpudeck.accel.workloads.headline import headline, limit

    if values.text("operation") != "attention":
        tried = _operation(values, device, progress)
        return headline(tuple(tried), [], tuple(_failures(tried)))

    passes, count, backend = (
        directions(values.text("direction")),
        values.integer("trials"),
        values.text("backend"),
    )
    grid = shapes(values.given)
    limit(len(grid) * len(passes))
    progress.plan(float(count * len(grid)))
    cells: list[Cell] = []
    for i, shape in enumerate(grid):
        progress.stage(f"{i + 1} of {len(grid)}: {shape}", begins=i * count)
        try:
            tallies = _trials(shape, passes, values, device, progress)
        except (ValueError, OutOfMemory) as e:
            if len(grid) == 1:
                raise
            cells += [
                msgspec.structs.replace(shape.cell(direction, backend), note=message_of(e))
                for direction in passes
            ]
        else:
            cells += [
                tally.cell(shape.cell(direction, backend)) for direction, tally in tallies.items()
            ]
    return headline(tuple(cells), [], tuple(_failures(cells)))


def _operation(values: Values, device: ComputeDevice, progress: Progress) -> list[Cell]:
    """Return a cell with the trials of each problem of an operation other than attention."""
    from gpudeck.accel.workloads.operations import trials

    tallies: dict[tuple[Message, str], tuple[Cell, _Tally]] = {}
    for task, milliseconds, seed in trials(values, device, progress):
        assert task.cell is not None
        new = task.cell, _Tally(task.backend, task.reason)
        _, tally = tallies.setdefault((task.cell.sizes, task.cell.dtype), new)
        tally.add(task.check(), milliseconds, seed)
    return [tally.cell(cell) for cell, tally in tallies.values()]


def _trials(
    shape: Shape,
    passes: tuple[Direction, ...],
    values: Values,
    device: ComputeDevice,
    progress: Progress,
) -> dict[Direction, _Tally]:
    """Run all trials of a shape. Raises ValueError if the backend cannot compute a direction."""
    from gpudeck.accel.workloads.check import Oracle
    from gpudeck.accel.workloads.contender import FP8
    from gpudeck.accel.workloads.inputs import fresh, poison

    # inputs, answers, and those of the oracle in float64
    require(device, 8 * shape.moved(passes[-1]))
    backend = values.text("backend")
    in_fp8 = backend in FP8
    solvers = {direction: _solver(backend, shape, direction, device) for direction in passes}
    tallies = {
        direction: _Tally(solver.backend, solver.reason) for direction, solver in solvers.items()
    }
    distribution = cast("Distribution", values.text("inputs"))
    first, count, reported = values.integer("seed"), values.integer("trials"), time.monotonic()
    flops = sum(shape.flops(direction) for direction in passes)
    for trial in range(-1, count):  # the first one compiles, and does not count
        seed = first + max(trial, 0)
        x = fresh(shape, device.torch_device, seed, distribution)
        solved: dict[str, Tensor] = {}
        for direction, solver in solvers.items():
            poison(shape, device.torch_device)
            answers, milliseconds = solver.solve(x, solved)
            solved = {**solved, **answers}
            if trial >= 0:
                tallies[direction].add(
                    Oracle(x, shape, direction).check(answers, fp8=in_fp8), milliseconds, seed
                )
        if time.monotonic() - reported > REPORT_EVERY_S or trial == count - 1:
            reported = time.monotonic()
            progress.advance(trial + 1, (trial + 2) * flops)
    return tallies


@dataclass(frozen=True)
class _Solver:
    """Pair a backend with one direction; `solve` returns the answers by name, and milliseconds."""

    backend: str
    reason: Text
    solve: Callable[[Tensors, dict[str, Tensor]], tuple[dict[str, Tensor], float]]


def _solver(name: str, shape: Shape, direction: Direction, device: ComputeDevice) -> _Solver:
    from gpudeck.accel.attention.inputs import Inputs
    from gpudeck.accel.attention.passes import backward
    from gpudeck.accel.runtime.timing import time_call
    from gpudeck.accel.workloads.contender import NAMED, chosen, forward, problem_of

    problem = problem_of(shape, direction, device)
    choice = chosen(problem, name, direction)

    def forwards(x: Tensors, _: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        (out, lse), ms = time_call(lambda: forward(x, shape, name), device.torch_device)
        return {"out": out, "lse": lse}, ms

    def backwards(x: Tensors, solved: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
        given = x.dout, Inputs(x.q, x.k, x.v), solved["out"], solved["lse"]
        grads, ms = time_call(
            lambda: backward(*given, problem, choice.backend), device.torch_device
        )
        return {"dq": grads.q, "dk": grads.k, "dv": grads.v}, ms

    return _Solver(
        choice.backend,
        choice.reason if name == "auto" else NAMED,
        forwards if direction == "forward" else backwards,
    )


def _failures(cells: list[Cell]) -> Iterator[Text]:
    """Yield the number of failed trials, and how to repeat the worst."""
    tried = [cell.trials for cell in cells if cell.trials is not None]
    failed = sum(t.failed for t in tried)
    if failed:
        worst = max(tried, key=lambda t: t.worst)
        count = sum(t.count for t in tried)
        command = f"seed={worst.worst_seed} trials=1"
        yield phrase("{n} of {limit} trials failed", n=failed, limit=count)
        yield phrase("to repeat the worst: {command}", command=command)


if __name__ == "__main__":
    sys.exit(serve("validate", work))
