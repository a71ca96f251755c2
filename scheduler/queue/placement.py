"""Which devices a job gets.

A job has its devices to itself, or reserves memory on them and shares them with others that do. The
free memory of a shared device is what was read, less what running jobs reserved and have not
allocated yet: no two jobs count on the same memory, however late they allocate it. Where the driver
does not report how much a job allocated, all that it reserved is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.scheduler.attempts import running
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import BusyCause
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.jobs import Job, Spec, held_devices, suspension_of
from gpudeck.scheduler.protocol.snapshot import label
from gpudeck.scheduler.protocol.wait_reasons import Holder

MARGIN_S = 15.0
"""The time that a job may take to end after its limit is up, and to be taken over by the queue."""
_NOTHING: frozenset[str] = frozenset()


class DeviceUse(NamedTuple):
    """Describe who uses a device, by its last reading."""

    total: float | None
    """Bytes of memory that can be allocated at all; None where that could not be read."""
    free: float | None
    """Bytes that are free, or allocated by the assistant, which makes room for jobs."""
    used: Mapping[int, float]
    """Bytes that each running job has allocated, as far as the driver reports it."""
    others: tuple[Process, ...] = ()
    """Processes that belong neither to a running job nor to the assistant, and are not ignored."""
    time: float = math.inf
    """When it was read, in seconds since the epoch."""


UNREAD = DeviceUse(None, None, {})
"""A device without a current reading, so that nobody knows who uses it."""


class Availability(NamedTuple):
    """Describe all devices. One that is missing in `uses` is taken to be free."""

    uses: Mapping[str, DeviceUse] = {}
    drained: frozenset[str] = _NOTHING
    """Ids of devices that accept no new jobs."""
    leased: frozenset[str] = _NOTHING
    """Ids of devices that the assistant has, or has not quite left yet."""
    held_by_others: Mapping[str, float] = {}
    """Bytes of devices that queues of other users hold; infinity for a whole device."""
    bookings: tuple[Booking, ...] = ()
    """Devices that are kept for somebody for a time."""
    busy: Mapping[str, BusyCause] = {}
    """Why devices are not idle, as long as jobs wait for idle ones."""
    holders: Mapping[str, Holder] = {}
    """The processes that hold devices for other users' queues, as far as they are known."""


ALL_FREE = Availability()


def device_use(
    reading: Reading | None, jobs: Iterable[int], ignored: frozenset[str] = _NOTHING
) -> DeviceUse:
    """Return who uses a device.

    Args:
        jobs: numbers of the running jobs.
        ignored: names of programs that may stay on a device which a job has to itself.
    """
    if reading is None or not reading.values:  # it sleeps
        return UNREAD
    running = set(jobs)
    used: dict[int, float] = {}
    others = []
    lent = 0.0
    for process in reading.processes:
        if process.job is not None and process.job in running:
            used[process.job] = used.get(process.job, 0.0) + (process.memory or 0.0)
        elif process.assistant:
            lent += process.memory or 0.0
        elif process.name not in ignored:
            others.append(process)
    total, free = reading.values.get("mem_total"), reading.values.get("mem_free")
    return DeviceUse(
        None if total is None else total - reading.values.get("mem_reserved", 0.0),
        None if free is None else free + lent,
        used,
        tuple(others),
        reading.time,
    )


class Slot:
    """Keep what is left of one device while a pass over the queue places jobs."""

    def __init__(
        self,
        device: Device,
        holders: Sequence[Job],
        use: DeviceUse | None,
        drained: bool,
        held_by_others: float = 0.0,
        bookings: Sequence[Booking] = (),
        now: float = 0.0,
        other_holder: Holder | None = None,
        busy: BusyCause | None = None,
    ) -> None:
        self.bookings = sorted(bookings, key=lambda booking: booking.begin)
        """The times for which the device is kept for somebody."""
        self.now, self.busy = now, busy
        self.device, self.holders, self.drained = device, list(holders), drained
        self.total = use.total if use is not None else None
        self.unread = use is UNREAD
        self.others = use.others if use is not None else ()
        self.used = use.used if use is not None else {}
        """Bytes that each of our running jobs has allocated, as far as the driver reports it."""
        self.reserved_for: Job | None = None
        """The job that waits for this device: those after it get only what it leaves."""
        self.reserved = 0.0
        """Bytes that this job waits for, where others may have the rest."""
        self.held_by_others = held_by_others
        """Bytes that queues of other users hold; infinity for the whole device."""
        self.other_holder = other_holder
        """Who holds them."""
        self.exclusive = held_by_others == math.inf or any(not j.spec.memory for j in holders)
        """True where a job has the device to itself."""
        self.free: float | None = None
        """Bytes that a further job can reserve; None where that is unknown."""
        if use is not None and use.free is not None:
            missing = (job.spec.memory - use.used.get(job.id, 0.0) for job in holders)
            self.free = use.free - sum(max(unallocated, 0.0) for unallocated in missing)
            # what processes of others have allocated is taken to be a part of what they reserved
            allocated = sum(process.memory or 0.0 for process in use.others)
            self.free -= max(held_by_others - allocated, 0.0)

    def suits(self, spec: Spec) -> bool:
        """Return whether the job could run here if nobody else used the device."""
        large_enough = self.total is None or spec.memory <= self.total
        # CUDA gives a process one MIG instance at most
        alone = not self.device.instance or spec.gpus == 1
        return not self.drained and of_type(self.device, spec) and large_enough and alone

    def booked_against(self, spec: Spec, at: float) -> Booking | None:
        """Return the first booking that keeps the job from starting here at this time.

        One that is to begin does so unless the job's time limit is up by then, or the job is
        suspended when it begins, as by a booking that frees its GPUs, or as a preemptible job.
        """
        over = at + spec.timeout + MARGIN_S if spec.timeout else math.inf
        for booking in self.bookings:
            meets = booking.begin < over and at < booking.end
            if (booking.frees or spec.preemptible) and at < booking.begin:
                continue
            if meets and not booking.admits(spec.user, spec.group):
                return booking
        return None

    def opens_at(self, spec: Spec, at: float) -> float:
        """Return the first moment from `at` on at which no booking keeps the job from starting."""
        while (booking := self.booked_against(spec, at)) is not None:
            at = booking.end
        return at

    def has_room(self, spec: Spec, respect_reservations: bool = True) -> bool:
        """Return whether the job can start here now."""
        if self.booked_against(spec, self.now) is not None:
            return False
        return self.is_vacant(spec, respect_reservations)

    def is_vacant(self, spec: Spec, respect_reservations: bool = True) -> bool:
        """Return whether the job could start here now but for bookings."""
        if self.exclusive or self.unread or not self.suits(spec):
            return False
        if spec.when_idle and self.busy is not None:
            return False
        if not spec.memory:
            reserved = respect_reservations and self.reserved_for
            return not (self.holders or self.others or self.held_by_others or reserved)
        reserved_bytes = self.reserved if respect_reservations else 0.0
        return self.free is not None and spec.memory <= self.free - reserved_bytes

    def takes_back(self, job: Job) -> bool:
        """Return whether a suspended job can come back here now.

        A device that accepts no new jobs takes back those that it had.
        """
        if self.unread or self.exclusive or self.is_kept_from(job.spec):
            return False
        shares = bool(job.spec.memory)
        taken = self.holders or self.others or self.held_by_others or self.reserved_for
        if not shares and taken:
            return False
        return self.free is None or memory_on_return(job) <= self.free - self.reserved

    def is_kept_from(self, spec: Spec) -> bool:
        """Return whether a booking keeps such a job from being here now."""
        return any(
            booking.is_on(self.now) and not booking.admits(spec.user, spec.group)
            for booking in self.bookings
        )

    def place(self, job: Job) -> None:
        """Let the job start here."""
        self.holders.append(job)
        self.exclusive = not job.spec.memory
        if self.free is not None:
            self.free -= job.spec.memory

    def reserve(self, job: Job) -> None:
        """Let the job wait for this device."""
        fits = job.spec.memory and self.has_room(job.spec, respect_reservations=False)
        self.reserved_for = job
        self.reserved = float(job.spec.memory) if fits else max(self.free or 0.0, 0.0)


def memory_on_return(job: Job) -> int:
    """Return the bytes that a suspended job needs on each of its devices."""
    suspension = suspension_of(job)
    assert suspension is not None
    return max(job.spec.memory, suspension.memory // max(len(running(job).devices), 1))


def make_slots(
    jobs: Iterable[Job], devices: Sequence[Device], availability: Availability, now: float = 0.0
) -> list[Slot]:
    """Return the devices that run jobs, with those of the running jobs that hold them."""
    holders: dict[str, list[Job]] = {}
    for job in jobs:
        for device in held_devices(job):
            holders.setdefault(device, []).append(job)
    uses, drained = availability.uses, availability.drained
    return [
        Slot(
            d,
            holders.get(d.id, ()),
            uses.get(d.id),
            d.id in drained,
            availability.held_by_others.get(d.id, 0.0),
            [booking for booking in availability.bookings if d.id in booking.gpus],
            now,
            availability.holders.get(d.id),
            availability.busy.get(d.id),
        )
        for d in devices
        if d.kind != "replay"
    ]


def choose(
    spec: Spec, slots: Sequence[Slot], respect_reservations: bool = True
) -> list[Slot] | None:
    """Return the devices on which the job starts now; None where it cannot.

    Jobs that share are spread: to the device with the fewest others, then with the most memory.
    """
    fitting = [slot for slot in slots if slot.has_room(spec, respect_reservations)]
    if spec.memory:
        fitting.sort(key=lambda slot: (len(slot.holders), -(slot.free or 0.0), slot.device.index))
    return fitting[: spec.gpus] if len(fitting) >= spec.gpus else None


def of_type(device: Device, spec: Spec) -> bool:
    """Return whether the device is one that the job asks for, by its type, label or UUID."""
    wanted = spec.gpu_type.lower()
    return wanted in device.name.lower() or wanted in (label(device).lower(), device.id.lower())
