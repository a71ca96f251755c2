"""Describe the Result of a workload: what ran, on which device, how fast, and how correct it was.

The module needs no torch, and a Result is written atomically.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpudeck.language.text import Message, Number, Text, join_texts, phrase

Direction = Literal["forward", "backward"]
Passes = Literal["forward", "backward", "both"]


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The milliseconds of one call, over `count` calls; all are 0 if a failed check prevented
    timing."""

    median: float
    p50: float
    p95: float
    p99: float
    minimum: float
    maximum: float
    count: int
    p5: float = 0.0
    """The 5th percentile; 0 in Results that were written before it was recorded."""


NOT_TIMED = Timing(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """A comparison with the float64 reference: ||out - ref|| / ||ref|| and its bound."""

    name: Message
    error: float
    """A finite number, as JSON has no others; an output that is not finite gets a check of its own.
    """
    bound: float
    answer: str = ""
    """Which of several answers was compared."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.error):
            raise ValueError(
                f"{self.name} is {self.error}, which a Result cannot hold: check for finite output"
                " first"
            )

    @property
    def passed(self) -> bool:
        return self.error <= self.bound

    @property
    def fault(self) -> Text:
        """Return what is wrong if it has not passed."""
        return phrase(
            "{sub} is {used}, above the bound {less}",
            sub=self.name,
            used=Number(self.error, ".3g"),
            less=Number(self.bound, ".3g"),
        )


def not_finite(share: float) -> Check:
    """Return the check of an answer with this share of elements that are not finite."""
    return Check(phrase("share of elements that are not finite"), share, 0.0)


class Sensors(msgspec.Struct, frozen=True, omit_defaults=True):
    """The averages of the device's sensors while calls were timed.

    A value that could not be read is None, and `absent` gives the reason.
    """

    sm_mhz: float | None = None
    """The clock of the multiprocessors, as the driver reports it."""
    watts: float | None = None
    celsius: float | None = None
    joules_per_tflop: float | None = None
    """The energy of the whole card for 10¹² floating-point operations of the timed work."""
    absent: Message = ""
    true_mhz: float | None = None
    """The clock of the multiprocessors, as a kernel beside the work measured it."""


NO_SENSORS = Sensors()


class Trials(msgspec.Struct, frozen=True):
    """The errors of many trials with fresh inputs, each divided by its bound: above 1 a trial
    failed."""

    count: int
    failed: int
    p50: float
    p95: float
    p99: float
    worst: float
    """A finite number; an output that is not finite counts as `BROKEN`."""
    worst_seed: int
    """The seed that replays the worst trial."""


BROKEN = 1e30
"""Stands for the error of an output that is not finite, in units of its bound."""


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem of a grid, in one direction, by one contender.

    The fields of sizes are those of attention; another operation says its own in `sizes`.
    """

    batch: int
    heads: int
    kv_heads: int
    seq: int
    """The number of queries, and of keys, in a sequence."""
    head_dim: int
    causal: bool
    dtype: str
    direction: Passes
    contender: str
    """The backend that was requested: a name, or `auto`."""
    backend: str = ""
    """The backend that ran; empty if none did."""
    note: Message = ""
    """Why nothing was measured, or else why this backend ran."""
    timing: Timing = NOT_TIMED
    flops: float = 0.0
    """The number of floating-point operations of one call."""
    moved: float = 0.0
    """The least number of bytes a call must move: every input once and every output once."""
    tflops: float = 0.0
    """`flops` divided by the median time and 1e12; 0 if nothing was timed."""
    checks: tuple[Check, ...] = ()
    """For each answer the one that is nearest to its bound."""
    error: float = 0.0
    """The largest relative error of an answer, ||out - ref|| / ||ref||; 0 if none was checked."""
    trials: Trials | None = None
    sensors: Sensors = NO_SENSORS
    twin: float = 0.0
    """The speed of the same contender, measured a second time in the same turns, over its own: the
    distance from 1 is what order and noise alone do to a ratio. 0 if it took part once."""
    operation: str = "attention"
    sizes: Message = ""
    """The sizes of a problem that is not attention, as people read them."""
    form: str = ""
    """What else tells such a problem apart: the kind of linear attention, or the factors' type."""

    @property
    def passed(self) -> bool:
        """Return True if the problem ran and every check held."""
        return (
            bool(self.backend)
            and all(c.passed for c in self.checks)
            and not (self.trials and self.trials.failed)
        )


class Curve(msgspec.Struct, frozen=True):
    """What a run measured at its steps."""

    name: Message
    steps: tuple[int, ...]
    values: tuple[float, ...]
    unit: str = ""


class Figure(msgspec.Struct, frozen=True):
    """A number that a run measured, which no other field of a Result holds."""

    name: Message
    value: float
    unit: str = ""


def twins(cells: Iterable[Cell]) -> Text | None:
    """Return what the same contender measured twice says about the ratios of other contenders.

    None if none took part twice.
    """
    found = [cell.twin for cell in cells if cell.twin]
    if not found:
        return None
    mean = math.exp(sum(map(math.log, found)) / len(found))
    return phrase(
        "the same kernel twice: {mean} ({low} to {high})",
        mean=Number(mean, ".3f"),
        low=Number(min(found), ".3f"),
        high=Number(max(found), ".3f"),
    )


PASS = phrase("pass")


def verdict_of(faults: Sequence[Message]) -> Text:
    """Return the verdict of a run with these faults."""
    return phrase("fail: {sub}", sub=join_texts(faults)) if faults else PASS


class Result(msgspec.Struct, frozen=True):
    """What a workload measured. Its texts are values; older Results have them in English."""

    workload: str
    device: str
    """The device it ran on, e.g. "NVIDIA H100 80GB HBM3" or "CPU: AMD EPYC, 2 threads"."""
    backend: str
    """The backend that really ran, never merely the requested one."""
    reason: Message
    """Why this backend ran: it was named by the user, or how `auto` chose it."""
    params: dict[str, str | int | float | bool]
    verdict: Message
    """As `verdict_of` makes it."""
    checks: tuple[Check, ...]
    timing: Timing
    flops: float
    """The floating-point operations of one call, counted as `gpudeck.accel.runtime.timing`
    describes."""
    tflops: float
    """flops / median time / 1e12."""
    sustained_tflops: float
    """All counted FLOPs of the timed loop over its wall time and 1e12: what a monitor should show
    then."""
    sustained_from: float
    """The start and the end of that loop, in seconds since the epoch."""
    sustained_to: float
    versions: dict[str, str]
    started: float
    ended: float
    bandwidth: float = 0.0
    """The bytes read and written a second at the median time; 0 if the workload does not measure
    memory."""
    sensors: Sensors = NO_SENSORS
    """The sensors during the timed loop."""
    cells: tuple[Cell, ...] = ()
    """The problems that were measured, if they have sizes; the fields above then describe the
    fastest."""
    curves: tuple[Curve, ...] = ()
    """What was measured at each step of a training run."""
    figures: tuple[Figure, ...] = ()

    @property
    def passed(self) -> bool:
        """Report if the verdict is a pass."""
        return self.verdict in (PASS, str(PASS))  # the latter in older Results


def write(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the Result as JSON, completely or not at all."""
    file = Path(path)
    new = file.with_name(file.name + ".new")
    with new.open("wb") as f:
        f.write(msgspec.json.encode(result))
        f.flush()
        os.fsync(f.fileno())
    new.replace(file)


def read(data: bytes) -> Result:
    """Decode and validate a Result.

    Raises:
        msgspec.ValidationError: if the data is not a Result.
    """
    return msgspec.json.decode(data, type=Result)


_MALFORMED = (ValueError, RecursionError)


class _Figures(msgspec.Struct):
    """The part of a Result that holds its figures."""

    figures: tuple[Figure, ...] = ()


def numbers_in(data: bytes) -> dict[str, float]:
    """Return the numbers that a job left in its result by name, first the figures of a Result, such
    as the last loss; nothing if it is no JSON object."""
    try:
        members = msgspec.json.decode(data, type=dict[str, Any])
    except _MALFORMED:
        return {}
    try:
        figures = msgspec.json.decode(data, type=_Figures).figures
    except _MALFORMED:  # a result of another program
        figures = ()
    return {str(figure.name): figure.value for figure in figures} | {
        name: float(value)
        for name, value in members.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
        if abs(value) <= sys.float_info.max  # JSON writes whole numbers of any size
    }
