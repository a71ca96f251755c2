"""One computation to be timed, and how that is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accel.result import Check, Sensors
from accel.workloads.progress import Progress, warm_up

if TYPE_CHECKING:
    from accel.runtime.capability import ComputeDevice
    from accel.runtime.timing import Measurement


@dataclass(frozen=True)
class Task:
    """A workload made ready: what to call, and what one call is."""

    backend: str
    reason: str
    call: Callable[[], object]
    check: Callable[[], tuple[Check, ...]]
    """Calls once and compares the answer."""
    flops: float = 0.0
    """Of one call."""
    moved: float = 0.0
    """Bytes read and written by one call, where that is the point."""


def timed(
    task: Task,
    device: ComputeDevice,
    progress: Progress,
    seconds: float,
    *,
    label: str = "",
    begins: float = 0.0,
) -> Measured:
    """Warm up, then time the Task for `seconds`, from where `begins` of the plan is done. The Task was called once before, to check it."""
    from accel.runtime.power import SensorWatch
    from accel.runtime.timing import measure

    def report(elapsed: float, calls: int) -> None:
        progress.advance(elapsed, calls * task.flops)

    progress.stage(f"{label}warming up", begins=begins, flops_before=task.flops)
    measure(task.call, warm_up(seconds), device.torch_device, report)
    progress.stage(f"{label}timing", begins=begins + warm_up(seconds))
    with SensorWatch(device.torch_device) as watch:
        measured = measure(task.call, seconds, device.torch_device, report)
    sustained = rate(task.flops * measured.timing.count, measured.wall_s) / 1e12
    return Measured(measured, sustained, watch.sensors(sustained))


@dataclass(frozen=True)
class Measured:
    """What came of timing a Task."""

    loop: Measurement
    sustained_tflops: float
    sensors: Sensors


def rate(amount: float, seconds: float) -> float:
    """0 where no time was taken."""
    return amount / seconds if seconds > 0 else 0.0
