"""Compute the roofline of a device, and where the cells of a Result lie below it.

The attainable rate is min(peak rate, bandwidth x arithmetic intensity). Both ceilings are those
that the workloads `gemm` and `copy` measured on this device; the data sheet's stand in for what was
not measured, and are called that. A cell that is faster than the matrix product raises the roof.

Source: Williams, Waterman and Patterson, "Roofline", CACM 2009.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.accel.result import Result
from gpudeck.accel.runtime.peaks import peak_bandwidth, peak_tflops
from gpudeck.accel.workloads.catalog import FP8
from gpudeck.app.format.values import precise
from gpudeck.app.language.texts import tr
from gpudeck.app.workloads import cells as c


@dataclass(frozen=True)
class RooflinePoint:
    """One cell below the roof."""

    contender: str
    intensity: float
    """FLOP a byte that must be moved at least."""
    tflops: float
    tooltip: str


@dataclass(frozen=True)
class Roofline:
    """The points and both ceilings."""

    points: tuple[RooflinePoint, ...]
    peak: float
    """TFLOP/s; 0 if it is not known."""
    bandwidth: float
    """Bytes a second; 0 if it is not known."""
    peak_label: str
    slope_label: str
    missing: tuple[str, ...]
    """Ceilings that are not known, with advice."""
    unmeasured: tuple[str, ...]
    """The workloads that would measure what the data sheet stands in for."""
    x: tuple[float, float]
    y: tuple[float, float]
    """The ranges of both axes."""


MEASURED = ("bfloat16", "float16", "float32", "fp8")
"""The data types that the workload `gemm` measures; the scales of FP8 may be any."""
_MANY = 3000.0
_ROUNDING = 1e-9


def roofline(result: Result, others: Iterable[Result], contender: str, direction: str) -> Roofline:
    """Compute the roofline for the cells of one contender.

    Args:
        others: Results that may hold the ceilings, newest first.
    """
    shown = [x for x in c.chosen_cells(result.cells, contender, direction) if x.tflops and x.moved]
    points = tuple(
        RooflinePoint(x.contender, x.flops / x.moved, x.tflops, c.describe(x)) for x in shown
    )
    dtype, operation = next(((x.dtype, x.operation) for x in result.cells), ("", ""))
    exact = [x.tflops for x in result.cells if x.contender not in FP8]
    if contender in FP8:
        dtype, exact = "fp8", []
    near = [r for r in others if r.device == result.device and r.passed]
    # a matrix product is no ceiling of itself
    near_products = (r for r in near if r.workload == "gemm" and operation != "gemm")
    gemm = next((r for r in near_products if _kind(r.params.get("dtype")) == dtype), None)
    copy = next((r for r in near if r.workload == "copy"), None)
    peak, source = peak_tflops(result.device, dtype) or 0.0, tr("data sheet")
    if gemm:
        fastest = max(exact, default=0.0)
        peak, source = max((gemm.tflops, tr("matrix product")), (fastest, tr("highest measured")))
    bandwidth = copy.bandwidth if copy else peak_bandwidth(result.device) or 0.0
    missing = []
    if not peak:
        missing.append(
            tr("the peak of this device in {dtype} is not known", dtype=dtype)
            if operation == "gemm" or dtype not in MEASURED
            else tr(
                "no matrix product in {dtype} was measured on this device; run Matrix product",
                dtype=dtype,
            )
        )
    if not bandwidth:
        missing.append(tr("no copy was measured on this device; run Memory copy"))
    stands_in = {
        "Matrix product": gemm is None and peak and operation != "gemm" and dtype in MEASURED,
        "Memory copy": copy is None and bandwidth,
    }
    knee = [peak * 1e12 / bandwidth] if peak and bandwidth else []
    return Roofline(
        points,
        peak,
        bandwidth,
        _labelled(source, peak, "TFLOP/s"),
        _labelled(tr("memory") if copy else tr("data sheet"), bandwidth / 1e9, "GB/s"),
        tuple(missing),
        tuple(name for name, it_does in stands_in.items() if it_does),
        _round_range([*(p.intensity for p in points), *knee], room=2.0),
        _round_range([*(p.tflops for p in points), *([peak] if peak else [])], room=1.25),
    )


def _kind(dtype: object) -> str:
    """Return a data type of the workload `gemm` without what shares a scale."""
    return str(dtype).partition("-")[0]


def _labelled(source: str, rate: float, unit: str) -> str:
    return f"{source} {precise(rate)} {unit}" if rate else ""


def attainable(intensity: float, made: Roofline) -> float:
    """Return the highest TFLOP/s below both ceilings; infinity if none was measured."""
    bounds = [made.peak] if made.peak else []
    bounds += [made.bandwidth * intensity / 1e12] if made.bandwidth else []
    return min(bounds, default=math.inf)


def ticks(low: float, high: float) -> tuple[float, ...]:
    """Return powers of ten from `low` to `high`, with 2 and 5 times them if there are few."""
    steps = (1, 2, 5) if high / low < _MANY else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = (step * 10.0**power for power in range(first, last + 1) for step in steps)
    return tuple(at for at in every if low * (1 - _ROUNDING) <= at <= high * (1 + _ROUNDING))


def _round_range(values: Sequence[float], room: float) -> tuple[float, float]:
    """Return a round range around all values.

    Args:
        room: The factor by which the range exceeds the outermost values.
    """
    if not values:
        return 1.0, 1000.0
    low, high = _round(min(values) / room, up=False), _round(max(values) * room, up=True)
    return low, max(high, 5 * low)


def _round(value: float, *, up: bool) -> float:
    """Return the nearest of 1, 2 and 5 times a power of ten, above or below."""
    power = 10.0 ** math.floor(math.log10(value))
    around = [power, 2 * power, 5 * power, 10 * power]
    if up:
        return next(x for x in around if x >= value)
    return next(x for x in reversed(around) if x <= value)
