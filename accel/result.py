"""The Result of a workload: what ran, on what, how fast, how right. Torch-free, written atomically."""

from __future__ import annotations

import math
import os
from pathlib import Path

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds of one call, over `count` calls; all 0 where a failed check left nothing worth timing."""

    median: float
    p50: float
    p95: float
    p99: float
    minimum: float
    maximum: float
    count: int


class Check(msgspec.Struct, frozen=True):
    """Comparison with the float64 reference: ||out - ref|| / ||ref||, and the bound it had to keep."""

    name: str
    error: float
    """Finite: JSON has no other numbers. An output that is not finite is its own check."""
    bound: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.error):
            raise ValueError(f"{self.name} is {self.error}, which a Result cannot hold: check for finite output first")

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


class Result(msgspec.Struct, frozen=True):
    workload: str
    device: str
    """What it ran on, e.g. "NVIDIA H100 80GB HBM3" or "CPU: AMD EPYC, 2 threads"."""
    backend: str
    """What really ran, never what was asked for."""
    reason: str
    """Why this backend: named by the user, or how `auto` chose it."""
    params: dict[str, str | int | float | bool]
    verdict: str
    """`pass` or `fail`, with the reason after a colon."""
    checks: tuple[Check, ...]
    timing: Timing
    flops: float
    """Floating-point operations of one call, counted as `accel.runtime.timing` says."""
    tflops: float
    """flops / median time / 1e12."""
    sustained_tflops: float
    """All counted FLOPs of the timed loop over its wall time / 1e12: what a monitor should show meanwhile."""
    sustained_from: float
    """Start and end of that loop, seconds since the epoch."""
    sustained_to: float
    versions: dict[str, str]
    started: float
    ended: float
    bandwidth: float = 0.0
    """Bytes read and written a second at the median time; 0 where moving memory is not the point."""


def write(result: Result, path: str | os.PathLike[str]) -> None:
    """Write as JSON: the whole file or none of it."""
    file = Path(path)
    new = file.with_name(file.name + ".new")
    with new.open("wb") as f:
        f.write(msgspec.json.encode(result))
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)


def read(data: bytes) -> Result:
    """Decode and validate. Raises msgspec.ValidationError where it is not a Result."""
    return msgspec.json.decode(data, type=Result)
