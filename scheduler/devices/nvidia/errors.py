"""Translate NVML's errors: a field without a value, a GPU that is gone, or a machine that needs
care."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nv

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.absence import Refused
from gpudeck.scheduler.protocol.devices import DevicesChanged, NoGpu
from gpudeck.scheduler.protocol.errors import UserError

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
"""It exists while the driver is loaded."""
RETRY_S = 60.0
"""The pause before another attempt where success is unlikely: an unsupported field, a dead GPU."""


def refusal(error: Any) -> Refused:
    """Return the error as the cause of an absent field.

    Raises:
        DevicesChanged: The GPU or its driver is gone.
    """
    if error.value in _LOST:
        raise DevicesChanged(str(error)) from error
    return Refused("NVML", str(error))


def lasting(error: Any) -> bool:
    """Return True if the same call will fail again for a while."""
    return error.value in _LASTING


def optional(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the call's answer, or None where it fails.

    Raises:
        DevicesChanged: The GPU or its driver is gone.
    """
    try:
        return call(*arguments)
    except nv.NVMLError as e:
        refusal(e)
        return None


def text(value: str | bytes) -> str:
    """Return NVML's string as text: some versions of pynvml return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def unreachable(error: Any) -> UserError:
    """Return the error to raise where NVML does not start: no GPU is here, or the driver needs
    care."""
    # a container without a GPU sees its host's /proc/driver/nvidia, but has no library
    if error.value == nv.NVML_ERROR_LIBRARY_NOT_FOUND or (
        error.value == nv.NVML_ERROR_DRIVER_NOT_LOADED and not _DRIVER.exists()
    ):
        return NoGpu(phrase("no NVIDIA GPU can be reached: {quote}", quote=str(error)))
    if error.value == nv.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return UserError(
            phrase(
                "the NVIDIA driver and its library have different versions, as after "
                "an update. Restart the machine, or reload the driver."
            )
        )
    return UserError(
        phrase(
            "the NVIDIA GPUs cannot be reached: {error}. See: nvidia-smi. To watch "
            "the CPU, set the source to cpu.",
            error=str(error),
        )
    )
