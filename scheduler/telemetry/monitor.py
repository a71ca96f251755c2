"""Turn readings into the state of every device, and choose how often to read.

The monitor keeps the recent past, adds the FLOPs that jobs count, and judges which device is idle.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from gpudeck.language.text import Span, phrase
from gpudeck.scheduler.protocol.busy_causes import (
    Asleep,
    BusyCause,
    HeldByJobs,
    HeldByOthers,
    JobWaits,
    NotResponding,
    QuietHours,
    Removed,
    Reserved,
    Settling,
)
from gpudeck.scheduler.protocol.devices import RATE_OF_TYPES, Device, Reading
from gpudeck.scheduler.protocol.jobs import Job, Progress, Queued, held_devices
from gpudeck.scheduler.protocol.settings import Settings, is_quiet, listed
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle
from gpudeck.scheduler.protocol.units import list_jobs
from gpudeck.scheduler.protocol.wait_reasons import WantsDevices
from gpudeck.scheduler.telemetry.flop_rate import FlopRate
from gpudeck.scheduler.telemetry.idle import (
    CPU_UTIL_PERCENT,
    IdlePolicy,
    UsageSample,
    dwell_time,
    eviction_cause,
    judge,
)

LOOK_BACK_S = 600.0
"""More than the longest dwell time, whatever the rate of readings."""
CALM_HZ = 0.5
"""Readings per second while nobody watches."""
UTIL_WINDOW_S = 1.0
"""A utilisation that NVML reports is the mean of up to this time before."""
LINGER_S = 10.0
"""A request counts as watching for this long."""
_COUNTED = ("tflops", "tflops_error")
"""The fields that a job's own count of operations replaces; it has no error."""
ASLEEP = 0.0
"""A rate of no readings: the GPU is not held open."""


def polling_rate(settings: Settings, watched: bool, may_sleep: bool) -> float:
    """Return the readings per second, or ASLEEP.

    Args:
        settings: The settings in force.
        watched: Somebody watches, or a job for a GPU waits or runs.
        may_sleep: A GPU could power down if it were not read.
    """
    if watched:
        return settings.telemetry_hz
    return ASLEEP if may_sleep else min(settings.telemetry_hz, CALM_HZ)


class Monitor:
    """Keep what is known of every device."""

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self._samples: dict[str, deque[UsageSample]] = {}
        """The recent past for the idle decision, oldest first."""
        self._latest: dict[str, Reading] = {}
        self._rates: dict[int, FlopRate] = {}
        self._current: frozenset[str] = frozenset()
        """The devices of the newest readings; empty while the probe does not answer."""
        self._evictions: dict[str, list[float]] = {}
        self._given_way: dict[str, float] = {}
        """When a job that runs only while GPUs are idle was last on each device (monotonic)."""
        self.held_by_others: frozenset[str] = frozenset()
        """Ids of the devices of which queues of other users hold a part, or all."""

    def set_devices(self, devices: tuple[Device, ...]) -> None:
        """Take in what the probe found. A GPU that no longer answers keeps its name."""
        whole = [d for d in self.devices if d.kind == "nvidia" and not d.instance]
        known = {d.index: d for d in whole if d.silent is None}
        self.devices = tuple(
            d
            if d.silent is None
            else msgspec.structs.replace(known.get(d.index, d), silent=d.silent, note=d.note)
            for d in devices
        )
        self._current = frozenset()

    def lose_probe(self) -> None:
        """Keep the devices listed without readings, as the probe is gone."""
        self._current = frozenset()

    def add(self, readings: Sequence[Reading], jobs: Sequence[Job]) -> list[Reading]:
        """Take in one moment; return the readings as they are shown and stored."""
        self._current = frozenset(r.device for r in readings)
        counted = [self._with_counted_flops(_in_stated_type(r, jobs), jobs) for r in readings]
        idle_jobs = (job for job in jobs if job.spec.when_idle)
        self._given_way |= {
            device: time.monotonic() for job in idle_jobs for device in held_devices(job)
        }
        for reading in counted:
            self._latest[reading.device] = reading
            samples = self._samples.setdefault(reading.device, deque())
            samples.append(self._own_sample(reading))
            while samples[0].time < reading.time - LOOK_BACK_S:
                samples.popleft()
        return counted

    def _own_sample(self, reading: Reading) -> UsageSample:
        """Return how a device was used; a job that gives way to everybody is no load."""
        sample, at = _sample(reading), self._given_way.get(reading.device, -math.inf)
        if sample.util is None or time.monotonic() - at > UTIL_WINDOW_S:
            return sample
        return sample._replace(util=0.0)

    def add_progress(self, job_id: int, progress: Iterable[Progress]) -> None:
        """Take in the progress that a running job reported."""
        rate = self._rates.setdefault(job_id, FlopRate())
        for report in progress:
            rate.add(report)

    def forget(self, running: set[int]) -> None:
        """Drop the FLOP counts of all jobs except these."""
        self._rates = {job: rate for job, rate in self._rates.items() if job in running}

    def record_eviction(self, device: str, now: float) -> None:
        """Remember that the assistant had to leave the device."""
        self._evictions.setdefault(device, []).append(now)

    def eviction_cause(
        self, device: str, reading: Reading | None, settings: Settings, now: float
    ) -> BusyCause | None:
        """Return why the assistant must leave the device that it has, or None if it may stay."""
        found = next((d for d in self.devices if d.id == device), None)
        if found is None:
            return Removed()
        current = reading is not None and device in self._current
        return eviction_cause(
            _sample(reading) if reading is not None and current else None,
            self._policy(found, settings, now),
            now,
            self._held_by_others(found)
            or _quiet_hours(found, settings, now)
            or _reserved(found, settings, now),
            _max_age(settings),
        )

    def states(
        self, jobs: Sequence[Job], settings: Settings, now: float, leased: str | None = None
    ) -> tuple[DeviceState, ...]:
        """Return the state of every device.

        Args:
            jobs: The jobs that wait or run.
            settings: The settings in force.
            now: Seconds since the epoch.
            leased: The id of the device that the assistant has.
        """
        holders: dict[str, tuple[int, ...]] = {}
        for job in jobs:
            for held in held_devices(job):
                holders[held] = (*holders.get(held, ()), job.id)
        waiting = next((job for job in jobs if waits_for_gpu(job, now)), None)
        max_age = _max_age(settings)
        states = []
        for device in self.devices:
            mine = holders.get(device.id, ())
            policy = self._policy(device, settings, now)
            oldest = now - policy.dwell_s - 2 * max_age
            samples = _since(self._samples.get(device.id, ()), oldest)
            barred: BusyCause | None
            barred = self._held_by_others(device)
            current = device.id in self._current and samples
            reading = self._latest.get(device.id) if current else None
            if reading is not None and reading.asleep is not None:
                barred = Asleep(reading.asleep)
            barred = _reserved(device, settings, now) or barred
            if mine:
                barred = HeldByJobs(mine)
            if device.silent is not None:
                barred = NotResponding(device.note)
            use = judge(samples, policy, now, barred, max_age)
            kept = JobWaits(waiting.id) if waiting else _quiet_hours(device, settings, now)
            if kept is not None and (isinstance(use, Idle) or isinstance(use.cause, Settling)):
                use = Busy(kept)  # who uses a device is told before what keeps the assistant away
            states.append(DeviceState(device, reading, use, mine, device.id == leased))
        return tuple(states)

    def _held_by_others(self, device: Device) -> HeldByOthers | None:
        return HeldByOthers() if device.id in self.held_by_others else None

    def _policy(self, device: Device, settings: Settings, now: float) -> IdlePolicy:
        util = settings.idle_util_percent
        if device.kind != "nvidia":
            util = max(util, CPU_UTIL_PERCENT)
        quiet = dwell_time(settings.idle_dwell_s, self._evictions.get(device.id, ()), now)
        return IdlePolicy(util, quiet, listed(settings.exclusive_programs))

    def _with_counted_flops(self, reading: Reading, jobs: Sequence[Job]) -> Reading:
        """Prefer the FLOPs that our jobs count: hardware counters do not know the instructions."""
        rates: dict[int, float] = {}
        for job in jobs:
            rate = self._rates.get(job.id)
            if rate is None or reading.device not in held_devices(job):
                continue
            if (tflops := rate.tflops(reading.time)) is not None:
                rates[job.id] = tflops
        if not rates:
            return reading
        method = phrase(
            "counted by {jobs} over its last {span}", jobs=list_jobs(tuple(rates)), span=Span(2.0)
        )
        return msgspec.structs.replace(
            reading,
            values={
                **{f: v for f, v in reading.values.items() if f != "tflops_error"},
                "tflops": sum(rates.values()),
            },
            absent={f: cause for f, cause in reading.absent.items() if f not in _COUNTED},
            methods={**reading.methods, "tflops": method},
        )


def _in_stated_type(reading: Reading, jobs: Sequence[Job]) -> Reading:
    """Tell the rate of the counters for the data type that all jobs on the device state."""
    holders = [job for job in jobs if reading.device in held_devices(job)]
    types = {job.spec.precision for job in holders}
    if len(types) != 1 or "" in types or "tflops_error" not in reading.values:
        return reading
    (precision,) = types
    method = phrase(
        "for {type}, as {jobs} states; {method}",
        type=precision.upper(),
        jobs=list_jobs(tuple(job.id for job in holders)),
        method=reading.methods.get("tflops", ""),
    )
    rate = RATE_OF_TYPES[precision] * reading.values.get("tflops", 0.0)
    return msgspec.structs.replace(
        reading,
        values={**reading.values, "tflops": rate},
        methods={**reading.methods, "tflops": method},
        precision=precision,
    )


def waits_for_gpu(job: Job, now: float) -> bool:
    """Return True if the job waits for a GPU of this machine, which others must leave to it.

    One that could not start now whatever GPU is free, as it waits for another job, waits for none.
    """
    spec = job.spec
    return (
        bool(spec.gpus)
        and isinstance(job.state, Queued)
        and isinstance(job.state.wait, WantsDevices)
        and not (spec.hold or spec.where or spec.when_idle or spec.begin > now)
    )


def _since(samples: Iterable[UsageSample], time: float) -> list[UsageSample]:
    """Return the newest samples, back to the first that is older than `time`."""
    found = list(itertools.takewhile(lambda s: s.time >= time, reversed(tuple(samples))))
    found.reverse()
    return found


def _sample(reading: Reading) -> UsageSample:
    programs = {p.name for p in reading.processes if not p.assistant}
    return UsageSample(
        reading.time,
        reading.values.get("util"),
        sum(p.foreign for p in reading.processes),
        frozenset(programs.union(reading.drawing)),
    )


def _quiet_hours(device: Device, settings: Settings, now: float) -> QuietHours | None:
    """Return the quiet hours of a GPU while they last; the assistant may always use the CPU."""
    hours = settings.idle_hours_off
    return QuietHours(hours) if device.kind == "nvidia" and is_quiet(hours, now) else None


def _reserved(device: Device, settings: Settings, now: float) -> Reserved | None:
    """Return for whom a GPU is kept now; the assistant may always use the CPU."""
    for booking in settings.reservations.values():
        mine = device.kind == "nvidia" and device.id in booking.gpus
        if mine and booking.begin <= now < booking.end:
            return Reserved(booking.holder, booking.end)
    return None


def _max_age(settings: Settings) -> float:
    """Return the seconds after which a reading is no longer current."""
    return max(3.0, 3 / settings.telemetry_hz)
