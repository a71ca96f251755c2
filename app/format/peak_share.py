"""Say which share of a GPU's peak a rate is. Free of Qt."""

from __future__ import annotations

from gpudeck.accel.runtime.peaks import peak_tflops
from gpudeck.app.format.values import significant
from gpudeck.app.language.texts import tr

USUAL = ("bfloat16", "float16")
"""The precisions of which the first that is known stands for a rate of unknown precision."""
_NAMES = {"bfloat16": "BF16", "float16": "FP16", "fp8": "FP8", "fp4": "FP4", "tf32": "TF32",
          "float32": "FP32"}  # fmt: skip


def peak_share(device: str, tflops: float, precision: str = "") -> tuple[float, str] | None:
    """Return the share of the peak, 0 to 1, and a text on that peak; None where it is unknown.

    Args:
        device: The name that the driver gives.
        tflops: The rate.
        precision: Of `accel.runtime.peaks.PRECISIONS`; empty if it is not known.
    """
    name = device.removeprefix("REPLAY ")
    for kind in (precision,) if precision else USUAL:
        if peak := peak_tflops(name, kind):
            about = tr("the vendor's peak of this card for {precision} is {peak} TFLOP/s",
                       precision=_NAMES[kind], peak=significant(peak))  # fmt: skip
            return tflops / peak, about
    return None
