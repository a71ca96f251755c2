"""Say which devices are free, and which will be next. Free of Qt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudeck.app.format.values import device_label, shortest_label
from gpudeck.app.language.texts import tr, tr_moment, tr_text
from gpudeck.language.numbers import amount
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.busy_causes import (
    Asleep,
    JobWaits,
    Loaded,
    QuietHours,
    Settling,
)
from gpudeck.scheduler.protocol.draining import is_drained
from gpudeck.scheduler.protocol.jobs import Job, suspension_of
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Idle, Snapshot

_NAMED = 8
"""Free devices that are named; more are counted only."""
_UNUSED = (Asleep, JobWaits, QuietHours, Settling)
"""The causes that keep the assistant from a device which nobody uses."""


@dataclass(frozen=True)
class FreeDevices:
    """Hold what is free as texts for people; the texts are empty where only recordings are."""

    free: tuple[str, ...]
    """The ids of the free devices."""
    headline: str
    """Such as "3 of 8 free: 5, 6, 7"."""
    next: str
    """Such as "next: GPU 2 about 21:15"; empty where that is unknown or all are free."""
    suspended: str = ""
    """Such as "suspended jobs hold 30 GiB of this machine's memory"; empty where none do."""

    @property
    def text(self) -> str:
        """Return all of it in one line."""
        return "; ".join(filter(None, (self.headline, self.next, self.suspended)))


def free_devices(snapshot: Snapshot) -> FreeDevices:
    """Return which devices of this machine a job could use at once; recordings run no jobs."""
    states = [s for s in snapshot.devices if not s.device.host and s.device.kind != "replay"]
    free = [state for state in states if is_free(state, snapshot.settings)]
    names = ", ".join(shortest_label(device_label(state.device)) for state in free)
    counts = {"n": len(free), "total": len(states)}
    if not states:
        headline = "" if snapshot.devices else tr("No device can be read")
    elif len(states) == 1:
        headline = _headline(states[0], bool(free), snapshot)
    elif free and len(free) <= _NAMED:
        headline = tr("{n} of {total} free: {names}", **counts, names=names)
    else:
        headline = tr("{n} of {total} free", **counts)
    return FreeDevices(
        tuple(state.device.id for state in free),
        headline,
        _next(snapshot, [state for state in states if state not in free]),
        _suspended(snapshot),
    )


def _headline(state: DeviceState, free: bool, snapshot: Snapshot) -> str:
    """Say of the only device whether it is free, reserved, in use, or loaded by what is no job."""
    device, use, now = device_label(state.device), state.use, snapshot.time
    booking = _booking(snapshot.settings.reservations.values(), state.device.id, now)
    if booking is not None and not state.holders:
        holder, end = tr_text(booking.holder), tr_moment(booking.end, now)
        return tr(
            "{device} is reserved for {holder} until {end}", device=device, holder=holder, end=end
        )
    if free:
        return tr("{device} is free", device=device)
    if isinstance(use, Busy) and isinstance(use.cause, Loaded):
        percent = f"{use.cause.percent:.0f}"
        return tr("{device} has no job, and is {percent} % busy", device=device, percent=percent)
    return tr("{device} is in use", device=device)


def _suspended(snapshot: Snapshot) -> str:
    """Say how much host memory suspended jobs hold."""
    held = sum(away.memory for away in map(suspension_of, snapshot.jobs) if away is not None)
    if not held:
        return ""
    return tr("suspended jobs hold {size} of this machine's memory", size=amount(held))


def is_free(state: DeviceState, settings: Settings) -> bool:
    """Return whether nobody uses the device, and a job could start on it at once."""
    device, use = state.device, state.use
    unusable = device.kind == "replay" or device.silent or device.mig
    if state.holders or unusable or is_drained(settings, device):
        return False
    if isinstance(use, Idle) or isinstance(use.cause, _UNUSED):
        return True
    return device.kind == "cpu" and not isinstance(use.cause, Loaded)


def free_memory(state: DeviceState, jobs: Sequence[Job]) -> float | None:
    """Return how many bytes of a device a job could reserve now; None where that is unknown.

    What other jobs have reserved is not free, even while they have not allocated it.
    """
    values = state.reading.values if state.reading else {}
    total, used = values.get("mem_total"), values.get("mem_used")
    if total is None or used is None or state.device.mig:
        return None
    holders = [job for job in jobs if job.id in state.holders]
    if any(not job.spec.memory for job in holders):
        return 0.0
    return max(total - max(used, sum(job.spec.memory for job in holders)), 0.0)


def largest_memory(snapshot: Snapshot) -> float | None:
    """Return the bytes of the GPU with the most memory; None where none is known."""
    readings = (s.reading for s in snapshot.devices if s.reading and s.device.kind != "cpu")
    totals = (reading.values.get("mem_total") for reading in readings)
    return max((total for total in totals if total is not None), default=None)


def _next(snapshot: Snapshot, busy: Sequence[DeviceState]) -> str:
    """Return which of these devices will be free first."""
    jobs = {job.id: job for job in snapshot.jobs}
    found: list[tuple[float, DeviceState]] = []
    for state in busy:
        ends = [
            None if (job := jobs.get(number)) is None else expected_end(job, snapshot.time)
            for number in state.holders
        ]
        known = [end.at for end in ends if end is not None]
        if known and len(known) == len(ends):
            at = max(known)
            if _booking(snapshot.settings.reservations.values(), state.device.id, at) is None:
                found.append((at, state))
    if not found:
        return ""
    at, state = min(found, key=lambda one: (one[0], one[1].device.index))
    time = tr_moment(at, snapshot.time)
    if sum(not s.device.host for s in snapshot.devices) == 1:
        return tr("free about {time}", time=time)
    return tr("next: {device} about {time}", device=device_label(state.device), time=time)


def _booking(bookings: Iterable[Booking], device: str, at: float) -> Booking | None:
    """Return the booking of the device at this time; None where nobody reserved it."""
    return next((b for b in bookings if device in b.gpus and b.begin <= at < b.end), None)
