"""What the driver of a GPU asks for after a fault, in words.

Source: `nvmlDeviceGpuRecoveryAction_t` in nvml.h, read as NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
"""

from __future__ import annotations

_ACTIONS = {
    1: "a reset of the GPU",
    2: "a restart of the machine",
    3: "an end of the traffic between GPUs",
    4: "an end of its jobs, and then a reset of the GPU",
    5: "a recovery of the IMEX domain",
    6: "a reset of the GPU's bus",
    7: "a restart of the whole system",
}


def recovery_text(action: float) -> str:
    """Return the action that the driver asks for; "none" where it asks for nothing."""
    return _ACTIONS.get(int(action), f"recovery action {action:.0f}") if action else "none"
