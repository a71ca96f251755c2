"""Peaks of known GPUs by precision: dense products, with sums in float32, at the boost clock.

The figures are the vendor's, without sparsity, and not measured: a card reaches less under its
power limit. A precision that a GPU's tensor cores lack is None, and so is every figure of other
GPUs. The module needs no torch.
"""

from __future__ import annotations

from typing import NamedTuple

_H100 = "NVIDIA H100 data sheet, 2023"
_H200 = "NVIDIA H200 data sheet, 2024"
_B200 = "NVIDIA HGX B200 data sheet, 2025"
_A100 = "NVIDIA A100 data sheet, 2021"
_AMPERE = "NVIDIA Ampere GA102 whitepaper, 2021"
_ADA = "NVIDIA Ada whitepaper, 2023"
_TURING = "NVIDIA Turing whitepaper, 2018"


class Peaks(NamedTuple):
    """The peaks of one type of GPU: TFLOP/s by precision, and GB/s of its memory."""

    float32: float
    """Without tensor cores."""
    tf32: float | None
    float16: float | None
    bfloat16: float | None
    fp8: float | None
    fp4: float | None
    bandwidth: float
    source: str


TABLE: dict[str, Peaks] = {
    "NVIDIA H100 80GB HBM3": Peaks(67, 495, 989, 989, 1979, None, 3350, _H100),
    "NVIDIA H100 PCIe": Peaks(51, 378, 756, 756, 1513, None, 2000, _H100),
    "NVIDIA H100 NVL": Peaks(60, 418, 835, 835, 1671, None, 3900, _H100),
    "NVIDIA H200": Peaks(67, 495, 989, 989, 1979, None, 4800, _H200),
    "NVIDIA H200 NVL": Peaks(60, 418, 835, 835, 1671, None, 4800, _H200),
    "NVIDIA B200": Peaks(75, 1100, 2250, 2250, 4500, 9000, 7700, _B200),
    "NVIDIA A100-SXM4-80GB": Peaks(19.5, 156, 312, 312, None, None, 2039, _A100),
    "NVIDIA A100-SXM4-40GB": Peaks(19.5, 156, 312, 312, None, None, 1555, _A100),
    "NVIDIA A100 80GB PCIe": Peaks(19.5, 156, 312, 312, None, None, 1935, _A100),
    "NVIDIA A40": Peaks(37.4, 74.8, 149.7, 149.7, None, None, 696, "NVIDIA A40 data sheet, 2021"),
    "NVIDIA A10": Peaks(31.2, 62.5, 125, 125, None, None, 600, "NVIDIA A10 data sheet, 2021"),
    "NVIDIA L40S": Peaks(91.6, 183, 362, 362, 733, None, 864, "NVIDIA L40S data sheet, 2023"),
    "NVIDIA L4": Peaks(30.3, 60, 121, 121, 242, None, 300, "NVIDIA L4 data sheet, 2023"),
    "NVIDIA GeForce RTX 4090": Peaks(82.6, 82.6, 165.2, 165.2, 330.3, None, 1008, _ADA),
    "NVIDIA GeForce RTX 3090": Peaks(35.6, 35.6, 71, 71, None, None, 936, _AMPERE),
    "NVIDIA GeForce RTX 2080 Ti": Peaks(13.4, None, 53.8, None, None, None, 616, _TURING),
    "Tesla V100-SXM2-32GB": Peaks(15.7, None, 125, None, None, None, 900, "NVIDIA V100 data sheet"),
    "Tesla T4": Peaks(8.1, None, 65, None, None, None, 320, "NVIDIA T4 data sheet"),
}
"""By the name that the driver gives."""

PRECISIONS = ("float32", "tf32", "float16", "bfloat16", "fp8", "fp4")


def peak_tflops(device: str, precision: str) -> float | None:
    """Return the peak of a GPU in a precision, None where it is not known or not built in."""
    known = TABLE.get(device)
    if known is None or precision not in PRECISIONS:
        return None
    found: float | None = getattr(known, precision)
    return found


def peak_bandwidth(device: str) -> float | None:
    """Return the bytes a second of a GPU's memory, None where they are not known."""
    known = TABLE.get(device)
    return None if known is None else known.bandwidth * 1e9
