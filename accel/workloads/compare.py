"""Compare backends side by side, of attention or another operation.

Run `python -P -m gpudeck.accel.workloads.compare --seq=512,16384 --backends=auto,flash,cudnn ...`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpudeck.accel.result import Cell, Direction
from gpudeck.accel.workloads.grid import directions, shapes
from gpudeck.accel.workloads.harness import Outcome, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Compare the backends on one problem after the other."""
    if values.text("operation") != "attention":
        from gpudeck.accel.workloads.operations import compared

        return compared(values, device, progress)
    return survey(
        values,
        device,
        progress,
        directions(values.text("direction")),
        with_power=values.flag("power"),
    )


def survey(
    values: Values,
    device: ComputeDevice,
    progress: Progress,
    passes: tuple[Direction, ...],
    *,
    with_power: bool,
) -> Outcome:
    """Measure every shape of the parameters, in these directions, by all named backends."""
    from gpudeck.accel.workloads.contest import POWER_S, contest
    from gpudeck.accel.workloads.headline import TimedLoop, headline, limit

    names, seconds = values.several("backends"), values.number("seconds")
    posed = [(shape, direction) for direction in passes for shape in shapes(values.given)]
    limit(len(posed) * len(names))
    each = (len(names) + 1) * seconds + (len(names) * POWER_S if with_power else 0.0)
    progress.plan(each * len(posed))
    cells: list[Cell] = []
    loops: list[TimedLoop] = []
    for i, (shape, direction) in enumerate(posed):
        mask = ", causal" if shape.causal else ""
        progress.stage(
            f"{i + 1} of {len(posed)}: {direction}, head size {shape.head_dim},"
            f" sequence {shape.seq}{mask}",
            begins=i * each,
        )
        new, loop = contest(
            shape,
            direction,
            names,
            device,
            seconds=seconds,
            with_power=with_power,
            seed=i,
            report=progress.advance,
        )
        cells += new
        loops += loop
    return headline(tuple(cells), loops)


if __name__ == "__main__":
    sys.exit(serve("compare", work))
