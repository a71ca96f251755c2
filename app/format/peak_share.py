"""Say which share of a GPU's peak a rate is. Free of Qt."""

from __future__ import annotations

from typing import NamedTuple

from gpudeck.accel.runtime.peaks import peak_tflops
from gpudeck.scheduler.protocol.devices import card_name

USUAL = ("bfloat16", "float16")
"""The precisions of which the first that is known stands for a rate of unknown precision."""
_NAMES = {
    "bfloat16": "BF16",
    "float16": "FP16",
    "fp8": "FP8",
    "fp4": "FP4",
    "tf32": "TF32",
    "float32": "FP32",
}
KINDS = {name.lower(): kind for kind, name in _NAMES.items()}
"""By the type that a job states (`gpudeck submit --precision`): the precision in the table."""


class PeakShare(NamedTuple):
    """A rate beside the vendor's peak of a card."""

    percent: float
    peak: float
    """TFLOP/s."""
    precision: str
    """As people write it, such as BF16."""


def peak_share(device: str, tflops: float, precision: str = "") -> PeakShare | None:
    """Return the share of the peak; None where the peak is not known.

    Args:
        device: The name that the driver gives.
        tflops: The rate.
        precision: Of `accel.runtime.peaks.PRECISIONS`; empty if it is not known.
    """
    name = card_name(device)
    for kind in (precision,) if precision else USUAL:
        if peak := peak_tflops(name, kind):
            return PeakShare(100 * tflops / peak, peak, _NAMES[kind])
    return None
