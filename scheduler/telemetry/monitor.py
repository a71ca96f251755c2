"""Readings in, the state of every device out: keeps the recent past, adds what jobs count, judges what is idle."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from scheduler.protocol.devices import Device, Reading
from scheduler.protocol.jobs import Job, Progress, held_devices
from scheduler.protocol.quiet_hours import is_quiet
from scheduler.protocol.settings import Settings, listed
from scheduler.protocol.snapshot import Busy, DeviceState
from scheduler.protocol.units import numbered
from scheduler.telemetry.flops import FlopRate
from scheduler.telemetry.idle import CPU_UTIL_PERCENT, Look, Policy, dwell, judge, leave

LOOK_BACK_S = 600.0
"""More than the longest dwell time, whatever the rate of readings."""


class Monitor:
    """The devices as the daemon knows them."""

    def __init__(self) -> None:
        self.devices: tuple[Device, ...] = ()
        self._looks: dict[str, deque[Look]] = {}
        """What the idle decision needs of the recent past, oldest first."""
        self._latest: dict[str, Reading] = {}
        self._rates: dict[int, FlopRate] = {}
        self._current: frozenset[str] = frozenset()
        """The devices of the newest readings; empty while the probe does not answer."""
        self._evictions: dict[str, list[float]] = {}

    def set_devices(self, devices: tuple[Device, ...]) -> None:
        """What the probe found. A GPU that does not answer keeps the name it had."""
        known = {d.index: d for d in self.devices if d.kind == "nvidia" and not d.silent}
        self.devices = tuple(_kept(known.get(d.index, d), d) if d.silent else d for d in devices)
        self._current = frozenset()

    def lose(self) -> None:
        """The probe is gone: devices stay listed, without a reading."""
        self._current = frozenset()

    def add(self, readings: Sequence[Reading], jobs: Sequence[Job]) -> list[Reading]:
        """Take in one moment; returns the readings as they are shown and stored."""
        self._current = frozenset(r.device for r in readings)
        shown = [self._count(r, jobs) for r in readings]
        for reading in shown:
            self._latest[reading.device] = reading
            looks = self._looks.setdefault(reading.device, deque())
            looks.append(_look(reading))
            while looks[0].time < reading.time - LOOK_BACK_S:
                looks.popleft()
        return shown

    def heard(self, job_id: int, progress: Iterable[Progress]) -> None:
        """What a running job said of itself."""
        rate = self._rates.setdefault(job_id, FlopRate())
        for said in progress:
            rate.add(said)

    def forget(self, running: set[int]) -> None:
        """Drop the counts of all jobs but these."""
        self._rates = {job: rate for job, rate in self._rates.items() if job in running}

    def evicted(self, device: str, now: float) -> None:
        """The assistant had to leave it."""
        self._evictions.setdefault(device, []).append(now)

    def leave(
        self, device: str, reading: Reading | None, settings: Settings, now: float
    ) -> str | None:
        """Why the assistant must leave the device that it has, None where it may stay."""
        found = next((d for d in self.devices if d.id == device), None)
        if found is None:
            return "it cannot be read any more"
        seen = None if reading is None or device not in self._current else _look(reading)
        return leave(
            seen,
            self._policy(found, settings, now),
            now,
            _quiet(found, settings, now),
            _max_age(settings),
        )

    def states(
        self, jobs: Sequence[Job], settings: Settings, now: float, leased: str | None = None
    ) -> tuple[DeviceState, ...]:
        """`jobs`: those that wait or run. `leased`: id of the device that the assistant has."""
        holders: dict[str, tuple[int, ...]] = {}
        for job in jobs:
            for held in held_devices(job):
                holders[held] = (*holders.get(held, ()), job.id)
        waits = next(
            (
                f"job {j.id} waits"
                for j in jobs
                if j.spec.gpus and j.status == "queued" and not (j.spec.hold or j.spec.where)
            ),
            None,
        )
        max_age = _max_age(settings)
        found = []
        for device in self.devices:
            mine = holders.get(device.id, ())
            policy = self._policy(device, settings, now)
            looks = _since(self._looks.get(device.id, ()), now - policy.dwell_s - 2 * max_age)
            barred = (
                f"{numbered(mine)} run{'s' if len(mine) == 1 else ''}"
                if mine
                else waits or _quiet(device, settings, now)
            )
            reading = self._latest.get(device.id) if device.id in self._current and looks else None
            use = Busy(device.note) if device.silent else judge(looks, policy, now, barred, max_age)
            found.append(DeviceState(device, reading, use, mine, device.id == leased))
        return tuple(found)

    def _policy(self, device: Device, settings: Settings, now: float) -> Policy:
        util = (
            settings.idle_util_percent
            if device.kind == "nvidia"
            else max(settings.idle_util_percent, CPU_UTIL_PERCENT)
        )
        quiet = dwell(settings.idle_dwell_s, self._evictions.get(device.id, ()), now)
        return Policy(util, quiet, listed(settings.exclusive_programs))

    def _count(self, reading: Reading, jobs: Sequence[Job]) -> Reading:
        """TFLOP/s as our own jobs count them: the hardware counters, where there are any, do not know the instructions."""
        rates = {
            j.id: r
            for j in jobs
            if reading.device in held_devices(j)
            and (r := self._tflops(j.id, reading.time)) is not None
        }
        if not rates:
            return reading
        names = ", ".join(f"job {job}" for job in rates)
        return msgspec.structs.replace(
            reading,
            values={**reading.values, "tflops": sum(rates.values())},
            absent={f: why for f, why in reading.absent.items() if f != "tflops"},
            methods={**reading.methods, "tflops": f"counted by {names} over its last 2 s"},
        )

    def _tflops(self, job_id: int, now: float) -> float | None:
        rate = self._rates.get(job_id)
        return rate.tflops(now) if rate else None


def _kept(known: Device, silent: Device) -> Device:
    return msgspec.structs.replace(known, silent=silent.silent, note=silent.note)


def _since(looks: Iterable[Look], time: float) -> list[Look]:
    """Those not older than `time`, up to the first that is."""
    found = list(itertools.takewhile(lambda look: look.time >= time, reversed(tuple(looks))))
    found.reverse()
    return found


def _look(reading: Reading) -> Look:
    programs = frozenset(p.name for p in reading.processes if not p.assistant).union(
        reading.drawing
    )
    return Look(
        reading.time,
        reading.values.get("util"),
        sum(p.foreign for p in reading.processes),
        programs,
    )


def _quiet(device: Device, settings: Settings, now: float) -> str | None:
    """Of a GPU, whether these are its quiet hours: on the CPU the assistant may still write."""
    return (
        f"quiet hours, {settings.idle_hours_off}"
        if device.kind == "nvidia" and is_quiet(settings.idle_hours_off, now)
        else None
    )


def _max_age(settings: Settings) -> float:
    """Seconds after which a reading tells nothing of now."""
    return max(3.0, 3 / settings.telemetry_hz)
