"""What NVML's errors mean: a field that is absent, a GPU that is gone, or a machine somebody must look after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nv

from scheduler.protocol.devices import DevicesChanged, NoGpu
from scheduler.protocol.errors import UserError

_LOST = (
    nv.NVML_ERROR_GPU_IS_LOST,
    nv.NVML_ERROR_GPU_NOT_FOUND,
    nv.NVML_ERROR_UNINITIALIZED,
    nv.NVML_ERROR_DRIVER_NOT_LOADED,
    nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    nv.NVML_ERROR_RESET_REQUIRED,
)
_LASTING = (
    nv.NVML_ERROR_NOT_SUPPORTED,
    nv.NVML_ERROR_FUNCTION_NOT_FOUND,
    nv.NVML_ERROR_NO_PERMISSION,
    nv.NVML_ERROR_DEPRECATED,
)
_DRIVER = Path("/proc/driver/nvidia")
"""There while the kernel has the driver."""
RETRY_S = 60.0
"""What will not work soon (a field that is not supported, a GPU that does not answer) is asked for again after this long."""


def why(error: Any) -> str:
    """The error in words. Raises DevicesChanged where the GPU or its driver is gone."""
    if error.value in _LOST:
        raise DevicesChanged(str(error)) from error
    return f"NVML: {error}"


def lasting(error: Any) -> bool:
    """Whether the same call will answer the same for a while."""
    return error.value in _LASTING


def optional(call: Callable[..., Any], *arguments: Any) -> Any:
    """What the call answers, None where it fails. Raises DevicesChanged where the GPU or its driver is gone."""
    try:
        return call(*arguments)
    except nv.NVMLError as e:
        why(e)
        return None


def text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def unreachable(error: Any) -> UserError:
    """What NVML's refusal to start means: no GPU here, or one that somebody must look after."""
    # a container that was given no GPU sees its host's /proc/driver/nvidia, but has no library
    if error.value == nv.NVML_ERROR_LIBRARY_NOT_FOUND or (
        error.value == nv.NVML_ERROR_DRIVER_NOT_LOADED and not _DRIVER.exists()
    ):
        return NoGpu(f"no NVIDIA GPU can be reached: {error}")
    if error.value == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return UserError(
            "the NVIDIA driver and its library differ in version, as after an update. Restart the machine, or reload the driver."
        )
    return UserError(
        f"the NVIDIA GPUs cannot be reached: {error}. See: nvidia-smi. To watch the CPU, set the source to cpu."
    )
