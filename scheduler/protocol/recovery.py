"""What the driver of a GPU asks for after a fault, in words.

Source: `nvmlDeviceGpuRecoveryAction_t` in nvml.h, read as NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
"""

from __future__ import annotations

from gpudeck.language.text import Text, phrase

_ACTIONS = {
    1: phrase("a reset of the GPU"),
    2: phrase("a restart of the machine"),
    3: phrase("an end of the traffic between GPUs"),
    4: phrase("an end of its jobs, and then a reset of the GPU"),
    5: phrase("a recovery of the IMEX domain"),
    6: phrase("a reset of the GPU's bus"),
    7: phrase("a restart of the whole system"),
}


def recovery_action(action: float) -> Text:
    """Return the action that the driver asks for; not 0, which asks for nothing."""
    known = _ACTIONS.get(int(action))
    return phrase("recovery action {n}", n=round(action)) if known is None else known


def recovery_text(action: float) -> str:
    """Return in English what the driver asks for; "none" where it asks for nothing."""
    return str(recovery_action(action)) if action else "none"
