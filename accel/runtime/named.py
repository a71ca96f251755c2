"""Launch a kernel on tensors by the names of its arguments; what was prepared once is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from accel.runtime.launch import prepare

USUAL = {"num_warps": 4, "num_stages": 2}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Mapping[str, Tensor | None],
    numbers: Mapping[str, float],
    constants: Mapping[str, object],
    device: torch.device,
    options: Mapping[str, int] = USUAL,
) -> None:
    """Launch a kernel on the current stream of its device.

    Args:
        kernel: a function decorated with triton.jit.
        grid: the number of programs.
        tensors: the pointers by name; None stands for one that the kernel does not use.
        numbers: the other run-time arguments.
        constants: the tl.constexpr arguments.
        device: a GPU, or any device if the kernel is interpreted.
        options: num_warps, num_stages and other compiler options.
    """
    given = [(name, tensors[name]) for name in kernel.arg_names if name in tensors]
    run = _prepared(
        kernel,
        grid,
        tuple((name, _pointer(x)) for name, x in given),
        tuple(numbers.items()),
        tuple(constants.items()),
        tuple(options.items()),
        device,
    )
    run(*(x for _, x in given if x is not None))


def _pointer(x: Tensor | None) -> Pointer | None:
    return None if x is None else Pointer(x.dtype, x.data_ptr() % ALIGNMENT == 0)


@lru_cache(maxsize=4096)
def _prepared(
    kernel: Any,
    grid: tuple[int, int, int],
    pointers: tuple[tuple[str, Pointer | None], ...],
    numbers: tuple[tuple[str, float], ...],
    constants: tuple[tuple[str, object], ...],
    options: tuple[tuple[str, int], ...],
    device: torch.device,
) -> Callable[..., None]:
    arguments: dict[str, Any] = {**dict(pointers), **dict(numbers)}
    return prepare(KernelCall(kernel, grid, arguments, dict(constants), dict(options)), device)
