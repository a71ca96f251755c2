"""Launch the kernels of a transformer on a GPU, each prepared at its first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from gpudeck.accel.attention.kernels.geometry import target_of
from gpudeck.accel.runtime.call import KernelCall, Pointer
from gpudeck.accel.runtime.launch import prepare

EARLY = True
"""Whether kernels begin before the one before has ended, on GPUs that can."""
_LAUNCHES: dict[object, Any] = {}


def launch(
    kernel: Any,
    grid: tuple[int, int, int],
    arguments: Mapping[str, Any],
    constants: Mapping[str, object],
    warps: int = 4,
    stages: int = 2,
) -> None:
    """Launch a kernel; it is prepared at the first use with these types, sizes and constants."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
    described = {
        name: Pointer(value.dtype, value.data_ptr() % 16 == 0) if name in tensors else value
        for name, value in arguments.items()
    }
    device = next(iter(tensors.values())).device
    key = (id(kernel), grid, tuple(described.items()), tuple(constants.items()), warps, device)
    if key not in _LAUNCHES:
        options = {"num_warps": warps, "num_stages": stages}
        if "EARLY" in kernel.arg_names:
            early = EARLY and target_of(device).capability >= 90
            constants = {**constants, "EARLY": early}
            options["launch_pdl"] = int(early)
        _LAUNCHES[key] = prepare(KernelCall(kernel, grid, described, constants, options), device)
    _LAUNCHES[key](*(tensors[name] for name in kernel.arg_names if name in tensors))
