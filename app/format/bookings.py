"""List the bookings of GPUs as rows, for the window and the command line. Free of Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpudeck.app.language.texts import tr, tr_list, tr_moment, tr_noop, tr_text
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.snapshot import Snapshot, label
from gpudeck.scheduler.verbs.bookings import Booked

Phase = Literal["Upcoming", "Now", "Over"]
_PHASES = (tr_noop("Upcoming"), tr_noop("Now"), tr_noop("Over"))


@dataclass(frozen=True)
class BookingRow:
    """One booking as a row of a table."""

    key: int
    """Its number."""
    cells: tuple[str, ...]
    """Its number, GPUs, holder, begin, end and phase."""
    phase: Phase
    tooltip: str = ""


def booking_rows(snapshot: Snapshot) -> tuple[BookingRow, ...]:
    """Return a row for each booking in order of their begin, those that are over last."""
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
        tr_text(booking.holder),
        tr_moment(booking.begin, now),
        tr_moment(booking.end, now),
    )
    shown = tr(phase(booking, now))
    if booking.daily:
        shown = tr("{phase}, every day", phase=shown)
    return BookingRow(number, (*cells, shown), phase(booking, now))


def phase(booking: Booking, now: float) -> Phase:
    """Return whether a booking is to come, holds now, or is over."""
    if now < booking.begin:
        return "Upcoming"
    return "Now" if now < booking.end else "Over"


def gpu_names(booking: Booking, snapshot: Snapshot) -> str:
    """Return the GPUs of a booking as people call them."""
    labels = {state.device.id: label(state.device) for state in snapshot.devices}
    return ", ".join(labels.get(gpu, gpu) for gpu in booking.gpus)


def outlook(snapshot: Snapshot) -> str:
    """Say which GPUs are reserved now, and which will be next; empty where none are."""
    now, texts = snapshot.time, []
    known = sorted(snapshot.settings.reservations.values(), key=lambda booking: booking.begin)
    for booking in known:
        if booking.end > now:
            values = {
                "gpus": gpu_names(booking, snapshot),
                "holder": tr_text(booking.holder),
                "begin": tr_moment(booking.begin, now),
                "end": tr_moment(booking.end, now),
            }
            if booking.begin > now:
                texts.append(tr("{gpus} for {holder} from {begin} until {end}", **values))
            else:
                texts.append(tr("{gpus} for {holder} now until {end}", **values))
    return tr("Reserved: {bookings}", bookings="; ".join(texts)) if texts else ""


def freed_text(made: Booked, booking: Booking, snapshot: Snapshot) -> list[str]:
    """Say which GPUs are free now and until when, which jobs left them, and which did not."""
    now, gpus = snapshot.time, gpu_names(booking, snapshot)
    end = tr_moment(booking.end, now)
    if booking.begin > now:
        begin = tr_moment(booking.begin, now)
        text = tr("{gpus}: kept free from {begin} until {end}", gpus=gpus, begin=begin, end=end)
    else:
        text = tr("{gpus}: kept free until {end}", gpus=gpus, end=end)
    if booking.daily:
        text = tr("{text}, and every day at these times", text=text)
    lines = [text]
    if made.freed.left:
        jobs = tr_list(made.freed.left)
        lines.append(tr("Suspended, and back by themselves afterwards: {jobs}", jobs=jobs))
    if made.freed.asked:
        jobs = tr_list(made.freed.asked)
        lines.append(tr("Asked to end, and queued again with their artefacts: {jobs}", jobs=jobs))
    lines += [
        tr("Job {job} runs on: {why}", job=job, why=tr_text(why))
        for job, why in made.freed.stayed.items()
    ]
    command = f"gpudeck reserve cancel {made.number}"
    return [*lines, tr("To end it earlier: {command}", command=command)]


def outlasting_text(jobs: Sequence[int]) -> str:
    """Say which jobs may still run when a booking begins; empty where none does."""
    if not jobs:
        return ""
    if len(jobs) == 1:
        return tr("Job {job} may run on: no time limit ends it before the begin", job=jobs[0])
    numbers = tr_list(jobs)
    return tr("Jobs {jobs} may run on: no time limit ends them before the begin", jobs=numbers)
