"""Reserve devices for the first job that cannot start, and let shorter jobs use them meanwhile.

Devices that are reserved and free would idle until the last one is free. A later job may use them
before (backfill) if its time limit is up before the reserved job can possibly start. That moment is
a lower bound: devices whose end nobody knows, as under a job without a time limit or under
processes that are not ours, count as free at once.

So backfill never delays a reserved job as long as jobs use their time limits. Where one ends
earlier than its limit, the reserved job starts at the latest when it would if none did. This is
EASY backfilling, with a reservation for each type of GPU instead of one: conservative backfilling,
which reserves for every job that waits, costs time for each of them and starts fewer early.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.wait_reasons import End
from gpudeck.scheduler.queue.placement import MARGIN_S, Slot, choose

MAX_CONSIDERED = 500
"""Waiting jobs that one pass considers: it must be short, however many wait."""


class Backfill:
    """Keep until when each device is free for jobs that leave it in time, during one pass.

    Args:
        preempting: Jobs for which others are suspended now, so that they start at once.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        ends: Mapping[int, End],
        now: float,
        preempting: Container[int] = (),
    ) -> None:
        self._slots, self._now = slots, now
        waiting = {job.id: job for slot in slots if (job := slot.reserved_for) is not None}
        at = {
            n: now if n in preempting else earliest_start(job.spec, slots, ends, now)
            for n, job in waiting.items()
        }
        self._until = [
            min((at[n] for n, job in waiting.items() if _needs(job, slot)), default=math.inf)
            for slot in slots
        ]
        """For each slot when the first job could start that waits for it."""
        self._last = max(self._until, default=now)
        self._groups = {job.spec.group for job in waiting.values()}
        """Another job of a limited group could keep those of it that wait from starting."""

    @property
    def possible(self) -> bool:
        """Return whether any device can be used before it is needed."""
        return any(
            (slot.reserved_for is not None or slot.bookings)
            and not (slot.exclusive or slot.others or slot.unread)
            and until > self._now + MARGIN_S
            for slot, until in zip(self._slots, self._until, strict=True)
        )

    def place(self, job: Job, limited: bool) -> tuple[str, ...] | None:
        """Place a job that ends in time; None where there is no such place.

        Args:
            limited: the job's group runs a limited number of jobs.
        """
        if not job.spec.timeout or (limited and job.spec.group in self._groups):
            return None
        over = self._now + job.spec.timeout + MARGIN_S
        if over > self._last:
            return None
        open_slots = [
            slot for slot, until in zip(self._slots, self._until, strict=True) if over <= until
        ]
        found = choose(job.spec, open_slots, respect_reservations=False)
        if found is None:
            return None
        for slot in found:
            slot.place(job)
        return tuple(slot.device.id for slot in found)


def _needs(job: Job, slot: Slot) -> bool:
    """Return whether a job with a reservation may start on the device before others have.

    One that shares devices may also take what the reservation of another leaves.
    """
    return job is slot.reserved_for or (bool(job.spec.memory) and slot.suits(job.spec))


def reserve(job: Job, slots: Sequence[Slot], ends: Mapping[int, End], now: float) -> None:
    """Reserve as many devices as the job needs, so that those after it do not starve it.

    First come devices that have what it needs, then those that will have it first, then those that
    jobs share, and last those with processes that are not ours. Whatever comes free among the
    devices that suit it goes to it first, as it is placed first.
    """
    suiting = [
        slot
        for slot in slots
        if slot.reserved_for is None
        and slot.suits(job.spec)
        and slot.booked_against(job.spec, now) is None
    ]

    def order(slot: Slot) -> tuple[bool, bool, float, bool, int]:
        foreign = bool(slot.others or slot.held_by_others) or slot.unread
        at = free_at(job.spec, slot, ends, now)
        room = slot.has_room(job.spec)
        return not room, foreign, math.inf if at is None else at, slot.exclusive, slot.device.index

    for slot in sorted(suiting, key=order)[: job.spec.gpus]:
        slot.reserve(job)


def earliest_start(spec: Spec, slots: Iterable[Slot], ends: Mapping[int, End], now: float) -> float:
    """Return the first moment at which enough devices for the job could be free.

    Args:
        ends: when running jobs are expected to end.
        now: seconds since the epoch.
    """
    times = sorted(
        slot.opens_at(spec, now) if (known := free_at(spec, slot, ends, now)) is None else known
        for slot in slots
        if slot.suits(spec)
    )
    return times[spec.gpus - 1] if len(times) >= spec.gpus else now


def free_at(spec: Spec, slot: Slot, ends: Mapping[int, End], now: float) -> float | None:
    """Return when the job can start on the device, if all jobs there use their time limits.

    None where that is unknown.
    """
    at = _vacant_at(spec, slot, ends, now)
    return None if at is None else slot.opens_at(spec, at)


def _vacant_at(spec: Spec, slot: Slot, ends: Mapping[int, End], now: float) -> float | None:
    if slot.is_vacant(spec, respect_reservations=False):
        return now
    if slot.others or slot.held_by_others or slot.unread:
        return None
    times = {job.id: _end(job, ends, now) for job in slot.holders}
    known = [time for time in times.values() if time is not None]
    if not spec.memory or slot.exclusive:
        return max(known) if known and len(known) == len(times) else None
    if slot.free is None:
        return None
    free = slot.free
    for job in sorted(slot.holders, key=lambda job: (times[job.id] or 0.0, job.id)):
        free += max(job.spec.memory, slot.used.get(job.id, 0.0))
        if free >= spec.memory:
            return times[job.id]
    return None


def _end(job: Job, ends: Mapping[int, End], now: float) -> float | None:
    """Return when a job ends at the latest; None where it has no time limit."""
    if not job.spec.timeout:
        return None
    if isinstance(job.state, Queued):  # it starts in this pass
        return now + job.spec.timeout
    return ends[job.id].at if job.id in ends else None
