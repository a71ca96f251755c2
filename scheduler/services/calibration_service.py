"""Turn what a calibration job measured into the corrections of its GPUs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from gpudeck.language.text import Message, Text, message_of, phrase
from gpudeck.scheduler.protocol import calibration, paths
from gpudeck.scheduler.protocol.calibration import ClockCalibration, tensor_activity
from gpudeck.scheduler.protocol.calibration_job import MODULE, versions_of
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.protocol.jobs import Done, Job
from gpudeck.scheduler.protocol.snapshot import Columns, label
from gpudeck.scheduler.services import counter_check
from gpudeck.scheduler.services.counter_check import WatchedWork
from gpudeck.scheduler.telemetry.clock_fit import CannotFit, ClockLoad, fit
from gpudeck.scheduler.telemetry.counter_delay import PausedLoad, Share, counter_delay, overlap

FILE = "clocks.json"
"""What it leaves in its folder."""
FIELDS = ("clock_sm", "tensor_hmma", "sm_active", "tflops_gpm")
SETTLE_S = 0.3
"""Left out at the start of a load, while the driver lowers the clocks."""
_LEAST_READINGS = 3


class MeasuredLoad(msgspec.Struct, frozen=True):
    """Hold what one load did and the clocks beside it. Times are seconds since the epoch."""

    name: str
    start: float
    end: float
    flops: float
    busy: tuple[tuple[float, float], ...]
    clocks: tuple[tuple[float, float], ...]


class MeasuredGpu(msgspec.Struct, frozen=True):
    """Hold all loads of one GPU."""

    device: str
    loads: tuple[MeasuredLoad, ...]


_DECODE = msgspec.json.Decoder(tuple[MeasuredGpu, ...]).decode


class Moment(NamedTuple):
    """Hold one stored reading."""

    time: float
    clock: float
    tensor: float
    """The share of cycles in which the tensor pipe was busy, in percent."""
    activity: float
    tflops: float


class CalibrationService:
    """Make and store corrections once a calibration job has ended."""

    def __init__(
        self,
        past: Callable[[str, Sequence[str], float, float, int | None], Awaitable[Columns]],
        devices: Callable[[], Sequence[Device]],
        restart: Callable[[], Awaitable[None]],
        notify: Callable[[Message | None], None],
    ) -> None:
        """Connect the service.

        Args:
            past: Returns the history of a device.
            devices: Returns the devices that there are now.
            restart: Restarts the probe, which reads the corrections when it starts.
            notify: Takes the problem where a calibration failed, and None where one succeeded.
        """
        self._past, self._devices = past, devices
        self._restart, self._notify = restart, notify
        self._tasks: set[asyncio.Task[None]] = set()

    def job_ended(self, job: Job) -> None:
        """Take the measurements of a calibration soon, if it succeeded.

        Another job that counted its operations, or measured its clock, is compared with the
        counters.
        """
        if MODULE in job.spec.argv and isinstance(job.state, Done):
            self._begin(self._take(job.id, job.state.at))
        elif (work := counter_check.watched_work(job)) is not None:
            self._begin(self._check(job, work))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _check(self, job: Job, work: WatchedWork) -> None:
        assert isinstance(job.state, Done)
        device = next((d for d in self._devices() if d.id == job.state.devices[0]), None)
        if device is None:
            return
        since, until = work.sustained_from + counter_check.LEAD_S, work.sustained_to
        past = await self._past(device.id, counter_check.FIELDS, since, until, None)
        if found := counter_check.disagreement(work, past, _in_force(device)):
            self._notify(
                f"while job {job.id} ran, the hardware counters of {label(device)} {found}. "
                "Unless another program ran there, measure its clock: gpudeck calibrate"
            )

    @property
    def busy(self) -> bool:
        """Return True while a calibration is being made, or counters are compared."""
        return bool(self._tasks)

    async def stop(self) -> None:
        """Drop what is not finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take(self, job_id: int, ended: float) -> None:
        try:
            measured = _DECODE((paths.job_folder(job_id) / FILE).read_bytes())
            found = [await self._calibrate(gpu, ended) for gpu in measured]
            calibration.keep(found)
        except (OSError, UserError, CannotFit, *MALFORMED) as e:
            values = (("job", job_id), ("problem", message_of(e)), ("command", "gpudeck calibrate"))
            self._notify(Text(calibration.NOT_KEPT, values))
            return
        self._notify(None)
        await self._restart()

    async def _calibrate(self, gpu: MeasuredGpu, ended: float) -> ClockCalibration:
        device = next((d for d in self._devices() if d.id == gpu.device), None)
        if device is None:
            raise UserError(phrase("the GPU {device} is not there any more", device=gpu.device))
        before = _in_force(device)
        read = []
        for load in gpu.loads:
            # the history is written with the readings, so all of them are in it by now
            past = await self._past(device.id, FIELDS, load.start, load.end + 1, None)
            read.append((load, list(_moments(past))))
        delay = counter_delay([_paused(load, moments) for load, moments in read])
        loads = [compared(load, moments, before, delay) for load, moments in read]
        known = [load for load in loads if load is not None]
        if len(known) < len(loads) / 2:
            raise UserError(
                phrase(
                    "{device} was read too seldom beside the loads, or has no hardware counters",
                    device=label(device),
                )
            )
        return ClockCalibration(device.id, *versions_of(device), ended, fit(known))


def _in_force(device: Device) -> ClockCalibration:
    return calibration.in_force(device.id, device.name, *versions_of(device))


def compared(
    load: MeasuredLoad, moments: Sequence[Moment], before: ClockCalibration, delay: float
) -> ClockLoad | None:
    """Return what the kernel measured compared with NVML, or None where a side is missing.

    Args:
        load: What the job measured.
        moments: The readings of the same seconds.
        before: The correction that was in force, which is taken out again.
        delay: How far the readings lag behind the load, in seconds.
    """
    settled, end = load.start + SETTLE_S + delay, load.end + delay
    inside = [m for m in moments if settled < m.time <= end]
    if len(inside) < _LEAST_READINGS + 1:
        return None
    first, last = inside[0].time - delay, inside[-1].time - delay
    clocks = [mhz for time, mhz in load.clocks if first < time <= last]
    if not clocks:
        return None
    inside = inside[1:]  # each describes the time since the one before
    clock, activity = mean(m.clock for m in inside), mean(m.activity for m in inside)
    counters = mean(m.tflops / before.ratio(m.activity) for m in inside)
    counted = None
    if load.flops and counters:
        part = _cycles(load, first, last) / _cycles(load, load.start, load.end)
        counted = part * load.flops / (last - first) / 1e12 / counters
    return ClockLoad(activity, mean(clocks) / clock, counted)


def _cycles(load: MeasuredLoad, start: float, end: float) -> float:
    """Return the cycles in which the GPU had work between two moments, in millions.

    At the power limit the clock moves by a tenth from second to second, and the work with it.
    """
    clocks = [mhz for time, mhz in load.clocks if start < time <= end and _worked(load, time)]
    return overlap(load.busy, start, end) * (mean(clocks) if clocks else 1.0)


def _worked(load: MeasuredLoad, time: float) -> bool:
    return any(a <= time <= b for a, b in load.busy)


def _paused(load: MeasuredLoad, moments: Sequence[Moment]) -> PausedLoad:
    shares = [Share(a.time, b.time, b.tensor) for a, b in pairwise(moments)]
    return PausedLoad(load.busy, shares)


def _moments(past: Columns) -> Iterator[Moment]:
    rows = zip(past.times, *(past.columns[field] for field in FIELDS), strict=True)
    for time, clock, tensor, active, tflops in rows:
        values: Mapping[str, float | None] = {"tensor_hmma": tensor, "sm_active": active}
        activity = tensor_activity({k: v for k, v in values.items() if v is not None})
        if clock and tensor is not None and activity is not None and tflops is not None:
            yield Moment(time, clock, tensor, activity, tflops)
