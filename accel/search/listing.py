"""List what a call launches: the operators of torch, and the kernels of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_NO_COMPUTATION = frozenset(
    ("alias", "as_strided", "clone", "copy_", "detach", "empty", "empty_like", "empty_strided",
     "expand", "fill_", "flatten", "full", "full_like", "lift_fresh", "new_empty",
     "new_empty_strided", "new_full", "new_zeros", "permute", "reshape", "select", "slice", "split",
     "squeeze", "t", "transpose", "_to_copy", "unbind", "unsqueeze", "_unsafe_view", "view",
     "zero_", "zeros", "zeros_like")
)  # fmt: skip
"""Operators that allocate, fill, copy or look at memory in another shape."""


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launched: dict[str, None] = {}
        self.foreign: dict[str, None] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        space, _, name = func._schema.name.partition("::")
        self.launched[f"{space}::{name}"] = None
        if space == "aten" and name not in _NO_COMPUTATION:
            self.foreign[f"{space}::{name}"] = None
        return func(*args, **(kwargs or {}))


def prepare() -> None:
    """Have torch import what the listing needs, which takes more than a second."""
    with _Operators():
        torch.empty(0).view(0)


def list_launches(
    call: Callable[[], object], device: torch.device
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Call once; return all that was launched, and the operators of torch that compute."""
    with _Operators() as operators:
        call()
    kernels = _kernels(call) if device.type == "cuda" else ()
    return (*operators.launched, *kernels), tuple(operators.foreign)


def _kernels(call: Callable[[], object]) -> tuple[str, ...]:
    """Return the names of the GPU's kernels, as the profiler saw them."""
    from torch._C._autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    on_gpu = DeviceType.CUDA
    names = (event.name for event in seen.events() if event.device_type == on_gpu)
    return tuple(dict.fromkeys(names))
