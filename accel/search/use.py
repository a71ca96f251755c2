"""Compute by the kernel that is installed for a task, a module or a file, and name it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from gpudeck.accel.runtime.capability import find_device
from gpudeck.accel.runtime.given import require_tensors
from gpudeck.accel.search.api import fused_template
from gpudeck.accel.search.declared import read_declared
from gpudeck.accel.search.fusion.capture import bind
from gpudeck.accel.search.installed import Kernel, find
from gpudeck.accel.search.tasks import TASKS
from gpudeck.accel.search.worker import load


def compute(task: str, *inputs: Tensor) -> tuple[Tensor, str]:
    """Return the result, and the name of the installed kernel that computed it.

    Without a kernel for the sizes, dtype and device of `inputs` the reference computes, and the
    name is `eager`.

    Raises:
        ValueError: if there is no such task.
    """
    if task not in TASKS:
        raise ValueError(f"there is no task {task!r}. There are: {', '.join(TASKS)}")
    require_tensors(**{f"input {n}": x for n, x in enumerate(inputs)})
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    kernel = find(task, TASKS[task].sizes_of(inputs), dtype, str(find_device()))
    if kernel is None:
        return TASKS[task].reference(*inputs), "eager"
    return _function(kernel)(*inputs), kernel.name


def fused(module: nn.Module, *inputs: Tensor) -> tuple[Callable[..., Tensor], str]:
    """Return what computes a module for such inputs, and its name: an installed kernel, or the
    module itself as `eager`.

    The kernel computes no gradients.

    Args:
        module: on the device on which it is called.
        inputs: what it will be called with; only shapes and dtypes count.

    Raises:
        ValueError: if the module cannot be fused; see `optimize_kernel`.
    """
    task, _ = fused_template(module, inputs)
    kernel = find(task.name, task.timed, str(task.dtype).removeprefix("torch."), str(find_device()))
    if kernel is None or task.written is None:
        return module, "eager"
    return bind(_function(kernel), module, task.written), kernel.name


def declared(file: Path) -> tuple[Callable[..., Tensor], str]:
    """Return what computes a declared kernel at the sizes that are timed, and its name: an
    installed kernel, or the file's reference as `eager`.

    Args:
        file: declares the kernel; its code is run.

    Raises:
        ValueError: if it does not; see `declared`.
        OSError: if it cannot be read.
    """
    task, _ = read_declared(file)
    kernel = find(task.name, task.timed, str(task.dtype).removeprefix("torch."), str(find_device()))
    return (task.reference, "eager") if kernel is None else (_function(kernel), kernel.name)


_LOADED: dict[str, Callable[..., Any]] = {}


def _function(kernel: Kernel) -> Callable[..., Any]:
    if kernel.digest not in _LOADED:
        _LOADED[kernel.digest] = load(kernel.source)
    return _LOADED[kernel.digest]
