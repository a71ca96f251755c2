"""Which devices a job gets. Pure: what was read of the devices and what jobs hold of them in, devices out.

A job has its devices for itself, or reserves memory on them and shares them with others that reserve. Of a device that is shared,
what is free is what was read as free, less what running jobs reserved and have not allocated yet: no two jobs count on the same
memory, however late they allocate it. Where the driver does not tell how much a job allocated, all it reserved is taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from scheduler.protocol.devices import Device, Process, Reading
from scheduler.protocol.jobs import Job, Spec, held_devices

_NOTHING: frozenset[str] = frozenset()


class DeviceUse(NamedTuple):
    """What a reading says of who uses a device."""

    total: float | None
    """Bytes of its memory that anybody can have; None where that could not be read."""
    free: float | None
    """Bytes that nobody but our assistant had allocated."""
    used: Mapping[int, float]
    """Bytes that each job of ours had allocated, as far as the driver tells."""
    others: tuple[Process, ...] = ()
    """Processes that are neither jobs that run nor our assistant, and are not to be overlooked."""


UNREAD = DeviceUse(None, None, {})
"""A device of which there is no current reading: nobody can say who is on it."""


class Availability(NamedTuple):
    """The devices as they were read last. One that is missing in `seen` is taken to have nobody else on it."""

    seen: Mapping[str, DeviceUse] = {}
    drained: frozenset[str] = _NOTHING
    """Ids of devices that get no new jobs."""
    leased: frozenset[str] = _NOTHING
    """Ids of devices that the assistant has, or has not quite left yet. Its memory counts as free: it leaves for whatever starts there."""


def device_use(
    reading: Reading | None, jobs: Iterable[int], ignored: frozenset[str] = _NOTHING
) -> DeviceUse:
    """`jobs`: ids of those that run. `ignored`: names of programs that may stay on a device that a job has for itself."""
    if reading is None:
        return UNREAD
    running = set(jobs)
    used: dict[int, float] = {}
    others = []
    lent = 0.0
    for process in reading.processes:
        if process.job in running:
            assert process.job is not None
            used[process.job] = used.get(process.job, 0.0) + (process.memory or 0.0)
        elif process.assistant:
            lent += process.memory or 0.0
        elif process.name not in ignored:
            others.append(process)
    total = reading.values.get("mem_total")
    if total is not None:
        total -= reading.values.get("mem_reserved", 0.0)
    free = reading.values.get("mem_free")
    return DeviceUse(total, None if free is None else free + lent, used, tuple(others))


class Spot:
    """One device during a pass over the queue: what is left of it as jobs are placed."""

    def __init__(
        self, device: Device, holders: Sequence[Job], seen: DeviceUse | None, drained: bool
    ) -> None:
        self.device, self.holders, self.drained = device, list(holders), drained
        self.seen = seen
        self.claim: Job | None = None
        """The job that waits for this device, and lets none that come after it have what it waits for."""
        self.claimed = 0.0
        """Bytes it waits for here, where others may have the rest."""
        self.alone = any(not job.spec.memory for job in holders)
        self.free = (
            None
            if seen is None or seen.free is None
            else seen.free - sum(_promised(job, seen) for job in holders)
        )
        """Bytes that a further job can reserve; None where nobody knows."""

    @property
    def blind(self) -> bool:
        return self.seen is UNREAD

    @property
    def others(self) -> tuple[Process, ...]:
        return () if self.seen is None else self.seen.others

    def suits(self, spec: Spec) -> bool:
        """Whether the job may ever run here, were nobody else there."""
        total = self.seen.total if self.seen is not None else None
        return (
            not self.drained
            and of_type(self.device, spec)
            and (total is None or spec.memory <= total)
        )

    def takes(self, spec: Spec, claims: bool = True) -> bool:
        """Whether the job can start here now. `claims`: heeding those of the jobs before it."""
        if self.alone or self.blind or not self.suits(spec):
            return False
        if not spec.memory:
            return not (self.holders or self.others or (claims and self.claim))
        return self.free is not None and spec.memory <= self.free - (
            self.claimed if claims else 0.0
        )

    def give(self, job: Job) -> None:
        """The job starts here."""
        self.holders.append(job)
        self.alone = not job.spec.memory
        if self.free is not None:
            self.free -= job.spec.memory

    def hold(self, job: Job) -> None:
        """The job waits for this device: those after it get only what it leaves."""
        self.claim = job
        room = self.free if self.free is not None else 0.0
        self.claimed = (
            float(job.spec.memory)
            if job.spec.memory and self.takes(job.spec, claims=False)
            else max(room, 0.0)
        )


def spots(jobs: Iterable[Job], devices: Sequence[Device], sight: Availability) -> list[Spot]:
    """The devices that run jobs, with those of `jobs` that hold them."""
    holders: dict[str, list[Job]] = {}
    for job in jobs:
        for device in held_devices(job):
            holders.setdefault(device, []).append(job)
    real = [d for d in devices if d.kind != "replay"]
    return [
        Spot(d, holders.get(d.id, ()), sight.seen.get(d.id), d.id in sight.drained) for d in real
    ]


def choose(spec: Spec, places: Sequence[Spot], claims: bool = True) -> list[Spot] | None:
    """Where the job starts now, None where it cannot. Jobs that share are spread: to the fewest others, then to the most memory."""
    fitting = [spot for spot in places if spot.takes(spec, claims)]
    if spec.memory:
        fitting.sort(key=lambda spot: (len(spot.holders), -(spot.free or 0.0), spot.device.index))
    return fitting[: spec.gpus] if len(fitting) >= spec.gpus else None


def claim(job: Job, places: Sequence[Spot]) -> None:
    """The job cannot start: it holds as many devices as it needs, so that it is not starved by those after it.

    Those that have what it needs, then those that others share, then those that one has for itself; last those with processes that
    are not ours. Whatever comes free among the devices that suit it goes to it first, as it is looked at first.
    """
    suiting = [spot for spot in places if spot.claim is None and spot.suits(job.spec)]
    suiting.sort(
        key=lambda s: (not s.takes(job.spec), bool(s.others) or s.blind, s.alone, s.device.index)
    )
    for spot in suiting[: job.spec.gpus]:
        spot.hold(job)


def of_type(device: Device, spec: Spec) -> bool:
    """Whether the device is of the type of GPU the job asks for."""
    return spec.gpu_type.lower() in device.name.lower()


def _promised(job: Job, seen: DeviceUse) -> float:
    """Bytes that the job reserved and has not allocated yet."""
    return max(job.spec.memory - seen.used.get(job.id, 0.0), 0.0)
