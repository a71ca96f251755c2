"""Find a faster kernel for a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from gpudeck.accel.lessons.store import software
from gpudeck.accel.runtime.capability import ComputeDevice, find_device
from gpudeck.accel.search.contender import Contender
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.installed import Kernel, install
from gpudeck.accel.search.journal import Entry, Journal, Problem
from gpudeck.accel.search.judge import COMPILED, judge, nursery
from gpudeck.accel.search.resources import TARGETS, Resources
from gpudeck.accel.search.space import Config
from gpudeck.accel.search.tasks import TASKS, Task, task_of
from gpudeck.accel.search.templates import Template, template_of
from gpudeck.accel.search.verdict import Verdict
from gpudeck.accel.search.worker import load


class Prediction(NamedTuple):
    """Tell what compiling says of a configuration that cannot be measured here."""

    config: Config
    resources: Resources
    occupancy: float


class Found(NamedTuple):
    """Hold the outcome of a search."""

    config: Config
    measured: bool
    """False if the target is not here: then the kernel was compiled, and its rank predicted."""
    microseconds: float
    """The median of a call with the copies of inputs and results; 0 if nothing was measured."""
    verdict: Verdict | None
    """The judge's; None if nothing was measured."""
    installed: Kernel | None
    predictions: tuple[Prediction, ...]
    function: Callable[..., Any] | None
    """The kernel; None if the target is not here."""


def optimize_kernel(
    kernel: str | Task,
    target_hardware: str = "",
    *,
    sizes: dict[str, int] | None = None,
    dtype: torch.dtype = torch.float32,
    budget: Budget | None = None,
    effort: Effort | None = None,
    compiled: tuple[str, ...] = COMPILED,
    use: bool = False,
    report: Callable[[Entry], None] = lambda entry: None,
) -> Found:
    """Search the fastest configuration of a kernel, and have it judged.

    What was found out before is not measured again, and the budget counts from the beginning.

    Args:
        kernel: the name of a task of the catalog, or a task of it with other sizes.
        target_hardware: such as `h100`. If this GPU is not here, kernels are compiled for it, and
            ranked by how many threads can be resident: nothing is measured. Empty for the device
            of this machine.
        sizes: the sizes that are timed.
        dtype: the dtype of inputs and result.
        budget: when to end.
        effort: how thoroughly the winner is judged.
        compiled: the modes of torch.compile that the winner is judged beside.
        use: whether the winner is installed if it is judged faster.
        report: is told each configuration that was tried.

    Raises:
        ValueError: if there is no such task, template or target.
        RuntimeError: if no configuration can be computed.
    """
    task = kernel if isinstance(kernel, Task) else task_of(kernel, dtype, sizes or {})
    device = find_device()
    if target_hardware and not _is_here(target_hardware, device):
        return _predicted(task, target_hardware)
    # a CPU's template has torch compute
    task = task if device.kind == "cuda" else dataclasses.replace(task, own=False)
    template = template_of(task.name, task.dtype, task.timed, device.kind)
    with Journal(problem_of(task, template, device)) as journal, torch.no_grad():
        capability = None
        if device.capability is not None:
            capability = 10 * device.capability[0] + device.capability[1]
        engine = Engine(task, template, journal, nursery(), device.torch_device, capability, report)
        try:
            engine.run(budget or Budget())
        finally:
            engine.close()
        if not journal.timed:
            why = journal.entries[-1].why if journal.entries else "nothing was tried"
            raise RuntimeError(f"no configuration of {template.name} can be used: {why}")
        config, us = journal.timed[0]
    source = template.make(config)
    verdict = judge(source, task, compiled=compiled, effort=effort, device=device)
    kept = install(verdict) if use and verdict.is_faster else None
    return Found(config, True, us, verdict, kept, (), load(source))


def problem_of(task: Task, template: Template, device: ComputeDevice) -> Problem:
    """Return what identifies a search on a device."""
    dtype = str(task.dtype).removeprefix("torch.")
    return Problem(task.name, template.name, task.timed, dtype, device.name, software())


def _is_here(target: str, device: ComputeDevice) -> bool:
    """Return whether this machine has the target.

    Raises:
        ValueError: if the target is not known.
    """
    known = target.lower().replace(" ", "")
    if known not in TARGETS:
        raise ValueError(f"target_hardware is one of {', '.join(TARGETS)}; got {target!r}")
    return device.kind == "cuda" and known in device.name.lower().replace(" ", "")


def _predicted(task: Task, target: str) -> Found:
    """Compile every configuration for a GPU that is not here, and rank them."""
    capability = TARGETS[target.lower().replace(" ", "")]
    template = template_of(task.name, task.dtype, task.timed, "cuda")
    assert template.launch is not None
    compiler = Contender(nursery().fork(), [])
    found = []
    try:
        for config in template.space.all():
            needs = compiler.compile(template.launch(config), capability)
            if needs is not None and not needs.unfit(capability):
                found.append(Prediction(config, needs, needs.occupancy(capability)))
    finally:
        compiler.end()
    if not found:
        why = compiler.flags[0].where if compiler.flags else "all need too many resources"
        raise RuntimeError(f"no configuration of {template.name} fits {target}: {why}")
    found.sort(key=lambda p: (-p.occupancy, p.config["rows"], p.resources.registers))
    return Found(found[0].config, False, 0.0, None, None, tuple(found), None)


__all__ = ["TASKS", "Budget", "Effort", "Found", "Prediction", "optimize_kernel"]
