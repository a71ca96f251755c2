"""Measure attention on this machine, so that `auto` chooses by these measurements.

Run `python -P -m gpudeck.accel.workloads.tune`.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gpudeck.accel.result import Cell
from gpudeck.accel.workloads.compare import survey
from gpudeck.accel.workloads.harness import Outcome, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress
from gpudeck.language.text import join_texts, phrase

if TYPE_CHECKING:
    from gpudeck.accel.attention.table import Row
    from gpudeck.accel.runtime.capability import ComputeDevice

_RECORDED = ("torch", "cudnn", "triton", "driver")


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Compare forward and backward, then write the table that dispatch reads."""
    from gpudeck.accel.attention import table
    from gpudeck.accel.runtime.capability import versions

    outcome = survey(values, device, progress, ("forward", "backward"), with_power=False)
    software = ", ".join(
        f"{name} {version}" for name, version in versions().items() if name in _RECORDED
    )
    found = tuple(rows(outcome.cells, device.name, software, time.strftime("%Y-%m-%d")))
    file = table.record(found)
    return dataclasses.replace(
        outcome,
        reason=join_texts(
            (
                outcome.reason,
                phrase("{n} measurements written to {file}", n=len(found), file=str(file)),
            )
        ),
    )


def rows(cells: tuple[Cell, ...], gpu: str, versions: str, date: str) -> Iterator[Row]:
    """Yield the rows of the table for cells that were timed and right."""
    from gpudeck.accel.attention.table import Row

    for c in cells:
        if not (c.passed and c.tflops):
            continue
        median, low, high = (1e3 * ms for ms in (c.timing.median, c.timing.p5, c.timing.p95))
        shape = (c.dtype, c.head_dim, c.causal, c.batch, c.heads, c.kv_heads, c.seq, c.seq)
        yield Row(gpu, c.direction, *shape, c.backend, median, low, high, c.tflops, versions, date)


if __name__ == "__main__":
    sys.exit(serve("tune", work))
