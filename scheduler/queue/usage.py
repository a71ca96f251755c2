"""What running jobs use of their devices, summed up from the readings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.absence import explain
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.energy import joules_of_means
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.jobs import Job, Running, Starting, Usage, held_devices

MAX_GAP_S = 15.0
"""Nothing is known of the time between two readings that are further apart. (At the slowest rate
they are ten seconds apart.)"""
_SHARED = phrase("it shared its device with other jobs")


class UsageCollector:
    """Sum up the usage of each running job."""

    def __init__(self) -> None:
        self._sums: dict[int, _UsageSum] = {}
        self._last: dict[str, Reading] = {}
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
            for job in holders.get(reading.device, ()):
                found = self._sums.setdefault(job.id, _UsageSum())
                found.add_reading(reading, job.id, shared=len(holders[reading.device]) > 1)
                if before is not None and 0 < reading.time - before.time <= MAX_GAP_S:
                    found.add_time(reading, before, len(held_devices(job)), _holds_since(job))

    def take(self, job: Job, ended: float) -> Usage | None:
        """Return the job's usage, with that of earlier attempts, and forget it.

        None where no reading shows the job.

        Args:
            job: The job at its attempt.
            ended: When the attempt ended, in seconds since the epoch.
        """
        found = self._sums.pop(job.id, None)
        if found is None:
            return job.usage
        if held_devices(job):  # and it was not suspended when it ended
            found.add_rest(ended)
        return _joined(job.usage, found.usage())


class _UsageSum:
    """Sum up what one job used."""

    def __init__(self) -> None:
        self._seconds = self._memory = self._energy = self._util = self._util_seconds = 0.0
        self._absent: dict[str, Message] = {}
        self._newest: dict[str, Reading] = {}

    def add_reading(self, reading: Reading, job_id: int, shared: bool) -> None:
        """Add what is true of one moment."""
        if shared:
            self._absent |= dict.fromkeys(("energy", "util"), _SHARED)
        own = sum(p.memory or 0.0 for p in reading.processes if p.job == job_id)
        self._memory = max(self._memory, own)

    def add_time(self, reading: Reading, before: Reading, devices: int, since: float) -> None:
        """Add the time between two readings of one of the job's devices.

        Args:
            reading: The newer reading.
            before: The older one, which may be from before the job.
            devices: How many devices the job has.
            since: When it got them, in seconds since the epoch.
        """
        self._newest[reading.device] = reading
        seconds = reading.time - before.time
        self._seconds += seconds / devices
        if (joules := joules_between(before, reading)) is not None:
            earlier = since - before.time if before.time < since <= reading.time else 0.0
            # the mean before the job may still be that of another one: no more than its share
            rest = min((_mean_power(before) or 0.0) * earlier, joules * earlier / seconds)
            self._energy += joules - rest
        else:
            self._absent.setdefault("energy", _why_absent(reading, "power"))
        if (util := reading.values.get("util")) is not None:
            self._util += util * seconds
            self._util_seconds += seconds
        else:
            self._absent.setdefault("util", _why_absent(reading, "util"))

    def add_rest(self, ended: float) -> None:
        """Add what the devices used between their last readings during the job and its end."""
        for last in self._newest.values():
            seconds, power = ended - last.time, _mean_power(last)
            if power is not None and 0 < seconds <= MAX_GAP_S:
                self._energy += power * seconds

    def usage(self) -> Usage:
        """Return the sum."""
        absent = dict(self._absent)
        if not self._memory:
            absent["memory"] = phrase("no device reported how much memory its processes have")
        if not self._seconds:
            absent |= dict.fromkeys(("energy", "util"), phrase("it ended before a second reading"))
        energy = 0.0 if "energy" in absent else self._energy
        util = 0.0 if "util" in absent else self._util / self._util_seconds
        return Usage(self._seconds, self._memory, energy, util, absent)


def joules_between(before: Reading, after: Reading) -> float | None:
    """Return the energy that a device used between two readings; None if it reports no power.

    It is that of the card's mean over the last second, as power at the readings was up to 62 % off
    beside loads that pause (tests/benchmarks/log/telemetry.md). The counter itself costs 6 ms a
    read, and is read too seldom for a job.
    """
    seconds, power = after.time - before.time, after.values.get("power")
    means = [r.values.get("power_avg") for r in (before, after)]
    if power is None or None in means or "power" in after.methods:  # its only power is some mean
        return None if power is None else power * seconds
    first, last = (mean or 0.0 for mean in means)
    return joules_of_means(seconds, first, last)


def _holds_since(job: Job) -> float:
    """Return when the job got its devices, or came back to them, in seconds since the epoch."""
    if isinstance(job.state, Running):
        return max(job.state.at, job.state.returned)
    return job.state.at if isinstance(job.state, Starting) else 0.0


def _mean_power(reading: Reading) -> float | None:
    return reading.values.get("power_avg", reading.values.get("power"))


def _why_absent(reading: Reading, field: str) -> Message:
    if field in reading.absent:
        return explain(reading.absent[field])
    return phrase("its device does not report its {name}", name=FIELDS[field].label.lower())


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
