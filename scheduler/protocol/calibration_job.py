"""Make the job that measures the true SM clock of the GPUs of this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import JobOptions, make_spec
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


class CalibrationJob(NamedTuple):
    """Describe a job that calibrates GPUs."""

    spec: Spec
    gpus: tuple[Device, ...]
    """Those that it holds."""


def calibration_jobs(
    states: Sequence[DeviceState], priority: int = 0, when_idle: bool = False
) -> tuple[CalibrationJob, ...]:
    """Return the jobs that together hold all GPUs with hardware counters.

    One is enough where all GPUs of this machine have counters. Where others have none, each job
    names the cards that it holds.

    Raises:
        UserError: No GPU has counters.
    """
    mine = [s for s in states if s.device.kind == "nvidia" and not s.device.host]
    counted = [state.device for state in mine if has_counters(state)]
    if not counted:
        raise UserError(
            phrase(
                "no GPU of this machine has the hardware counters that a calibration corrects. "
                "They need Hopper or later; see: gpudeck status"
            )
        )
    cards = dict[str, list[Device]]()
    for gpu in counted:
        cards.setdefault(_type_of(gpu, [state.device for state in mine], counted), []).append(gpu)
    options: JobOptions = {"name": "calibrate", "priority": priority, "cwd": str(paths.home())}
    command = (sys.executable, "-P", "-m", MODULE)
    return tuple(
        CalibrationJob(
            make_spec(
                command,
                {**options, "gpus": len(gpus), "gpu_type": name, "when_idle": when_idle},
            ),
            tuple(gpus),
        )
        for name, gpus in cards.items()
    )


def _type_of(gpu: Device, present: Sequence[Device], counted: Sequence[Device]) -> str:
    """Return the type by which a job gets this GPU, or one of its kind that is calibrated, too."""
    if len(counted) == len(present):
        return ""
    named = [other for other in present if gpu.name.lower() in other.name.lower()]
    alike = all(other in counted and other.name == gpu.name for other in named)
    return gpu.name if alike else gpu.id
