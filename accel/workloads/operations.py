"""Compare and validate operations other than attention: each contender is a Task of its workload.

A problem is one size of an operation, in one type of numbers (products) or of one kind (linear
attention). Calls are made as from
Python, so that the host's time counts where a call is shorter; inputs are drawn anew for each
contender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gpudeck.accel.result import Cell
from gpudeck.accel.runtime.refusals import CannotCompute
from gpudeck.accel.workloads import catalog, distributed, gemm, linear_attention, precision
from gpudeck.accel.workloads.harness import Outcome, OutOfMemory, Prepare
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.accel.workloads.task import Task, rate
from gpudeck.language.text import Message, message_of

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.workloads.headline import TimedLoop

_WARM_UP_CALLS = 3


@dataclass(frozen=True)
class Operation:
    """Say how a workload is asked for one size and one contender."""

    prepare: Prepare
    sizes: tuple[str, ...]
    """The parameters that get the size."""
    contender: str
    """The parameter that names what computes it."""
    variant: str = ""
    """The parameter that gets each of several values, listed under its plural; none if empty."""


OPERATIONS = {
    "gemm": Operation(gemm.prepare, ("size",), "backend", "dtype"),
    "precision": Operation(precision.prepare, ("inputs", "outputs"), "recipe"),
    "linear_attention": Operation(linear_attention.prepare, ("tokens",), "backend", "kind"),
    "distributed": Operation(distributed.prepare, ("seq",), "strategy"),
}


def contenders(name: str) -> tuple[str, ...]:
    """Return all contenders of an operation."""
    params = catalog.find(name).params
    return next(p.choices for p in params if p.name == OPERATIONS[name].contender)


def problems(values: Values) -> tuple[dict[str, str], ...]:
    """Return the parameters of each problem that is asked for."""
    operation = OPERATIONS[values.text("operation")]
    sizes = [dict.fromkeys(operation.sizes, size) for size in values.several("sizes")]
    variant = operation.variant
    if not variant:
        return tuple(sizes)
    return tuple({**size, variant: v} for v in values.several(f"{variant}s") for size in sizes)


def posed(name: str, problem: dict[str, str], contender: str, device: ComputeDevice) -> Task:
    """Return the Task of one contender.

    Raises:
        ValueError: if it cannot compute this.
        OutOfMemory: if it does not fit into memory.
    """
    operation, kind = OPERATIONS[name], "nvidia" if device.kind == "cuda" else "cpu"
    given = {**problem, operation.contender: contender}
    return operation.prepare(Values(catalog.find(name).complete(given, kind)), device)


def compared(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Check all contenders of an operation at each problem, then time them in turns."""
    from gpudeck.accel.workloads.headline import headline, limit

    name, seconds = values.text("operation"), values.number("seconds")
    asked, names = problems(values), contenders(name)
    limit(len(asked) * len(names))
    each = (len(names) + 1) * seconds
    progress.plan(each * len(asked))
    cells: list[Cell] = []
    loops: list[TimedLoop] = []
    for i, problem in enumerate(asked):
        progress.stage(f"{i + 1} of {len(asked)}: {_told(name, problem)}", begins=i * each)
        new, loop = _contest(name, problem, device, seconds, progress.advance)
        cells += new
        loops += loop
    return headline(tuple(cells), loops)


def _contest(
    name: str,
    problem: dict[str, str],
    device: ComputeDevice,
    seconds: float,
    report: Callable[[float, float], None],
) -> tuple[list[Cell], list[TimedLoop]]:
    """Return a cell for each contender, measured or with the reason why not."""
    from gpudeck.accel.runtime.timing import measure_in_turn
    from gpudeck.accel.workloads.headline import TimedLoop

    ready: dict[str, Task] = {}
    cells: dict[str, Cell] = {}
    refused: dict[str, Message] = {}
    for contender in contenders(name):
        try:
            task = posed(name, problem, contender, device)
            checks = task.check()
        except (ValueError, OutOfMemory) as e:
            refused[contender] = e.note if isinstance(e, CannotCompute) else message_of(e)
            continue
        assert task.cell is not None
        cells[contender] = msgspec.structs.replace(
            task.cell, contender=contender, backend=task.backend, note=task.reason, checks=checks
        )
        if cells[contender].passed:
            ready[contender] = task
    if not cells:
        raise ValueError("; ".join(map(str, refused.values())))
    like = msgspec.structs.replace(next(iter(cells.values())), backend="", checks=())
    for contender, why in refused.items():
        cells[contender] = msgspec.structs.replace(like, contender=contender, note=why)
    found = [cells[contender] for contender in contenders(name)]
    if not ready:
        return found, []
    first = next(iter(ready))
    calls = [*(task.call for task in ready.values()), ready[first].call]
    for call in calls * _WARM_UP_CALLS:
        call()
    flops = ready[first].flops
    measured = measure_in_turn(
        calls,
        seconds,
        device.torch_device,
        lambda elapsed, count: report(elapsed, count * flops),
        lambda _: None,
    )
    for contender, loop in zip(ready, measured, strict=False):
        t = loop.timing
        cells[contender] = msgspec.structs.replace(
            cells[contender], timing=t, tflops=rate(cells[contender].flops, t.median / 1e3) / 1e12
        )
    twin = rate(measured[0].timing.median, measured[-1].timing.median)
    cells[first] = msgspec.structs.replace(cells[first], twin=twin)
    loop = measured[0]
    stretch = TimedLoop(loop.started, loop.ended, loop.wall_s, flops * loop.timing.count)
    return [cells[contender] for contender in contenders(name)], [stretch]


def trials(
    values: Values, device: ComputeDevice, progress: Progress
) -> Iterator[tuple[Task, float, int]]:
    """Yield a Task with fresh inputs for each trial of each problem, its milliseconds and seed.

    The Task's `check` computes once more and compares.
    """
    import torch

    from gpudeck.accel.runtime.timing import time_call

    name, count, first = (
        values.text("operation"), values.integer("trials"), values.integer("seed")
    )  # fmt: skip
    asked = problems(values)
    progress.plan(float(count * len(asked)))
    for i, problem in enumerate(asked):
        told = _told(name, problem)
        progress.stage(f"{i + 1} of {len(asked)}: {told}", begins=float(i * count))
        posed(name, problem, _asked(values, name), device).call()  # compiles
        for trial in range(count):
            torch.manual_seed(first + trial)
            task = posed(name, problem, _asked(values, name), device)
            _, milliseconds = time_call(task.call, device.torch_device)
            yield task, milliseconds, first + trial
            progress.advance(trial + 1.0, (trial + 1) * task.flops)


def _told(name: str, problem: dict[str, str]) -> str:
    operation = OPERATIONS[name]
    size, variant = problem[operation.sizes[0]], problem.get(operation.variant)
    return ", ".join((name, *([variant] if variant else []), f"size {size}"))


def _asked(values: Values, name: str) -> str:
    """Return the contender that `backend` names; the usual one of an operation without `auto`."""
    known, asked = contenders(name), values.text("backend")
    if asked == "auto" and asked not in known:
        params = catalog.find(name).params
        return next(p.default for p in params if p.name == OPERATIONS[name].contender)
    if asked not in known:
        raise ValueError(f"{name} has no {asked!r}. It has: {', '.join(known)}")
    return asked
