"""GPUs that are kept for somebody for a time: the setting `reservations`."""

from __future__ import annotations

import pwd
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from math import ceil, floor
from typing import Annotated

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.users import name_user

DAY_S = 86_400.0
KEPT_S = DAY_S
"""Seconds for which a booking that is over stays in the list."""
Moment = Annotated[float, msgspec.Meta(gt=0, lt=2**33)]


class Freed(msgspec.Struct, frozen=True):
    """Tell what became of the jobs on GPUs that were freed, by their numbers."""

    left: tuple[int, ...] = ()
    """Jobs that were suspended."""
    asked: tuple[int, ...] = ()
    """Resumable jobs that were asked to end, and are queued again."""
    stayed: dict[int, Message] = {}
    """Why the others run on."""


class Booking(msgspec.Struct, frozen=True):
    """Describe one booking of GPUs for a time."""

    gpus: tuple[str, ...]
    """The ids of the GPUs, each once."""
    begin: Moment
    """Seconds since the epoch."""
    end: Moment
    user: int | None = None
    """Whose jobs may run there; None: no user's, or with a group every user's of that group."""
    group: str = ""
    """The group whose jobs may run there; empty: all jobs of the user."""
    frees: bool = False
    """Other jobs that run there when it begins are suspended until it is over."""
    daily: bool = False
    """It is repeated every day."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "gpus", tuple(dict.fromkeys(self.gpus)))

    def admits(self, user: int | None, group: str) -> bool:
        """Return whether a job of this user and group may run there meanwhile."""
        if self.group and group != self.group:
            return False
        return user == self.user if self.user is not None else bool(self.group)

    def is_on(self, now: float) -> bool:
        """Return whether the GPUs are kept at this time."""
        return self.begin <= now < self.end

    @property
    def holder(self) -> Message:
        """Return whom the GPUs are kept for."""
        if self.group and self.user is not None:
            user = name_user(self.user)
            return phrase("group {group} of {user}", group=self.group, user=user)
        if self.group:
            return phrase("group {group}", group=self.group)
        return phrase("work outside of the queue") if self.user is None else name_user(self.user)


def user_id(name: str) -> int:
    """Return the number of a user of this machine. Raises NotFound, and UserError for no name."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as e:
        raise NotFound(phrase("this machine has no user {name}", name=name)) from e
    except ValueError as e:
        raise UserError(phrase("{name} is no name of a user", name=ascii(name))) from e


def next_number(known: Mapping[str, Booking]) -> int:
    """Return the number of a further booking."""
    return 1 + max(map(int, known), default=0)


def overlapping(known: Mapping[str, Booking], new: Booking) -> Iterable[str]:
    """Yield the numbers of bookings of one of the same GPUs at the same time."""
    for number, other in known.items():
        same = not set(other.gpus).isdisjoint(new.gpus)
        if same and _overlap(other, new):
            yield number


def _overlap(one: Booking, other: Booking) -> bool:
    """Return whether two bookings are ever on at the same time, with their repetitions."""
    if one.daily and not other.daily:
        one, other = other, one
    if not other.daily:
        return one.begin < other.end and other.begin < one.end
    # where both are daily, each day is like any other
    days = floor((one.begin - other.end) / DAY_S)
    first, last = days - 1, days + 2 + ceil((one.end - one.begin) / DAY_S)
    if not one.daily:
        first = max(first, 0)
    later = (_on_day(other, n) for n in range(first, last + 1))
    return any(one.begin < end and begin < one.end for begin, end in later)


def _on_day(booking: Booking, days: int) -> tuple[float, float]:
    """Return when a daily booking is on so many days later, at the same times of the day."""
    times = (datetime.fromtimestamp(at) + timedelta(days) for at in (booking.begin, booking.end))
    begin, end = (time.timestamp() for time in times)
    return begin, end


def renewed(booking: Booking, now: float) -> Booking:
    """Return a daily booking as it is next, at the same times of the day."""
    times = [datetime.fromtimestamp(at) for at in (booking.begin, booking.end)]
    days = max((datetime.fromtimestamp(now) - times[1]).days, 0)
    while (times[1] + timedelta(days)).timestamp() <= now:
        days += 1
    begin, end = _on_day(booking, days)
    return msgspec.structs.replace(booking, begin=begin, end=end)


def current(known: Mapping[str, Booking], now: float) -> dict[str, Booking]:
    """Return the bookings without those that have been over for a while."""
    return {n: b for n, b in known.items() if b.daily or b.end > now - KEPT_S}
