"""What running jobs use of their devices, added up from the readings. Pure but for what it adds up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler.protocol.absence import explain
from scheduler.protocol.devices import Reading
from scheduler.protocol.fields import FIELDS
from scheduler.protocol.jobs import Job, Usage, held_devices

MAX_GAP_S = 15.0
"""Two readings further apart leave a gap: nobody watched. (At the slowest rate they are ten seconds apart.)"""
_SHARED = "it shared its device with other jobs"


class Meter:
    """Told of every moment; asked at the end of a job."""

    def __init__(self) -> None:
        self._of: dict[int, _Sum] = {}
        self._last: dict[str, Reading] = {}

    def add(self, readings: Iterable[Reading], going: Sequence[Job]) -> None:
        """`going`: the jobs that run."""
        holders: dict[str, list[Job]] = {}
        for job in going:
            for device in held_devices(job):
                holders.setdefault(device, []).append(job)
        for reading in readings:
            before, self._last[reading.device] = self._last.get(reading.device), reading
            for job in holders.get(reading.device, ()):
                found = self._of.setdefault(job.id, _Sum())
                found.look(reading, job.id, shared=len(holders[reading.device]) > 1)
                if before is not None and 0 < reading.time - before.time <= MAX_GAP_S:
                    found.span(before, reading, len(held_devices(job)))

    def take(self, job: Job) -> Usage | None:
        """What was added up of the job since it was last taken, with what it used before; None where it was never seen."""
        found = self._of.pop(job.id, None)
        return job.usage if found is None else _joined(job.usage, found.usage())


class _Sum:
    """What one job used."""

    def __init__(self) -> None:
        self._seconds = self._memory = self._energy = self._util = self._util_seconds = 0.0
        self._absent: dict[str, str] = {}

    def look(self, reading: Reading, job_id: int, shared: bool) -> None:
        if shared:
            self._absent |= dict.fromkeys(("energy", "util"), _SHARED)
        own = [p.memory for p in reading.processes if p.job == job_id]
        self._memory = max(self._memory, sum(m for m in own if m is not None))

    def span(self, before: Reading, after: Reading, devices: int) -> None:
        """The time between two readings of one of its devices."""
        seconds = after.time - before.time
        self._seconds += seconds / devices
        if (energy := _energy(after.values, seconds)) is not None:
            self._energy += energy
        else:
            self._absent.setdefault("energy", _why(after, "power"))
        if (util := after.values.get("util")) is not None:
            self._util += util * seconds
            self._util_seconds += seconds
        else:
            self._absent.setdefault("util", _why(after, "util"))

    def usage(self) -> Usage:
        absent = dict(self._absent)
        if not self._memory:
            absent["memory"] = (
                "its processes were not seen on a device that tells how much memory each has"
            )
        if not self._seconds:
            absent |= dict.fromkeys(("energy", "util"), "it ended before a second reading")
        energy = 0.0 if "energy" in absent else self._energy
        util = 0.0 if "util" in absent else self._util / self._util_seconds
        return Usage(self._seconds, self._memory, energy, util, absent)


def _why(reading: Reading, field: str) -> str:
    """Return why the job's device has no value of a field."""
    return explain(
        reading.absent.get(field, f"its device does not report its {FIELDS[field].label.lower()}")
    )


def _energy(after: Mapping[str, float], seconds: float) -> float | None:
    """Joules by the power at the reading.

    Not by the card's counter of energy, which costs 6 ms a look and is read twice a minute: a job of ten seconds would have none, or
    another's. Not by its mean over a second either: of a job of three seconds that misses a sixth.
    """
    return after["power"] * seconds if "power" in after else None


def _joined(old: Usage | None, new: Usage) -> Usage:
    """Of two attempts; a figure that is missing of either is missing of both, but for the memory."""
    if old is None:
        return new
    absent = {**old.absent, **new.absent}
    seconds = old.seconds + new.seconds
    if memory := max(old.memory, new.memory):
        absent.pop("memory", None)
    energy = 0.0 if "energy" in absent else old.energy + new.energy
    util = (
        (old.util * old.seconds + new.util * new.seconds) / seconds
        if seconds and "util" not in absent
        else 0.0
    )
    return Usage(seconds, memory, energy, util, absent)
