"""Launch a kernel on tensors by the names of its arguments; what was prepared once is kept.

While torch.compile traces, the launch becomes part of its graph instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.library import wrap_triton
from torch.nn import Parameter

from accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from accel.runtime.launch import prepare

USUAL = {"num_warps": 4, "num_stages": 2}


def traced(x: Tensor) -> bool:
    """Return True if x only stands for a tensor, as while torch.compile traces: it has no memory.

    Tensors that are no plain ones count as such; Triton's own launcher takes them if they are real.
    """
    return type(x) is not Tensor and type(x) is not Parameter


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
    given = tuple(tensors.values())
    if traced(next(x for x in given if x is not None)):
        wrap_triton(kernel)[grid](**tensors, **numbers, **constants, **options)
        return
    run, order = _prepared(
        _Same(kernel),
        grid,
        tuple(tensors),
        # plain tuples: this runs at every launch, and only the first needs more
        tuple([None if x is None else (x.dtype, x.data_ptr() % ALIGNMENT == 0) for x in given]),
        tuple(numbers.items()),
        tuple(constants.items()),
        tuple(options.items()),
        device,
    )
    run(*[given[i] for i in order])


class _Same:
    """Hold a kernel that is the same as another if it is that object: its own hash is slow."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __hash__(self) -> int:
        return id(self.kernel)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.kernel is other.kernel


@lru_cache(maxsize=4096)
def _prepared(
    same: _Same,
    grid: tuple[int, int, int],
    names: tuple[str, ...],
    types: tuple[tuple[torch.dtype, bool] | None, ...],
    numbers: tuple[tuple[str, float], ...],
    constants: tuple[tuple[str, object], ...],
    options: tuple[tuple[str, int], ...],
    device: torch.device,
) -> tuple[Callable[..., None], tuple[int, ...]]:
    """Return what launches the kernel, and which of the named tensors it takes, in its order."""
    pointers = (None if known is None else Pointer(*known) for known in types)
    arguments: dict[str, Any] = {**dict(zip(names, pointers, strict=True)), **dict(numbers)}
    call = KernelCall(same.kernel, grid, arguments, dict(constants), dict(options))
    wanted = [name for name in same.kernel.arg_names if arguments.get(name) is not None]
    order = tuple(names.index(name) for name in wanted if name in names)
    return prepare(call, device), order
