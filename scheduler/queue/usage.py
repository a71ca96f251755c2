"""What running jobs use of their devices, summed up from the readings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler.protocol.absence import explain
from scheduler.protocol.devices import Reading
from scheduler.protocol.fields import FIELDS
from scheduler.protocol.jobs import Job, Usage, held_devices

MAX_GAP_S = 15.0
"""Nothing is known of the time between two readings that are further apart. (At the slowest rate
they are ten seconds apart.)"""
_SHARED = "it shared its device with other jobs"


class UsageCollector:
    """Sum up the usage of each running job."""

    def __init__(self) -> None:
        self._sums: dict[int, _UsageSum] = {}
        self._last: dict[str, Reading] = {}
        self._meters: dict[str, _Meter] = {}
        """The last new state of each device's counter of energy."""
        self.largest_memory: float | None = None
        """Bytes of the largest device; None before the first reading."""

    def add(self, readings: Sequence[Reading], running: Iterable[Job]) -> None:
        """Add new readings of the devices that the running jobs hold."""
        totals = [r.values["mem_total"] for r in readings if "mem_total" in r.values]
        self.largest_memory = max(totals, default=self.largest_memory)
        holders: dict[str, list[Job]] = {}
        for job in running:
            for device in held_devices(job):
                holders.setdefault(device, []).append(job)
        for reading in readings:
            before, self._last[reading.device] = self._last.get(reading.device), reading
            steady = before is not None and 0 < reading.time - before.time <= MAX_GAP_S
            meter, renewed = self._meter(reading, steady)
            for job in holders.get(reading.device, ()):
                found = self._sums.setdefault(job.id, _UsageSum())
                found.add_reading(reading, job.id, shared=len(holders[reading.device]) > 1)
                if before is not None and steady:
                    found.add_time(reading, before.time, len(held_devices(job)))
                if not steady or renewed:
                    found.settle(reading.device, meter, renewed)

    def _meter(self, reading: Reading, steady: bool) -> tuple[_Meter | None, _Meter | None]:
        """Return the last state of the device's counter, and the new one if it was read anew.

        It is read seldom. After a gap, or once the clock was set, the last state is of no use.
        """
        known = self._meters.get(reading.device)
        if known is not None and not steady:
            known = self._meters[reading.device] = known._replace(time=math.nan)
        joules = reading.values.get("energy")
        if joules is None or (known is not None and joules == known.joules):
            return known, None
        self._meters[reading.device] = _Meter(reading.time, joules)
        return known, self._meters[reading.device]

    def take(self, job: Job) -> Usage | None:
        """Return the job's usage, with that of earlier attempts, and forget it.

        None where no reading shows the job.
        """
        found = self._sums.pop(job.id, None)
        return job.usage if found is None else _joined(job.usage, found.usage())


class _Meter(NamedTuple):
    """Hold the state of a counter of energy at one moment."""

    time: float
    joules: float


class _UsageSum:
    """Sum up what one job used."""

    def __init__(self) -> None:
        self._seconds = self._memory = self._energy = self._util = self._util_seconds = 0.0
        self._absent: dict[str, str] = {}
        self._estimates: dict[str, tuple[float, float]] = {}
        """By device: since when nothing was missed, and the joules since then by power."""

    def add_reading(self, reading: Reading, job_id: int, shared: bool) -> None:
        """Add what is true of one moment."""
        if shared:
            self._absent |= dict.fromkeys(("energy", "util"), _SHARED)
        own = sum(p.memory or 0.0 for p in reading.processes if p.job == job_id)
        self._memory = max(self._memory, own)

    def add_time(self, reading: Reading, since: float, devices: int) -> None:
        """Add the time from `since` to the reading of one of the job's devices.

        Its energy is estimated by the power at the reading, until the card's counter is renewed
        (`settle`). The mean power over a second would miss a sixth of a job of three seconds.
        """
        seconds = reading.time - since
        self._seconds += seconds / devices
        if (power := reading.values.get("power")) is not None:
            start, joules = self._estimates.get(reading.device, (since, 0.0))
            self._estimates[reading.device] = start, joules + power * seconds
        else:
            self._absent.setdefault("energy", _why_absent(reading, "power"))
        if (util := reading.values.get("util")) is not None:
            self._util += util * seconds
            self._util_seconds += seconds
        else:
            self._absent.setdefault("util", _why_absent(reading, "util"))

    def settle(
        self, device: str, before: _Meter | None = None, after: _Meter | None = None
    ) -> None:
        """Make an estimate of energy final, or replace it by what the counter counted meanwhile.

        A load that pauses has another power between two readings. The counter costs 6 ms a read
        and is read twice a minute, so it tells nothing of a job of ten seconds, and of a longer one
        what lies between two of its states.
        """
        start, joules = self._estimates.pop(device, (math.inf, 0.0))
        if before and after and start <= before.time and after.joules > before.joules:
            joules = after.joules - before.joules
        self._energy += joules

    def usage(self) -> Usage:
        """Return the sum."""
        for device in list(self._estimates):
            self.settle(device)
        absent = dict(self._absent)
        if not self._memory:
            absent["memory"] = "no device reported how much memory its processes have"
        if not self._seconds:
            absent |= dict.fromkeys(("energy", "util"), "it ended before a second reading")
        energy = 0.0 if "energy" in absent else self._energy
        util = 0.0 if "util" in absent else self._util / self._util_seconds
        return Usage(self._seconds, self._memory, energy, util, absent)


def _why_absent(reading: Reading, field: str) -> str:
    label = FIELDS[field].label.lower()
    return explain(reading.absent.get(field, f"its device does not report its {label}"))


def _joined(old: Usage | None, new: Usage) -> Usage:
    """Return the usage of two attempts. But for memory, what one of them lacks, both lack."""
    if old is None:
        return new
    absent = {**old.absent, **new.absent}
    seconds = old.seconds + new.seconds
    if memory := max(old.memory, new.memory):
        absent.pop("memory", None)
    energy = 0.0 if "energy" in absent else old.energy + new.energy
    util = 0.0
    if seconds and "util" not in absent:
        util = (old.util * old.seconds + new.util * new.seconds) / seconds
    return Usage(seconds, memory, energy, util, absent)
