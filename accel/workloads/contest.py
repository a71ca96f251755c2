"""Backends against each other on one problem: each checked, then all timed in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import torch

from accel.attention import BACKENDS
from accel.result import Cell, Check, Direction, Sensors
from accel.runtime import power
from accel.runtime.capability import ComputeDevice
from accel.runtime.timing import Measurement, measure, measure_in_turn
from accel.workloads.check import Oracle, nearest
from accel.workloads.contender import Case, enter, pose
from accel.workloads.grid import Shape
from accel.workloads.harness import OutOfMemory
from accel.workloads.headline import Stretch
from accel.workloads.task import rate

POWER_S = power.POWER_AVERAGE_S + 1.0
"""How long a contender runs alone for its power to be read."""
_WARM_UP_CALLS = 3

Report = Callable[[float, float], None]
"""Told seconds since the problem's timing began, and FLOPs since then."""


def contest(
    shape: Shape,
    direction: Direction,
    names: Sequence[str],
    device: ComputeDevice,
    *,
    seconds: float,
    with_power: bool,
    seed: int,
    report: Report,
) -> tuple[list[Cell], list[Stretch]]:
    """A cell for each name, measured or saying why not, and the timed loop where there was one."""
    empty = {name: shape.cell(direction, name) for name in names}
    try:
        case = pose(shape, direction, device, seed)
    except OutOfMemory as e:
        return [msgspec.structs.replace(cell, note=str(e)) for cell in empty.values()], []
    oracle = Oracle(case.sets[0], shape, direction)
    cells = {name: _tried(cell, case, oracle, device) for name, cell in empty.items()}
    ready = {
        name: enter(name, case, device).call()
        for name, cell in cells.items()
        if cell.backend and cell.passed
    }
    if not ready:
        return list(cells.values()), []
    meter = _Meter(report, shape.flops(direction))
    loops, sensors = _timed(list(ready.values()), device, seconds, meter.tell)
    meter.go_on()
    stretch = Stretch(loops[0].started, loops[0].ended, meter.elapsed, meter.calls * meter.flops)
    for name, loop, seen in zip(ready, loops, sensors, strict=True):
        told = _alone(ready[name], device, meter, seen) if with_power else seen
        tflops = rate(meter.flops, loop.timing.median / 1e3) / 1e12
        cells[name] = msgspec.structs.replace(
            cells[name], timing=loop.timing, tflops=tflops, sensors=told
        )
    return list(cells.values()), [stretch]


class _Meter:
    """Adds up what several loops report, each from its own beginning."""

    def __init__(self, report: Report, flops: float) -> None:
        self._report, self.flops = report, flops
        self.elapsed, self.calls = 0.0, 0
        self._last = 0.0, 0

    def tell(self, elapsed: float, calls: int) -> None:
        self._last = elapsed, calls
        self._report(self.elapsed + elapsed, (self.calls + calls) * self.flops)

    def go_on(self) -> None:
        """The next loop begins."""
        self.elapsed, self.calls = self.elapsed + self._last[0], self.calls + self._last[1]
        self._last = 0.0, 0


def _tried(cell: Cell, case: Case, oracle: Oracle, device: ComputeDevice) -> Cell:
    """Warmed up and checked, or why not. What it refuses it was not asked to do; where it fails at what it said it can, the cell fails."""
    refusal = (
        None
        if cell.contender == "auto"
        else BACKENDS[cell.contender].refusal(case.problem, case.direction)
    )
    if refusal is not None:
        return msgspec.structs.replace(cell, note=f"cannot do this: it {refusal}")
    try:
        contender = enter(cell.contender, case, device)
    except OutOfMemory as e:
        return msgspec.structs.replace(cell, note=str(e))
    ran = msgspec.structs.replace(cell, backend=contender.backend, note=contender.reason)
    try:
        call = contender.call()
        for _ in range(_WARM_UP_CALLS):
            call()
        return msgspec.structs.replace(ran, checks=nearest(oracle.hold(contender.answers())))
    except torch.OutOfMemoryError:
        return msgspec.structs.replace(cell, note="ran out of memory")
    except Exception as e:  # noqa: BLE001 - whatever one backend's compiler raises must not end the measurement of the others
        said = str(e).partition("\n")[0] or type(e).__name__
        return msgspec.structs.replace(
            ran, note=f"failed: {said}", checks=(Check("raised an error", 1.0, 0.0),)
        )


def _timed(
    calls: list[Callable[[], object]],
    device: ComputeDevice,
    seconds: float,
    report: Callable[[float, int], None],
) -> tuple[tuple[Measurement, ...], list[Sensors]]:
    """In turn; clock and temperature as read while each one's calls were under way."""
    seen: list[list[power.SensorReading]] = [[] for _ in calls]

    def during(i: int) -> None:
        if device.kind == "cuda":
            seen[i].append(power.read(device.torch_device))

    loops = measure_in_turn(calls, seconds, device.torch_device, report, during)
    return loops, [power.in_turn(readings, device.torch_device) for readings in seen]


def _alone(
    call: Callable[[], object], device: ComputeDevice, meter: _Meter, seen: Sensors
) -> Sensors:
    """With the power it draws when nothing else runs in turn with it, for longer than the card averages over."""
    with power.SensorWatch(device.torch_device) as watch:
        loop = measure(call, POWER_S, device.torch_device, meter.tell)
    meter.go_on()
    told = watch.sensors(rate(meter.flops * loop.timing.count, loop.wall_s) / 1e12)
    return msgspec.structs.replace(
        seen, watts=told.watts, joules_per_tflop=told.joules_per_tflop, absent=told.absent
    )
