"""Check the hardware counters of a GPU against a job of ours: the operations that it counted, and
the clock that it measured from within. Pure.

It costs nothing, and shows that a calibration no longer holds.
"""

from __future__ import annotations

from statistics import fmean

import msgspec

from gpudeck.scheduler.protocol.calibration import ClockCalibration, tensor_activity
from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.protocol.snapshot import Columns

FIELDS = ("tflops_gpm", "tflops_gpm_error", "clock_sm", "tensor_hmma", "sm_active")
NOISE_PERCENT = 2.0
"""The mean of a few readings beside the same load differs by this much."""
LEAD_S = 0.6
"""The first reading that lies within the timed loop ends this long after its start."""
_LEAST_READINGS = 4
_EXACT = ("bfloat16", "float16")
"""Types of products whose operations the counters tell exactly."""


class MeasuredClock(msgspec.Struct, frozen=True):
    """Hold the clock that a kernel of the job measured, in MHz, where it did."""

    true_mhz: float | None = None


class WatchedWork(msgspec.Struct, frozen=True):
    """Hold the part of a Result (see `gpudeck.accel.result`) that is compared."""

    workload: str
    params: dict[str, str | int | float | bool]
    sustained_tflops: float
    sustained_from: float
    sustained_to: float
    sensors: MeasuredClock = MeasuredClock()

    @property
    def counted(self) -> float | None:
        """Return the TFLOP/s, if it was a product whose operations the counters tell."""
        exact = self.workload == "gemm" and self.params.get("dtype") in _EXACT
        return self.sustained_tflops if exact and self.sustained_tflops > 0 else None


_DECODE = msgspec.json.Decoder(WatchedWork).decode


def watched_work(job: Job) -> WatchedWork | None:
    """Return what a job on one device counted or measured, if the counters can be compared."""
    if not isinstance(job.state, Done) or len(job.state.devices) != 1 or job.result is None:
        return None
    try:
        found = _DECODE(job.result)
    except MALFORMED:
        return None
    return found if found.counted or found.sensors.true_mhz else None


def disagreement(work: WatchedWork, past: Columns, clock: ClockCalibration) -> str:
    """Return how the counters differ from the job by more than they state, or an empty text.

    Args:
        work: What the job counted and measured.
        past: The readings from LEAD_S after the start of its loop to the end.
        clock: The correction of the GPU's clock that is in force.
    """
    if work.counted and (found := _apart(_rates(past), work.counted)):
        return f"showed {found} the operations that it counted"
    if work.sensors.true_mhz and (found := _apart(_clocks(past, clock), work.sensors.true_mhz)):
        return f"used a clock {found} the one that it measured"
    return ""


Stated = list[tuple[float, float]]
"""Values, each with its stated error in percent."""


def _rates(past: Columns) -> Stated:
    rows = zip(past.columns["tflops_gpm"], past.columns["tflops_gpm_error"], strict=True)
    return [(rate, error) for rate, error in rows if rate is not None and error is not None]


def _clocks(past: Columns, calibrated: ClockCalibration) -> Stated:
    """Return the clocks in MHz that the counters are multiplied with."""
    names = ("clock_sm", "tensor_hmma", "sm_active")
    found = []
    for row in zip(*(past.columns[name] for name in names), strict=True):
        values = {name: value for name, value in zip(names, row, strict=True) if value is not None}
        activity = tensor_activity(values)
        if activity is not None and "clock_sm" in values:
            corrected = values["clock_sm"] * calibrated.ratio(activity)
            found.append((corrected, calibrated.error(activity)))
    return found


def _apart(shown: Stated, true: float) -> str:
    """Return how far the mean lies from the truth, if that is more than was stated."""
    if len(shown) < _LEAST_READINGS:
        return ""
    off = 100 * (fmean(value for value, _ in shown) / true - 1)
    stated = max(error for _, error in shown)
    if abs(off) <= stated + NOISE_PERCENT:
        return ""
    return f"{abs(off):.0f} % (stated: ±{stated:.0f} %) {'above' if off > 0 else 'below'}"
