"""Reserve GPUs for a time, and cancel that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

import msgspec

from gpudeck.language.text import moment, phrase
from gpudeck.scheduler.protocol.bookings import Booking, Freed, current, next_number, overlapping
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job, Running, held_devices
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class Booked(msgspec.Struct, frozen=True):
    """Describe a booking that was made."""

    number: int
    outlasting: tuple[int, ...] = ()
    """Running jobs that may hold one of the GPUs after the beginning."""
    freed: Freed = Freed()
    """What became of the jobs there, where the booking frees the GPUs at once."""


class Reserve(Request[Booked], frozen=True, tag="reserve"):
    """Keep GPUs for a user or a group for a time."""

    permission: ClassVar[Permission] = "administrators"

    booking: Booking

    async def handle(self, daemon: Daemon, peer: Peer) -> Booked:
        snapshot, new, now = daemon.snapshot(), self.booking, time.time()
        known = current(snapshot.settings.reservations, now)
        _check(new, {state.device.id for state in snapshot.devices}, now)
        if new.user is not None and daemon.owner(peer) is None:
            raise UserError(
                phrase(
                    "a queue of your own has one user: name a group, or nobody to keep the GPUs "
                    "free"
                )
            )
        for taken in overlapping(known, new):
            other = known[taken]
            raise UserError(
                phrase(
                    "booking {number} keeps one of these GPUs for {holder} from {begin} to {end}. "
                    "To cancel it: gpudeck reserve cancel {number}",
                    number=taken,
                    holder=other.holder,
                    begin=moment(other.begin, now),
                    end=moment(other.end, now),
                )
            )
        number = next_number(snapshot.settings.reservations)
        await daemon.configure({"reservations": {**known, str(number): new}})
        if not new.frees:
            return Booked(number, tuple(_outlasting(daemon.queue.running, new)))
        freed = await daemon.free(new)
        return Booked(number, tuple(freed.stayed), freed)


class CancelBooking(Request[None], frozen=True, tag="cancel_reservation"):
    """Cancel a booking, or end it now."""

    permission: ClassVar[Permission] = "administrators"

    number: int

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        known = dict(daemon.snapshot().settings.reservations)
        if known.pop(str(self.number), None) is None:
            raise NotFound(
                phrase("there is no booking {number}. See: gpudeck reserve", number=self.number)
            )
        await daemon.configure({"reservations": current(known, time.time())})


def _check(booking: Booking, devices: set[str], now: float) -> None:
    """Raise UserError where the booking makes no sense."""
    if not booking.gpus or not devices.issuperset(booking.gpus):
        raise UserError(phrase("a booking names GPUs of this machine. See: gpudeck status"))
    if booking.end <= max(booking.begin, now):
        raise UserError(
            phrase(
                "a booking ends after it begins, and in the future: {begin} to {end} does not",
                begin=moment(booking.begin, now),
                end=moment(booking.end, now),
            )
        )
    if "\0" in booking.group or len(booking.group) > 200:
        raise UserError(phrase("a group has a name of up to 200 characters"))


def _outlasting(running: Iterable[Job], booking: Booking) -> Iterable[int]:
    """Yield the jobs that may hold one of the GPUs after the beginning."""
    for job in running:
        spec, state = job.spec, job.state
        if booking.admits(spec.user, spec.group) or not isinstance(state, Running):
            continue
        over = spec.timeout and state.at + spec.timeout <= booking.begin
        if not over and not set(held_devices(job)).isdisjoint(booking.gpus):
            yield job.id
