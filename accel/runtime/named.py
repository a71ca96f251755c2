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

from gpudeck.accel.runtime.call import ALIGNMENT, KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

USUAL = {"num_warps": 4, "num_stages": 2}


def is_traced(x: Tensor) -> bool:
    """Return True if x only stands for a tensor, as while torch.compile traces: it has no memory.

    Tensors that are no plain ones count as such; Triton's own launcher takes them if they are real.
    """
    return type(x) is not Tensor and type(x) is not Parameter


class Launcher:
    """Launch a kernel with the same grid, numbers and constants on one set of tensors after the
    other."""

    __slots__ = ("constants", "grid", "kernel", "names", "numbers", "options")

    def __init__(
        self,
        kernel: Any,
        grid: tuple[int, int, int],
        names: tuple[str, ...],
        numbers: Mapping[str, float],
        constants: Mapping[str, object],
        options: Mapping[str, int] = USUAL,
    ) -> None:
        """Describe the launches.

        Args:
            kernel: a function decorated with triton.jit.
            grid: the number of programs.
            names: the pointers among the kernel's arguments, in the order of a call's tensors.
            numbers: the other run-time arguments.
            constants: the tl.constexpr arguments.
            options: num_warps, num_stages and other compiler options.
        """
        self.kernel, self.grid, self.names = kernel, grid, names
        self.numbers, self.constants, self.options = numbers, constants, options

    def __call__(self, *tensors: Tensor | None) -> None:
        """Launch on the current stream of the first tensor's device, a GPU, or any device if the
        kernel is interpreted. None stands for a tensor that the kernel does not use."""
        first = tensors[0]
        assert first is not None
        if is_traced(first):
            named = dict(zip(self.names, tensors, strict=True))
            wrap_triton(self.kernel)[self.grid](
                **named, **self.numbers, **self.constants, **self.options
            )
            return
        # plain tuples: this runs at every launch, and only the first needs more
        types = [None if x is None else (x.dtype, x.data_ptr() % ALIGNMENT == 0) for x in tensors]
        run, order = _prepare(self, tuple(types), first.device)
        run(*[tensors[i] for i in order])


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Mapping[str, Tensor | None],
    numbers: Mapping[str, float],
    constants: Mapping[str, object],
    options: Mapping[str, int] = USUAL,
) -> None:
    """Launch a kernel once; the arguments are those of Launcher, and the tensors by name."""
    names, given = tuple(tensors), tuple(tensors.values())
    if given[0] is not None and is_traced(given[0]):
        launcher = Launcher(kernel, grid, names, numbers, constants, options)
    else:
        numbers_, constants_, options_ = (tuple(d.items()) for d in (numbers, constants, options))
        launcher = _launcher(_Same(kernel), grid, names, numbers_, constants_, options_)
    launcher(*given)


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
def _launcher(
    same: _Same,
    grid: tuple[int, int, int],
    names: tuple[str, ...],
    numbers: tuple[tuple[str, float], ...],
    constants: tuple[tuple[str, object], ...],
    options: tuple[tuple[str, int], ...],
) -> Launcher:
    return Launcher(same.kernel, grid, names, dict(numbers), dict(constants), dict(options))


@lru_cache(maxsize=4096)
def _prepare(
    launcher: Launcher, types: tuple[tuple[torch.dtype, bool] | None, ...], device: torch.device
) -> tuple[Callable[..., None], tuple[int, ...]]:
    """Return what launches the kernel on tensors of these types, and which of them it takes, in its
    order."""
    names, kernel = launcher.names, launcher.kernel
    pointers = (None if known is None else Pointer(*known) for known in types)
    arguments: dict[str, Any] = {**dict(zip(names, pointers, strict=True)), **launcher.numbers}
    call = KernelCall(kernel, launcher.grid, arguments, launcher.constants, launcher.options)
    wanted = [name for name in kernel.arg_names if arguments.get(name) is not None]
    return prepare(call, device), tuple(names.index(name) for name in wanted if name in names)


def describe(
    kernel: Any,
    grid: tuple[int, int, int],
    tensors: Mapping[str, Tensor | None],
    numbers: Mapping[str, float],
    constants: Mapping[str, object],
    options: Mapping[str, int] = USUAL,
) -> KernelCall:
    """Return the launch of a kernel on tensors that may be without memory: they count as aligned.

    The arguments are those of `launch`.
    """
    pointers = {name: None if x is None else Pointer(x.dtype) for name, x in tensors.items()}
    return KernelCall(kernel, grid, {**pointers, **numbers}, constants, options)
