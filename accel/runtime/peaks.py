"""Peaks of known GPUs by precision: dense products, with sums in float32, at the boost clock.

The figures are the vendor's, without sparsity, and not measured: a card reaches less under its
power limit. Each was compared on 2026-11-23 with the page that its source names, which quotes the
vendor's document. A precision that a GPU's tensor cores lack is None, and so is what no page
confirmed, and every figure of other GPUs. The module needs no torch.
"""

from __future__ import annotations

from typing import NamedTuple

_HOPPER = "NVIDIA H100 whitepaper, in glennklockwood.com/garden/processors/h100"
_LISTED = "NVIDIA data sheets, in kunwar.page/chapter/appendix-d-hardware-reference"
_BLACKWELL = "NVIDIA Blackwell data sheet (1,000 W), in glennklockwood.com/garden/processors/B200"
_A100 = "NVIDIA A100 data sheet, in glennklockwood.com/garden/processors/A100"
_A100_PCIE = f"{_A100}; memory: thundercompute.com/blog/nvidia-a100-specs-full-guide"
_A40 = "NVIDIA A40 data sheet, in ecer.com/corp/details-uuuedqa-p1bsay9"
_A10 = "NVIDIA A10 data sheet, in sysrqmts.com/gpus/compare (A10 PCIe)"
_L40S = "NVIDIA L40S data sheet, in mullet.se/product.html?product_id=355414"
_L4 = "NVIDIA L4 data sheet, in store.sourcecode.com/en-us/bg-bucket-compare/125/9820"
_ADA = "NVIDIA Ada whitepaper, in waredb.com/processor/nvidia-geforce-rtx-4090"
_GA102 = (
    "NVIDIA GA102 whitepaper, in holynerdvana.blogspot.com/2022/10 (142 TFLOP/s with sums in FP16,"
    " half of it with sums in FP32)"
)
_T4 = "NVIDIA T4 data sheet, in hmc-tech.com/gpu/nvidia-t4-vs-nvidia-v100-sxm"


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
    "NVIDIA H100 80GB HBM3": Peaks(67, 495, 989, 989, 1979, None, 3350, _HOPPER),
    "NVIDIA H100 PCIe": Peaks(51, None, 756, 756, 1513, None, 2000, _LISTED),
    "NVIDIA H200": Peaks(67, 495, 989, 989, 1979, None, 4800, f"{_HOPPER}; memory: {_LISTED}"),
    "NVIDIA B200": Peaks(80, 1100, 2250, 2250, 4500, 9000, 8000, _BLACKWELL),
    "NVIDIA A100-SXM4-80GB": Peaks(19.5, 156, 312, 312, None, None, 2039, _A100),
    "NVIDIA A100-SXM4-40GB": Peaks(19.5, 156, 312, 312, None, None, 1555, _A100),
    "NVIDIA A100 80GB PCIe": Peaks(19.5, 156, 312, 312, None, None, 1935, _A100_PCIE),
    "NVIDIA A40": Peaks(37.4, 74.8, 149.7, 149.7, None, None, 696, _A40),
    "NVIDIA A10": Peaks(31.2, None, None, None, None, None, 600, _A10),
    "NVIDIA L40S": Peaks(91.6, 183, 362, 362, 733, None, 864, _L40S),
    "NVIDIA L4": Peaks(30.3, 60, 121, 121, 242, None, 300, _L4),
    "NVIDIA GeForce RTX 4090": Peaks(82.6, 82.6, 165.2, 165.2, 330.3, None, 1008, _ADA),
    "NVIDIA GeForce RTX 3090": Peaks(35.6, 35.6, 71, 71, None, None, 936, _GA102),
    "Tesla V100-SXM2-32GB": Peaks(15.7, None, 125, None, None, None, 900, _LISTED),
    "Tesla T4": Peaks(8.1, None, 65, None, None, None, 320, _T4),
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
