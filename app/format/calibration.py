"""Describe calibrations of GPUs."""

from __future__ import annotations

import time

from gpudeck.scheduler.protocol.calibration import ClockCalibration


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
