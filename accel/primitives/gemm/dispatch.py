"""Choose the backend: the named one, or with `auto` the fastest by measurements.

Only the description of a problem is needed, no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from accel.primitives.gemm import table
from accel.primitives.gemm.backends import BACKENDS
from accel.primitives.gemm.problem import FP8, Problem
from accel.runtime.backend_names import check_name

EMULATED = "FP8 is EMULATED in float32 on this device"


@dataclass(frozen=True)
class GemmChoice:
    """Name the backend that runs, the reason, and why each of the others cannot or does not."""

    backend: str
    reason: str
    refusals: dict[str, str]
    tflops: dict[str, float]
    """Measured TFLOP/s of backends at the nearest shape, if any is near."""

    def __str__(self) -> str:
        lines = [f"{self.backend} ({self.reason})"]
        lines += [f"  {name}: {rate:.0f} TFLOP/s measured" for name, rate in self.tflops.items()]
        return "\n".join([*lines, *(f"  {name}: it {why}" for name, why in self.refusals.items())])


@lru_cache(maxsize=4096)
def choose(p: Problem, backend: str = "auto") -> GemmChoice:
    """Choose the backend of a product.

    Raises:
        ValueError: if no backend has this name, or if it cannot compute the problem; the message
            says why and which backends can.
    """
    check_name(backend, BACKENDS)
    whys = {name: b.refusal(p) for name, b in BACKENDS.items()}
    refusals = {name: why for name, why in whys.items() if why is not None}
    rates = table.measured(p, _gpu(p))
    if backend == "auto":
        return _automatic(p, refusals, rates)
    if backend in refusals:
        able = [name for name in BACKENDS if name not in refusals]
        raise ValueError(
            f"backend {backend} cannot do this: it {refusals[backend]}."
            f" These can: {', '.join(able)}"
        )
    reason = "named by the caller"
    if backend == "torch" and p.dtype in FP8:
        reason += f"; {EMULATED}"
    return GemmChoice(backend, reason, refusals, rates)


def _automatic(p: Problem, refusals: dict[str, str], rates: dict[str, float]) -> GemmChoice:
    """Choose the fastest of the measured backends, or else the first in the order of preference.

    cuBLAS comes first where nothing is measured, and torch last: with FP8 it would emulate.
    """
    able = [n for n, b in BACKENDS.items() if b.automatic and n not in refusals]
    rated = sorted((n for n in able if n in rates), key=lambda n: -rates[n])
    if rated:
        name = rated[0]
        then = "".join(f", {other} {rates[other]:.0f}" for other in rated[1:])
        reason = f"auto: measured fastest near this shape, {rates[name]:.0f} TFLOP/s{then}"
        return GemmChoice(name, reason, refusals, rates)
    name = next(n for n in ("cublas", "triton", "torch", "hopper") if n in able)
    reason = "auto: not measured on this GPU; the first that can"
    if name == "torch":
        reason = "auto: no kernel runs here"
        if p.dtype in FP8:
            reason += f"; {EMULATED}"
    return GemmChoice(name, reason, refusals, rates)


def _gpu(p: Problem) -> str | None:
    if p.device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(p.device)
