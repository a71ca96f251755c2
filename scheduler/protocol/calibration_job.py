"""Make the job that measures the true SM clock of the GPUs of this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Spec
from gpudeck.scheduler.protocol.snapshot import DeviceState

MODULE = "gpudeck.accel.workloads.clock_survey"
"""The module that a calibration job runs."""


def has_counters(state: DeviceState) -> bool:
    """Return whether a device is a whole GPU of this machine with hardware counters."""
    device, reading = state.device, state.reading
    if device.kind != "nvidia" or device.host or device.mig or device.instance:
        return False
    return reading is not None and "tflops_gpm" in reading.values


def versions_of(device: Device) -> tuple[str, str]:
    """Return the VBIOS and the driver of a GPU, for which a calibration holds."""
    return str(device.facts.get("VBIOS", "")), str(device.facts.get("driver", ""))


def calibration_spec(states: Sequence[DeviceState], priority: int = 0) -> Spec:
    """Return the job, which holds all GPUs with hardware counters.

    Raises:
        UserError: There are none.
    """
    count = sum(map(has_counters, states))
    if not count:
        raise UserError(
            phrase(
                "no GPU of this machine has the hardware counters that a calibration corrects. "
                "They need Hopper or later; see: gpudeck status"
            )
        )
    return make_spec(
        (sys.executable, "-P", "-m", MODULE),
        {"name": "calibrate", "gpus": count, "priority": priority, "cwd": str(paths.home())},
    )
