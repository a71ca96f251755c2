"""Measure attention by one backend, on one problem or a grid.

Run `python -P -m gpudeck.accel.workloads.attention --seq=512,16384 ...`; the parameters are in the
catalog.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from gpudeck.accel.result import Cell
from gpudeck.accel.workloads.grid import directions, shapes
from gpudeck.accel.workloads.harness import Outcome, OutOfMemory, serve
from gpudeck.accel.workloads.options import Values
from gpudeck.accel.workloads.progress import Progress, warm_up
from gpudeck.accel.workloads.task import Task, rate, timed
from gpudeck.language.text import message_of

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.workloads.contender import Contender
    from gpudeck.accel.workloads.headline import TimedLoop


def work(values: Values, device: ComputeDevice, progress: Progress) -> Outcome:
    """Check, warm up and time one problem after the other."""
    from gpudeck.accel.workloads.contender import enter, pose
    from gpudeck.accel.workloads.headline import headline, limit

    seconds, backend = values.number("seconds"), values.text("backend")
    each = seconds + warm_up(seconds)
    posed = [
        (shape, direction)
        for direction in directions(values.text("direction"))
        for shape in shapes(values.given)
    ]
    limit(len(posed))
    progress.plan(each * len(posed))
    cells: list[Cell] = []
    loops: list[TimedLoop] = []
    for i, (shape, direction) in enumerate(posed):
        label = f"{i + 1} of {len(posed)}: " if len(posed) > 1 else ""
        try:
            case = pose(shape, direction, device, seed=i)
            contender = enter(backend, case, device)
        except (ValueError, OutOfMemory) as e:
            if len(posed) == 1:
                raise
            cells.append(
                msgspec.structs.replace(shape.cell(direction, backend), note=message_of(e))
            )
            continue
        progress.stage(f"{label}checking", begins=i * each)
        cell, loop = _measure(contender, device, progress, seconds, label, i * each)
        cells.append(cell)
        loops += loop
        del case, contender  # to free their memory for the next problem
    return headline(tuple(cells), loops)


def _measure(
    contender: Contender,
    device: ComputeDevice,
    progress: Progress,
    seconds: float,
    label: str,
    begins: float,
) -> tuple[Cell, list[TimedLoop]]:
    """Return the cell, and the timed loop if the answers were right."""
    from gpudeck.accel.workloads.check import Oracle
    from gpudeck.accel.workloads.headline import TimedLoop

    case = contender.case
    empty = case.shape.cell(case.direction, contender.name)
    ran = msgspec.structs.replace(empty, backend=contender.backend, note=contender.reason)
    cell = contender.checked(ran, Oracle(case.sets[0], case.shape, case.direction))
    if not cell.passed:
        return cell, []
    task = Task(
        contender.backend, contender.reason, contender.call(), lambda: cell.checks, cell.flops
    )
    m = timed(task, device, progress, seconds, label=label, begins=begins)
    timing = m.loop.timing
    cell = msgspec.structs.replace(
        cell, timing=timing, tflops=rate(cell.flops, timing.median / 1e3) / 1e12, sensors=m.sensors
    )
    return cell, [TimedLoop(m.loop.started, m.loop.ended, m.loop.wall_s, cell.flops * timing.count)]


if __name__ == "__main__":
    sys.exit(serve("attention", work))
