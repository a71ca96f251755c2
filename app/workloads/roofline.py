"""The roofline of a device: what its matrix units and its memory were measured to reach, and where attention lies below.

After Williams, Waterman and Patterson, "Roofline" (CACM 2009): attainable rate = min(peak rate, bandwidth x arithmetic intensity). Both
ceilings are measurements of this device, by the workloads `gemm` and `copy`; nothing is taken from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accel.result import Result
from app.format.values import precise
from app.workloads import cells as c


@dataclass(frozen=True)
class Point:
    contender: str
    intensity: float
    """FLOP for each byte that must be moved at least."""
    tflops: float
    tooltip: str


@dataclass(frozen=True)
class Roofline:
    points: tuple[Point, ...]
    contenders: tuple[str, ...]
    peak: float
    """TFLOP/s; 0: not measured."""
    bandwidth: float
    """Bytes a second; 0: not measured."""
    peak_label: str
    slope_label: str
    missing: tuple[str, ...]
    """What was not measured, and what to do."""
    x: tuple[float, float]
    y: tuple[float, float]
    """What is shown of the plane."""


def roofline(result: Result, others: Iterable[Result], contender: str, direction: str) -> Roofline:
    """Of the cells of one contender; `others`: results of the same machine, the newest first, among which the ceilings are sought."""
    shown = [x for x in c.chosen(result.cells, contender, direction) if x.tflops and x.moved]
    points = tuple(Point(x.contender, x.flops / x.moved, x.tflops, c.told(x)) for x in shown)
    dtype = next((x.dtype for x in result.cells), "")
    near = [r for r in others if r.device == result.device and r.verdict == "pass"]
    gemm = next((r for r in near if r.workload == "gemm" and r.params.get("dtype") == dtype), None)
    copy = next((r for r in near if r.workload == "copy"), None)
    peak, bandwidth = gemm.tflops if gemm else 0.0, copy.bandwidth if copy else 0.0
    missing = (
        [f"no matrix product in {dtype} was measured on this device: run Matrix product"]
        if gemm is None
        else []
    )
    missing += ["no copy was measured on this device: run Memory copy"] if copy is None else []
    knee = [peak * 1e12 / bandwidth] if gemm and copy else []
    return Roofline(
        points,
        tuple(dict.fromkeys(p.contender for p in points)),
        peak,
        bandwidth,
        f"matrix product {precise(peak)} TFLOP/s" if gemm else "",
        f"memory {precise(bandwidth / 1e9)} GB/s" if copy else "",
        tuple(missing),
        _around([*(p.intensity for p in points), *knee], room=2.0),
        _around([*(p.tflops for p in points), *([peak] if gemm else [])], room=1.25),
    )


def attainable(intensity: float, made: Roofline) -> float:
    """TFLOP/s below both ceilings; infinite where none was measured."""
    bounds = [made.peak] if made.peak else []
    bounds += [made.bandwidth * intensity / 1e12] if made.bandwidth else []
    return min(bounds, default=math.inf)


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Round values from `low` to `high`: powers of ten, and 2 and 5 times them where that is not too many."""
    steps = (1, 2, 5) if high / low < _MANY else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = (step * 10.0**power for power in range(first, last + 1) for step in steps)
    return tuple(at for at in every if low * (1 - _ROUNDING) <= at <= high * (1 + _ROUNDING))


_MANY = 3000.0
_ROUNDING = 1e-9


def _around(values: Sequence[float], room: float) -> tuple[float, float]:
    """Round values around all of these; `room`: by how much the outermost is kept from the edge."""
    if not values:
        return 1.0, 1000.0
    low, high = _round(min(values) / room, up=False), _round(max(values) * room, up=True)
    return low, max(high, 5 * low)


def _round(value: float, *, up: bool) -> float:
    """The nearest of 1, 2 and 5 times a power of ten, above or below."""
    power = 10.0 ** math.floor(math.log10(value))
    around = [power, 2 * power, 5 * power, 10 * power]
    return (
        next(x for x in around if x >= value)
        if up
        else next(x for x in reversed(around) if x <= value)
    )
