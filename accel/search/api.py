"""Find a faster kernel for a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gpudeck.accel.lessons.store import software
from gpudeck.accel.runtime.capability import ComputeDevice, find_device
from gpudeck.accel.runtime.state_files import change, state_folder
from gpudeck.accel.search.advice import Advisor
from gpudeck.accel.search.advised import Advice, search_both
from gpudeck.accel.search.attention_templates import attention_template
from gpudeck.accel.search.code import Codes, encode_codes
from gpudeck.accel.search.contender import Contender
from gpudeck.accel.search.contest import Effort
from gpudeck.accel.search.crew import Crew
from gpudeck.accel.search.declared import read_declared
from gpudeck.accel.search.engine import Budget, Engine
from gpudeck.accel.search.fusion.capture import bind, capture
from gpudeck.accel.search.fusion.template import task_of_module, template_of_module
from gpudeck.accel.search.installed import Kernel, install
from gpudeck.accel.search.journal import Entry, Journal, Problem
from gpudeck.accel.search.judge import COMPILED, judge, nursery
from gpudeck.accel.search.product_templates import product_template
from gpudeck.accel.search.recurrence_templates import recurrence_template
from gpudeck.accel.search.resources import TARGETS, Resources
from gpudeck.accel.search.space import Config
from gpudeck.accel.search.tasks import TASKS, Task, task_of
from gpudeck.accel.search.templates import ATTENTION, Template, template_of
from gpudeck.accel.search.verdict import Verdict, encode
from gpudeck.accel.search.worker import load

OURS = {
    **dict.fromkeys(ATTENTION, attention_template), "matmul": product_template,
    "retention": recurrence_template, "rwkv7": recurrence_template,
}  # fmt: skip
"""What offers our own kernels of a task."""


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
    """The median of a call in the turns that decided, with a share of the copies of inputs and
    results; 0 if nothing was measured."""
    verdict: Verdict | None
    """The judge's; None if nothing was measured."""
    installed: Kernel | None
    predictions: tuple[Prediction, ...]
    function: Callable[..., Any] | None
    """The kernel, or if a module was given, what computes it for its inputs alone: the module
    itself if the kernel is not judged faster. None if the target is not here."""
    advice: Advice | None = None
    """What a language model cost and gained, if one advised."""


def optimize_kernel(
    kernel: str | Path | Task | nn.Module,
    target_hardware: str = "",
    *,
    inputs: Sequence[Tensor] = (),
    sizes: dict[str, int] | None = None,
    dtype: torch.dtype = torch.float32,
    budget: Budget | None = None,
    effort: Effort | None = None,
    compiled: tuple[str, ...] = COMPILED,
    advisor: Advisor | None = None,
    use: bool = False,
    report: Callable[[Entry], None] = lambda entry: None,
) -> Found:
    """Search the fastest configuration of a kernel, and have it judged.

    What was found out before is not measured again, and the budget counts from the beginning.

    Args:
        kernel: the name of a task of the catalog, a task of it with other sizes, a module
            that returns one tensor, which is fused into Triton kernels, or a file that declares
            a kernel of your own; see `declared`.
        target_hardware: such as `h100`. If this GPU is not here, kernels are compiled for it, and
            ranked by how many threads can be resident: nothing is measured. Empty for the device
            of this machine.
        inputs: what a module is called with; only shapes and dtypes count.
        sizes: the sizes that are timed, of a task of the catalog.
        dtype: the dtype of inputs and result.
        budget: when to end.
        effort: how thoroughly the winner is judged.
        compiled: the modes of torch.compile that the winner is judged beside.
        advisor: a language model that proposes configurations in turn with the surrogate, for
            half of the budget; the other half is for the search without it.
        use: whether the winner is installed if it is judged faster.
        report: is told each configuration that was tried.

    Raises:
        ValueError: if there is no such task, template or target, or a module cannot be fused.
        RuntimeError: if no configuration can be computed.
    """
    device = find_device()
    here = not target_hardware or _is_here(target_hardware, device)
    task, template = _found_template(
        kernel, inputs, dtype, sizes or {}, device.kind if here else "cuda"
    )
    if not here:
        return _predicted(task, template, target_hardware)
    with (
        Crew(nursery(), device.torch_device) as crew,
        Journal(problem_of(task, template, device)) as journal,
        torch.no_grad(),
    ):
        capability = None
        if device.capability is not None:
            capability = 10 * device.capability[0] + device.capability[1]

        def search(kept: Journal, asked: Advisor | None, budget: Budget) -> None:
            with closing(Engine(task, template, kept, crew, capability, report, asked)) as engine:
                engine.run(budget)

        advice = None
        if advisor is None:
            search(journal, None, budget or Budget())
        else:
            advice = search_both(search, journal, advisor, budget or Budget())
        if not journal.timed:
            why = journal.entries[-1].why if journal.entries else "nothing was tried"
            raise RuntimeError(f"no configuration of {template.name} can be used: {why}")
        with closing(Engine(task, template, journal, crew, capability)) as engine:
            config, us = engine.decide(journal.timed)
        source = template.make(config)
        verdict = judge(
            source, task, compiled=compiled, effort=effort, device=device, crew=crew
        )  # fmt: skip
    change(journal.problem.verdict_file, lambda _: encode(verdict))
    if capability is not None and (codes := show_code(template, journal, config, capability)):
        change(journal.problem.code_file, lambda _: encode_codes(codes))
    kept = install(verdict) if use and verdict.is_faster else None
    function = load(source)
    if isinstance(kernel, nn.Module) and task.written:
        function = bind(function, kernel, task.written) if verdict.is_faster else kernel
    return Found(config, True, us, verdict, kept, (), function, advice)


def _found_template(
    kernel: str | Path | Task | nn.Module,
    inputs: Sequence[Tensor],
    dtype: torch.dtype,
    sizes: dict[str, int],
    kind: str,
) -> tuple[Task, Template]:
    """Return what is computed, and the template that computes it on a kind of device."""
    if isinstance(kernel, Path):
        return read_declared(kernel)
    if isinstance(kernel, nn.Module):
        if kind != "cuda":
            raise ValueError("modules are fused for GPUs; name one as target_hardware")
        return fused_template(kernel, inputs)
    task = kernel if isinstance(kernel, Task) else task_of(kernel, dtype, sizes)
    # a CPU's template has torch compute
    task = task if kind == "cuda" else dataclasses.replace(task, own=False)
    return task, template_for(task, kind)


def template_for(task: Task, kind: str) -> Template:
    """Return the template of a task of the catalog for a kind of device, `cuda` or `cpu`.

    Raises:
        ValueError: if there is none.
    """
    if kind == "cuda" and task.name in OURS:
        return OURS[task.name](task.name, task.dtype, task.timed)
    return template_of(task.name, task.dtype, task.timed, kind)


def fused_template(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[Task, Template]:
    """Return the task of computing what a module computes, and the template that does.

    Raises:
        ValueError: if the module cannot be fused; see `capture`.
    """
    captured = capture(module, inputs, state_folder() / "search" / "modules")
    task = task_of_module(type(module).__name__, captured, inputs[0].dtype)
    return task, template_of_module(task)


def show_code(
    template: Template, journal: Journal, winner: Config, capability: int
) -> Codes | None:
    """Return the code of the winner and of the first configuration that was right.

    None if the template does not tell what it launches, or nothing was right.
    """
    if template.launch is None or not journal.timed:
        return None
    first = next(e.config for e in journal.entries if e.state == "timed")
    compiler = Contender(nursery().fork(), [])
    try:
        both = [compiler.code(template.launch(config), capability) for config in (first, winner)]
    finally:
        compiler.end()
    return Codes(capability, first, both[0], winner, both[1])


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


def _predicted(task: Task, template: Template, target: str) -> Found:
    """Compile every configuration for a GPU that is not here, and rank them."""
    capability = TARGETS[target.lower().replace(" ", "")]
    if template.launch is None:
        raise ValueError(f"{template.name} can be searched on this machine's device only")
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
    found.sort(key=lambda p: (-p.occupancy, p.config.get("rows", 1), p.resources.registers))
    return Found(found[0].config, False, 0.0, None, None, tuple(found), None)


__all__ = ["TASKS", "Budget", "Effort", "Found", "Prediction", "optimize_kernel"]
