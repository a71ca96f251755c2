"""Check backends on one problem, then time them in turns.

The first contender takes part twice, as two that are captured separately: the ratio of the two is
what order and noise make of 1, and stands beside the ratios to others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import torch

from gpudeck.accel.result import Cell, Check, Direction, Sensors
from gpudeck.accel.runtime import power
from gpudeck.accel.runtime.capability import ComputeDevice
from gpudeck.accel.runtime.timing import Measurement, measure, measure_in_turn, timing_of
from gpudeck.accel.workloads.check import Oracle
from gpudeck.accel.workloads.contender import Case, enter, pose, refusal
from gpudeck.accel.workloads.grid import Shape
from gpudeck.accel.workloads.harness import OutOfMemory
from gpudeck.accel.workloads.headline import TimedLoop
from gpudeck.accel.workloads.task import rate
from gpudeck.language.text import message_of, phrase

POWER_S = power.POWER_AVERAGE_S + 1.0
"""The time for which a contender runs alone to read its power."""
_WARM_UP_CALLS = 3

Report = Callable[[float, float], None]
"""Called with the seconds and FLOPs since the timing of the problem began."""


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
) -> tuple[list[Cell], list[TimedLoop]]:
    """Return a cell for each name, measured or with the reason why not, and the timed loop if
    any."""
    empty = {name: shape.cell(direction, name) for name in names}
    try:
        case = pose(shape, direction, device, seed)
    except OutOfMemory as e:
        return [msgspec.structs.replace(cell, note=message_of(e)) for cell in empty.values()], []
    oracle = Oracle(case.sets[0], shape, direction)
    cells = {name: _checked(cell, case, oracle, device) for name, cell in empty.items()}
    ready: dict[str, Callable[[], object]] = {}
    sets = 1
    for name, cell in cells.items():
        if cell.backend and cell.passed:
            try:
                ready[name], sets = enter(name, case, device).several()
            except RuntimeError as e:
                cells[name] = _failed(cell, e)
    if not ready:
        return list(cells.values()), []
    first = next(iter(ready))
    again, _ = enter(first, case, device).several()
    meter = _LoopMeter(report, sets * shape.flops(direction))
    loops, sensors = _timed([*ready.values(), again], device, seconds, meter.add)
    meter.next_loop()
    stretch = TimedLoop(loops[0].started, loops[0].ended, meter.elapsed, meter.calls * meter.flops)
    timings = [timing_of([ms / sets for ms in loop.samples_ms]) for loop in loops]
    for name, timing, sensed in zip(ready, timings, sensors, strict=False):
        found = _alone(ready[name], device, meter, sensed) if with_power else sensed
        tflops = rate(shape.flops(direction), timing.median / 1e3) / 1e12
        cells[name] = msgspec.structs.replace(
            cells[name], timing=timing, tflops=tflops, sensors=found
        )
    cells[first] = msgspec.structs.replace(
        cells[first], twin=rate(timings[0].median, timings[-1].median)
    )
    return list(cells.values()), [stretch]


class _LoopMeter:
    """Add up what several loops report, each from its own beginning."""

    def __init__(self, report: Report, flops: float) -> None:
        self._report, self.flops = report, flops
        self.elapsed, self.calls = 0.0, 0
        self._last = 0.0, 0

    def add(self, elapsed: float, calls: int) -> None:
        self._last = elapsed, calls
        self._report(self.elapsed + elapsed, (self.calls + calls) * self.flops)

    def next_loop(self) -> None:
        """Begin the next loop."""
        self.elapsed, self.calls = self.elapsed + self._last[0], self.calls + self._last[1]
        self._last = 0.0, 0


def _checked(cell: Cell, case: Case, oracle: Oracle, device: ComputeDevice) -> Cell:
    """Return the cell after a warm-up and the checks.

    A refused problem leaves a note; an error after acceptance makes the cell fail.
    """
    name = cell.contender
    why = None if name == "auto" else refusal(case.problem, name, case.direction)
    if why is not None:
        return msgspec.structs.replace(
            cell, note=phrase("cannot do this: it {problem}", problem=why)
        )
    try:
        contender = enter(name, case, device)
    except OutOfMemory as e:
        return msgspec.structs.replace(cell, note=message_of(e))
    ran = msgspec.structs.replace(cell, backend=contender.backend, note=contender.reason)
    try:
        call = contender.call()
        for _ in range(_WARM_UP_CALLS):
            call()
        return contender.checked(ran, oracle)
    except torch.OutOfMemoryError:
        return msgspec.structs.replace(cell, note=phrase("ran out of memory"))
    except Exception as e:  # noqa: BLE001 - an error of one backend must not end the others
        return _failed(ran, e)


def _failed(cell: Cell, error: Exception) -> Cell:
    message = str(error).partition("\n")[0] or type(error).__name__
    return msgspec.structs.replace(
        cell,
        note=phrase("failed: {problem}", problem=message),
        checks=(Check(phrase("raised an error"), 1.0, 0.0),),
    )


def _timed(
    calls: list[Callable[[], object]],
    device: ComputeDevice,
    seconds: float,
    report: Callable[[float, int], None],
) -> tuple[tuple[Measurement, ...], list[Sensors]]:
    """Time the calls in turns; return clock and temperature during each one's calls, too."""
    readings: list[list[power.SensorReading]] = [[] for _ in calls]

    def during(i: int) -> None:
        if device.kind == "cuda":
            readings[i].append(power.read(device.torch_device))

    loops = measure_in_turn(calls, seconds, device.torch_device, report, during)
    return loops, [power.in_turn(found, device.torch_device) for found in readings]


def _alone(
    call: Callable[[], object], device: ComputeDevice, meter: _LoopMeter, sensed: Sensors
) -> Sensors:
    """Return the sensors with the power of a contender that runs alone, long enough to read it."""
    with power.SensorWatch(device.torch_device) as watch:
        loop = measure(call, POWER_S, device.torch_device, meter.add)
    meter.next_loop()
    alone = watch.sensors(rate(meter.flops * loop.timing.count, loop.wall_s) / 1e12)
    return msgspec.structs.replace(
        sensed, watts=alone.watts, joules_per_tflop=alone.joules_per_tflop, absent=alone.absent
    )
