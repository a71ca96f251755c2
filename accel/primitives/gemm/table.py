"""Look up how fast each backend was measured near a shape, by GPU.

Shipped tables are CSV files in `measured`; rows of one shape were measured side by side in one run.
"""

from __future__ import annotations

import csv
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpudeck.accel.primitives.gemm.problem import Problem

SHIPPED = Path(__file__).parent / "measured"
REACH = 1.0
"""The distance in octaves, in each of m, n and k, beyond which a measurement is ignored."""
ALIKE = {"NVIDIA H100 80GB HBM3": "NVIDIA H200"}
"""GPUs with the same multiprocessors as one that was measured."""


class Row(msgspec.Struct, frozen=True):
    """The measurement of one backend at one shape."""

    gpu: str
    """The name by the driver."""
    precision: str
    """As `Problem.precision` has it."""
    m: int
    n: int
    k: int
    backend: str
    microseconds: float
    """The median of one call."""
    tflops: float
    versions: str
    date: str


class Nearest(NamedTuple):
    """What was measured at the nearest shape."""

    tflops: dict[str, float]
    """Of each backend; empty if no shape is near."""
    gpu: str = ""
    """Where it was measured."""
    exact: bool = False
    """Whether it is this very shape, on this type of GPU."""


def find_measured(p: Problem, gpu: str | None) -> Nearest:
    """Return the TFLOP/s of each backend at the nearest measured shape.

    Measured were single products of operands with k side by side and without an epilogue.
    """
    if gpu is None or p.batch != 1 or not (p.a_along and p.b_along) or 0 in (p.m, p.n, p.k):
        return Nearest({})
    rows = _rows(gpu, p.precision) or _rows(ALIKE.get(gpu, ""), p.precision)
    at = _place(p.m, p.n, p.k)
    best, found = math.inf, Nearest({})
    for row in rows:
        apart = [abs(x - y) for x, y in zip(at, _place(row.m, row.n, row.k), strict=True)]
        distance = math.hypot(*apart)
        if max(apart) > REACH or distance > best:
            continue
        if distance < best:
            exact = (row.gpu, row.m, row.n, row.k) == (gpu, p.m, p.n, p.k)
            best, found = distance, Nearest({}, row.gpu, exact)
        found.tflops[row.backend] = row.tflops
    return found


def read(file: Path) -> list[Row]:
    """Read the rows of a table.

    Raises:
        ValueError: names the file if it is not such a table.
    """
    try:
        with file.open(newline="") as f:
            return [msgspec.convert(line, Row, strict=False) for line in csv.DictReader(f)]
    except msgspec.ValidationError as e:
        raise ValueError(f"{file}: {e}") from e


@lru_cache(maxsize=64)
def _rows(gpu: str, precision: str) -> tuple[Row, ...]:
    return tuple(row for row in _read_shipped() if (row.gpu, row.precision) == (gpu, precision))


@lru_cache(maxsize=1)
def _read_shipped() -> tuple[Row, ...]:
    return tuple(row for file in sorted(SHIPPED.glob("*.csv")) for row in read(file))


def _place(m: int, n: int, k: int) -> tuple[float, float, float]:
    return math.log2(m), math.log2(n), math.log2(k)
