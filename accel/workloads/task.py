"""Time one computation."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gpudeck.accel.result import Cell, Check, Sensors
from gpudeck.accel.workloads.progress import Progress, warm_up
from gpudeck.language.text import Text, join_texts

if TYPE_CHECKING:
    from gpudeck.accel.runtime.capability import ComputeDevice
    from gpudeck.accel.runtime.sm_clock import ClockWatch
    from gpudeck.accel.runtime.timing import Measurement


@dataclass(frozen=True)
class Task:
    """Describe a computation that is ready to run."""

    backend: str
    reason: Text
    call: Callable[[], object]
    check: Callable[[], tuple[Check, ...]]
    """Runs once and compares the answer."""
    flops: float = 0.0
    """The operations of one call."""
    moved: float = 0.0
    """The bytes read and written by one call, if the workload measures memory."""
    cell: Cell | None = None
    """The problem with its sizes, operations and bytes, if it belongs in charts."""
    detail: Callable[[], str] = str
    """Tells more about the last call, for people who watch."""


def timed(
    task: Task,
    device: ComputeDevice,
    progress: Progress,
    seconds: float,
    *,
    label: str = "",
    begins: float = 0.0,
) -> TimedTask:
    """Warm up, then time the Task, which was called once before to check it.

    Args:
        task: the computation.
        device: the device that it runs on.
        progress: receives the progress.
        seconds: the time of the loop.
        label: precedes the names of the stages.
        begins: how much of the plan is done.
    """
    from gpudeck.accel.runtime.power import SensorWatch
    from gpudeck.accel.runtime.timing import measure

    def report(elapsed: float, calls: int) -> None:
        progress.advance(elapsed, calls * task.flops, task.detail())

    progress.stage(f"{label}warming up", begins=begins, flops_before=task.flops)
    measure(task.call, warm_up(seconds), device.torch_device, report)
    progress.stage(f"{label}timing", begins=begins + warm_up(seconds))
    with _true_clock(device, seconds) as clock, SensorWatch(device.torch_device) as watch:
        measured = measure(task.call, seconds, device.torch_device, report)
    sustained = rate(task.flops * measured.timing.count, measured.wall_s) / 1e12
    sensors = watch.sensors(sustained)
    if clock is not None:
        absent = [why for why in (sensors.absent, clock.absent) if why]
        why = join_texts(absent) if absent else ""
        sensors = msgspec.structs.replace(sensors, true_mhz=clock.mhz, absent=why)
    return TimedTask(measured, sustained, sensors)


def _true_clock(device: ComputeDevice, seconds: float) -> AbstractContextManager[ClockWatch | None]:
    if device.kind != "cuda":
        return nullcontext()
    from gpudeck.accel.runtime.sm_clock import ClockWatch  # Triton, which a CPU does without

    return ClockWatch(device.torch_device, seconds)


@dataclass(frozen=True)
class TimedTask:
    """Hold the measurements of a Task."""

    loop: Measurement
    sustained_tflops: float
    sensors: Sensors


def rate(amount: float, seconds: float) -> float:
    """Return the amount per second, 0 if no time passed."""
    return amount / seconds if seconds > 0 else 0.0
