"""Read the booking that the user types. Free of Qt."""

from __future__ import annotations

import re

from gpudeck.app.format.bookings import gpu_names
from gpudeck.app.format.values import duration
from gpudeck.app.language.texts import tr, tr_moment, tr_text
from gpudeck.scheduler.protocol.bookings import Booking, user_id
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.units import parse_begin


def read_booking(
    gpus: str, begin: str, until: str, group: str, user: str, snapshot: Snapshot, now: float
) -> Booking:
    """Return the booking that these texts describe. Raises UserError that says what to type.

    Args:
        gpus: Numbers and ranges of numbers, such as "0, 2-3".
        begin: When it begins; empty for now.
        until: When it ends; a span counts from the begin.
        group: The group whose jobs may run; may be empty.
        user: The user whose jobs may run; may be empty.
        now: Seconds since the epoch.
    """
    chosen = _chosen(gpus, snapshot)
    if not until.strip():
        raise UserError(tr("enter when it ends, such as 08:00 or +2h"))
    starts = parse_begin(begin, now) if begin.strip() else now
    uid = None
    if user.strip():
        try:
            uid = user_id(user.strip())
        except UserError as e:
            text = tr("this machine has no user {user}", user=ascii(user.strip()))
            raise UserError(text) from e
    return Booking(chosen, starts, parse_begin(until, starts), uid, group.strip())


def _chosen(text: str, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the ids of the devices of this machine with these numbers."""
    here = {s.device.number: s.device.id for s in snapshot.devices if not s.device.host}
    found: dict[str, None] = {}
    for part in re.split(r"[\s,;]+", text.strip()):
        if part in here:
            found[here[part]] = None
            continue
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part)
        if match is None:
            raise UserError(tr("enter the numbers of GPUs, such as 0, 2-3"))
        first, last = int(match[1]), int(match[2] or match[1])
        for index in range(first, last + 1) or (first,):
            if str(index) not in here:
                raise UserError(tr("there is no GPU {n} on this machine", n=index))
            found[here[str(index)]] = None
    return tuple(found)


def describe_booking(booking: Booking, snapshot: Snapshot) -> str:
    """Return what a booking means, in one sentence."""
    now = snapshot.time
    return tr(
        "{gpus} for {holder}, {begin} to {end} ({time})",
        gpus=gpu_names(booking, snapshot),
        holder=tr_text(booking.holder),
        begin=tr_moment(booking.begin, now),
        end=tr_moment(booking.end, now),
        time=duration(max(booking.end - booking.begin, 0.0)),
    )
