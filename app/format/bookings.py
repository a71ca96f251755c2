"""List the reservations of GPUs as rows, for the window and the command line. Free of Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scheduler.protocol.bookings import Booking
from scheduler.protocol.snapshot import Snapshot, label
from scheduler.protocol.units import clock, numbered

Phase = Literal["Upcoming", "Now", "Over"]


@dataclass(frozen=True)
class BookingRow:
    """One reservation as a row of a table."""

    key: int
    """Its number."""
    cells: tuple[str, ...]
    """Its number, GPUs, holder, begin, end and phase."""
    phase: Phase
    tooltip: str = ""


def booking_rows(snapshot: Snapshot) -> tuple[BookingRow, ...]:
    """Return a row for each reservation in order of their begin, those that are over last."""
    known = snapshot.settings.reservations.items()
    rows = (
        _row(int(number), booking, snapshot)
        for number, booking in sorted(known, key=lambda item: item[1].begin)
    )
    return tuple(sorted(rows, key=lambda row: row.phase == "Over"))


def _row(number: int, booking: Booking, snapshot: Snapshot) -> BookingRow:
    now = snapshot.time
    cells = (
        str(number),
        gpu_names(booking, snapshot),
        booking.holder,
        clock(booking.begin, now),
        clock(booking.end, now),
    )
    return BookingRow(number, (*cells, phase(booking, now)), phase(booking, now))


def phase(booking: Booking, now: float) -> Phase:
    """Return whether a reservation is to come, holds now, or is over."""
    if now < booking.begin:
        return "Upcoming"
    return "Now" if now < booking.end else "Over"


def gpu_names(booking: Booking, snapshot: Snapshot) -> str:
    """Return the GPUs of a reservation as people call them."""
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    return ", ".join(labels.get(gpu, gpu) for gpu in booking.gpus)


def outlook(snapshot: Snapshot) -> str:
    """Say which GPUs are reserved now, and which will be next; empty where none are."""
    now, texts = snapshot.time, []
    known = sorted(snapshot.settings.reservations.values(), key=lambda booking: booking.begin)
    for booking in known:
        if booking.end > now:
            when = f"from {clock(booking.begin, now)}" if booking.begin > now else "now"
            who = f"for {booking.holder} {when} until {clock(booking.end, now)}"
            texts.append(f"{gpu_names(booking, snapshot)} {who}")
    return "Reserved: " + "; ".join(texts) if texts else ""


def outlasting_text(jobs: Sequence[int]) -> str:
    """Say which jobs may still run when a reservation begins; empty where none does."""
    if not jobs:
        return ""
    first = numbered(jobs)
    them = "it" if len(jobs) == 1 else "them"
    return f"{first[0].upper()}{first[1:]} may run on: no time limit ends {them} before the begin"
