"""Check the hardware counters of a GPU against a job of ours that counted its operations. Pure.

It costs nothing, and shows that a calibration no longer holds.
"""

from __future__ import annotations

from statistics import fmean

import msgspec

from scheduler.protocol.errors import MALFORMED
from scheduler.protocol.jobs import Done, Job
from scheduler.protocol.snapshot import Columns

FIELDS = ("tflops_gpm", "tflops_gpm_error")
NOISE_PERCENT = 2.0
"""The mean of a few readings beside the same load differs by this much."""
LEAD_S = 0.6
"""The first reading that lies within the timed loop ends this long after its start."""
_LEAST_READINGS = 4
_EXACT = ("bfloat16", "float16")
"""Types of products whose operations the counters tell exactly."""


class CountedProduct(msgspec.Struct, frozen=True):
    """Hold the part of a matrix product's Result (see `accel.result`) that is compared."""

    workload: str
    params: dict[str, str | int | float | bool]
    sustained_tflops: float
    sustained_from: float
    sustained_to: float


_DECODE = msgspec.json.Decoder(CountedProduct).decode


def counted_product(job: Job) -> CountedProduct | None:
    """Return what a job counted, if it was a product on one device that the counters tell."""
    if not isinstance(job.state, Done) or len(job.state.devices) != 1 or job.result is None:
        return None
    try:
        found = _DECODE(job.result)
    except MALFORMED:
        return None
    exact = found.workload == "gemm" and found.params.get("dtype") in _EXACT
    return found if exact and found.sustained_tflops > 0 else None


def disagreement(counted: CountedProduct, past: Columns) -> str:
    """Return how the counters differ from the count by more than they state, or an empty text.

    Args:
        counted: What the job counted.
        past: The readings from LEAD_S after the start of its loop to the end.
    """
    rows = zip(*(past.columns.get(field, ()) for field in FIELDS), strict=True)
    known = [(rate, error) for rate, error in rows if rate is not None and error is not None]
    if len(known) < _LEAST_READINGS:
        return ""
    off = 100 * (fmean(rate for rate, _ in known) / counted.sustained_tflops - 1)
    stated = max(error for _, error in known)
    if abs(off) <= stated + NOISE_PERCENT:
        return ""
    side = "above" if off > 0 else "below"
    return f"{abs(off):.0f} % {side} the operations that it counted, and state ±{stated:.0f} %"
