"""The Result of a workload: what ran, on what, how fast, how right. Torch-free, written atomically."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

import msgspec

Direction = Literal["forward", "backward"]


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """Milliseconds of one call, over `count` calls; all 0 where a failed check left nothing worth timing."""

    median: float
    p50: float
    p95: float
    p99: float
    minimum: float
    maximum: float
    count: int
    p5: float = 0.0
    """0 in Results from before it was kept."""


NOT_TIMED = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)


class Check(msgspec.Struct, frozen=True):
    """Comparison with the float64 reference: ||out - ref|| / ||ref||, and the bound it had to keep."""

    name: str
    error: float
    """Finite: JSON has no other numbers. An output that is not finite is its own check."""
    bound: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.error):
            raise ValueError(
                f"{self.name} is {self.error}, which a Result cannot hold: check for finite output first"
            )

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


class Sensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the device's sensors said while calls were timed, averaged; None where there is nothing, and `absent` says why."""

    sm_mhz: float | None = None
    """Clock of the multiprocessors."""
    watts: float | None = None
    celsius: float | None = None
    joules_per_tflop: float | None = None
    """Of the whole card, for 10¹² floating-point operations of the work that was timed while its power was read."""
    absent: str = ""


NO_SENSORS = Sensors()


class Trials(msgspec.Struct, frozen=True):
    """Errors of many trials with fresh inputs, each as a share of what it was allowed: above 1 it failed."""

    count: int
    failed: int
    p50: float
    p95: float
    p99: float
    worst: float
    """Finite; an output that is not finite counts as `BROKEN`."""
    worst_seed: int
    """The seed that replays the worst trial."""


BROKEN = 1e30
"""The share of the allowed error that stands for an output that is not finite."""


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attention problem of a grid, in one direction, by one contender."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    """Queries, and keys, a sequence."""
    head_dim: int
    causal: bool
    dtype: str
    direction: Direction
    contender: str
    """What was asked for: a backend's name, or `auto`."""
    backend: str = ""
    """What ran; empty where nothing did."""
    note: str = ""
    """Why nothing was measured; else why this backend ran."""
    timing: Timing = NOT_TIMED
    flops: float = 0.0
    """Floating-point operations of one call."""
    moved: float = 0.0
    """Bytes one call must read and write at least: every input once, every output once."""
    tflops: float = 0.0
    """flops / median time / 1e12; 0 where nothing was timed."""
    checks: tuple[Check, ...] = ()
    trials: Trials | None = None
    sensors: Sensors = NO_SENSORS

    @property
    def passed(self) -> bool:
        """Whether it ran and every check held."""
        return (
            bool(self.backend)
            and all(c.passed for c in self.checks)
            and not (self.trials and self.trials.failed)
        )


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
    sensors: Sensors = NO_SENSORS
    """During the timed loop."""
    cells: tuple[Cell, ...] = ()
    """Of a workload that measures attention, all it measured. What stands above is then its headline: that of the fastest cell."""


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
