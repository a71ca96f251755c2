"""Summarise a grid: the fastest cell, the checks nearest to their bounds, and failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudeck.accel.result import Cell
from gpudeck.accel.workloads.catalog import FP8
from gpudeck.accel.workloads.check import nearest
from gpudeck.accel.workloads.grid import MOST_CELLS
from gpudeck.accel.workloads.harness import Outcome
from gpudeck.accel.workloads.task import rate
from gpudeck.language.text import Message, Value, joined, phrase


@dataclass(frozen=True)
class TimedLoop:
    """Record when a loop ran (seconds since the epoch), how long, and its FLOPs."""

    started: float
    ended: float
    wall_s: float
    flops: float


def limit(count: int) -> None:
    """Raise ValueError if this many cells do not fit into a Result."""
    if count > MOST_CELLS:
        raise ValueError(
            f"these parameters span {count} cells, and one job measures up to {MOST_CELLS}:"
            " list fewer values"
        )


def headline(
    cells: tuple[Cell, ...], stretches: Sequence[TimedLoop], failures: tuple[Message, ...] = ()
) -> Outcome:
    """Return the summary of the fastest cell; one in FP8 is never compared with exacter ones.

    Raises:
        ValueError: with the first cell's note, if no backend could run.
    """
    ran = [cell for cell in cells if cell.backend]
    if not ran:
        raise ValueError(cells[0].note)
    best = max(ran, key=lambda cell: (cell.passed, cell.contender not in FP8, cell.tflops))
    wrong = [cell for cell in ran if not cell.passed]
    if wrong and len(cells) > 1:
        failures = (
            *failures,
            phrase(
                "{n} of {limit} cells were wrong, first {name} at {rest}",
                n=len(wrong),
                limit=len(cells),
                name=wrong[0].contender,
                rest=_named(wrong[0]),
            ),
        )
    return Outcome(
        backend=best.backend,
        reason=best.note
        if len(cells) == 1
        else phrase("the fastest of {n} cells: {rest}", n=len(cells), rest=_named(best)),
        checks=nearest(tuple(check for cell in ran for check in cell.checks)),
        timing=best.timing,
        flops=best.flops,
        sustained_tflops=rate(sum(s.flops for s in stretches), sum(s.wall_s for s in stretches))
        / 1e12,
        sustained_from=min((s.started for s in stretches), default=0.0),
        sustained_to=max((s.ended for s in stretches), default=0.0),
        sensors=best.sensors,
        cells=cells,
        failures=failures,
    )


def _named(cell: Cell) -> Value:
    if cell.sizes:
        return joined((cell.sizes, cell.dtype))
    backward = cell.direction == "backward"
    parts = [
        phrase("backward") if backward else phrase("forward"),
        phrase("head size {n}", n=cell.head_dim),
        phrase("sequence {n}", n=cell.seq),
    ]
    return joined([*parts, phrase("causal")] if cell.causal else parts)
