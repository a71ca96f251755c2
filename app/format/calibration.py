"""Describe calibrations of GPUs, and the job that measures them."""

from __future__ import annotations

import sys
import time

from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol.calibration import ClockCalibration
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.submit import Submit

_ARGV = (sys.executable, "-P", "-m", "gpudeck.accel.workloads.clock_survey")


def gpus_to_calibrate(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the ids of the GPUs with hardware counters."""
    return tuple(
        state.device.id
        for state in snapshot.devices
        if state.device.kind == "nvidia"
        and not state.device.host
        and not state.device.mig
        and state.reading is not None
        and "tflops_gpm" in state.reading.values
    )


def calibration_request(snapshot: Snapshot) -> Submit:
    """Return the request that queues the job, which holds all GPUs with hardware counters.

    Raises:
        UserError: There are none.
    """
    found = gpus_to_calibrate(snapshot)
    if not found:
        raise UserError(
            tr(
                "no GPU of this machine has the hardware counters that a calibration corrects. "
                "They need Hopper or later; see: gpudeck status"
            )
        )
    return Submit(make_spec(_ARGV, {"name": "calibrate", "gpus": len(found)}))


def describe_calibration(found: ClockCalibration, label: str) -> str:
    """Return one line: the correction and the error of idle and of busy tensor cores."""
    calm, busy = found.knots[0], found.knots[-1]
    most = max(knot.error for knot in found.knots)
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.made))
    return (
        f"{label}: while the tensor cores work the clock is {busy.ratio:.3f} of NVML's "
        f"(±{busy.error:.0f} %), otherwise {calm.ratio:.3f} (±{calm.error:.0f} %); at most "
        f"±{most:.0f} % with pauses. Measured {made}, VBIOS {found.vbios}, driver {found.driver}"
    )
