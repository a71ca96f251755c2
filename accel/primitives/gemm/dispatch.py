"""Choose the backend: the named one, or with `auto` the fastest by measurements.

What this machine measured at the problem's spot decides (`gpudeck.accel.primitives.gemm.lessons`),
else the nearest row of a table. Only the description of a problem is needed, no tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch

from gpudeck.accel.lessons.records import explain_rates
from gpudeck.accel.lessons.store import Store, on_change
from gpudeck.accel.primitives.gemm import table
from gpudeck.accel.primitives.gemm.backends import BACKENDS
from gpudeck.accel.primitives.gemm.problem import FP8, Problem
from gpudeck.accel.runtime.refusals import NAMED, CannotCompute, check_name
from gpudeck.language.text import Text, join_texts, phrase

LEARNED = Store("gemm")
POSSIBLE = 0.6
"""A backend that is expected to have less than this share of the best one's speed is not measured.
"""
Basis = Literal["named", "measured here", "measured", "predicted", "order"]
"""Why a backend runs: the caller named it; it was measured fastest by this machine at such a call,
or by the table at this shape, or at the nearest one; or it is the first that can."""
EMULATED = phrase("FP8 is EMULATED in float32 on this device")


@dataclass(frozen=True)
class GemmChoice:
    """Name the backend that runs, the reason, and why each of the others cannot or does not."""

    backend: str
    reason: Text
    refusals: dict[str, Text]
    tflops: dict[str, float]
    """TFLOP/s of backends, as they were measured at this shape or at the nearest one."""
    basis: Basis = "named"

    @property
    def is_measured(self) -> bool:
        """Return whether measurements of this very shape decided."""
        return self.basis in ("measured here", "measured")

    def __str__(self) -> str:
        lines = [f"{self.backend} ({self.reason})"]
        kind = "measured" if self.is_measured else "expected"
        lines += [f"  {name}: {rate:.0f} TFLOP/s {kind}" for name, rate in self.tflops.items()]
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
    if backend == "auto":
        return _choose_fastest(p, refusals)
    if backend in refusals:
        able = [name for name in BACKENDS if name not in refusals]
        raise CannotCompute(backend, refusals[backend], able)
    emulated = backend == "torch" and p.dtype in FP8
    reason = join_texts((NAMED, EMULATED)) if emulated else NAMED
    return GemmChoice(backend, reason, refusals, table.find_measured(p, _gpu(p)).tflops)


on_change(choose.cache_clear)


def contenders(p: Problem) -> tuple[str, ...]:
    """Return the backends that could be the fastest, the present choice first.

    `torch`, which has no kernels of its own, is one of them only where nothing else can.
    """
    choice = choose(p)
    able = [n for n, b in BACKENDS.items() if b.automatic and n not in choice.refusals]
    able = [n for n in able if n != "torch"] or able
    rates = choice.tflops
    least = POSSIBLE * max((rates[n] for n in able if n in rates), default=0.0)
    possible = [n for n in able if rates.get(n, least) >= least]
    return tuple(sorted(possible, key=lambda n: n != choice.backend))


def _choose_fastest(p: Problem, refusals: dict[str, Text]) -> GemmChoice:
    """Choose the fastest of the measured backends, or else the first in the order of preference.

    cuBLAS comes first where nothing is measured, and torch last: with FP8 it would emulate.
    """
    able = [n for n, b in BACKENDS.items() if b.automatic and n not in refusals]
    lesson = None if p.deterministic else LEARNED.find(p.device, "forward", p.spot)
    if lesson is not None:
        ranked = sorted((n for n in able if n in lesson.costs), key=lesson.costs.__getitem__)
        if ranked:
            why = phrase("auto: {sub}", sub=lesson.reason(ranked))
            return GemmChoice(ranked[0], why, refusals, lesson.tflops, "measured here")
    near = table.find_measured(p, _gpu(p))
    ranked = sorted((n for n in able if n in near.tflops), key=lambda n: -near.tflops[n])
    if ranked:
        why = phrase("auto: {sub}", sub=explain_rates([near.gpu], near.tflops, ranked, near.exact))
        basis: Basis = "measured" if near.exact else "predicted"
        return GemmChoice(ranked[0], why, refusals, near.tflops, basis)
    name = next(n for n in ("cublas", "triton", "torch", "hopper") if n in able)
    reasons = [phrase("not measured on this GPU"), phrase("the first that can")]
    if name == "torch":
        reasons = [phrase("no kernel runs here"), *([EMULATED] if p.dtype in FP8 else [])]
    return GemmChoice(name, phrase("auto: {sub}", sub=join_texts(reasons)), refusals, {}, "order")


def _gpu(p: Problem) -> str | None:
    if p.device.type != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_name(p.device)
