"""The causes that make a device busy, as values, and the one function that words them."""

from __future__ import annotations

import time

import msgspec

from gpudeck.language.numbers import clock
from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.units import numbered


class HeldByJobs(msgspec.Struct, frozen=True, tag="held by jobs"):
    """Name the jobs that run on the device."""

    jobs: tuple[int, ...]


class HeldByOthers(msgspec.Struct, frozen=True, tag="held by others"):
    """Describe a device that the queue of another user holds, or a part of it."""


class JobWaits(msgspec.Struct, frozen=True, tag="job waits"):
    """Name the job that waits for a GPU."""

    job: int


class QuietHours(msgspec.Struct, frozen=True, tag="quiet hours"):
    """Quote the hours in which the assistant uses no GPU."""

    hours: str


class Reserved(msgspec.Struct, frozen=True, tag="reserved"):
    """Describe a device that is kept for somebody for a time."""

    holder: Message
    until: float
    """Seconds since the epoch."""


class NoReading(msgspec.Struct, frozen=True, tag="no reading"):
    """Describe a device of which there is no current reading."""


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """Describe a device that is no longer there."""


class NotResponding(msgspec.Struct, frozen=True, tag="not responding"):
    """Quote the note of a device that does not answer."""

    note: str


class Unreachable(msgspec.Struct, frozen=True, tag="unreachable"):
    """Describe a device of another machine that cannot be reached."""

    since: float
    """Seconds since the epoch."""
    why: str


class Asleep(msgspec.Struct, frozen=True, tag="asleep"):
    """Describe a device that sleeps, and would be woken by a question."""

    since: float
    """When it was found asleep, in seconds since the epoch."""


class OtherProcesses(msgspec.Struct, frozen=True, tag="other processes"):
    """Count the processes that compute on the device and are not ours."""

    count: int


class ExclusiveProgram(msgspec.Struct, frozen=True, tag="exclusive program"):
    """Name a program that the settings reserve the device for."""

    name: str


class UtilisationUnknown(msgspec.Struct, frozen=True, tag="utilisation unknown"):
    """Describe a device whose utilisation cannot be read."""


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """State a utilisation above the limit."""

    percent: float


class Settling(msgspec.Struct, frozen=True, tag="settling"):
    """State for how long the device has been quiet, and how long it must be."""

    quiet_s: float
    dwell_s: float


BusyCause = (
    HeldByJobs
    | HeldByOthers
    | JobWaits
    | QuietHours
    | Reserved
    | NoReading
    | Removed
    | NotResponding
    | Unreachable
    | Asleep
    | OtherProcesses
    | ExclusiveProgram
    | UtilisationUnknown
    | Loaded
    | Settling
)


_PLAIN: dict[type[BusyCause], str] = {
    HeldByOthers: "in use by another user's queue",
    NoReading: "no current reading",
    Removed: "it can no longer be read",
    UtilisationUnknown: "utilisation cannot be read",
}
"""The phrases of causes without values."""


def explain(cause: BusyCause) -> str:
    """Return the phrase that tells a person why a device is not idle."""
    match cause:
        case HeldByJobs(jobs):
            return f"{numbered(jobs)} run{'s' if len(jobs) == 1 else ''}"
        case JobWaits(job):
            return f"job {job} waits"
        case QuietHours(hours):
            return f"quiet hours, {hours}"
        case Reserved(holder, until):
            return f"reserved for {holder} until {clock(until, time.time())}"
        case NotResponding(note):
            return note
        case Unreachable(since, why):
            return f"unreachable since {clock(since, time.time())}: {why}"
        case Asleep(since):
            return f"asleep since {clock(since, time.time())}"
        case OtherProcesses(count):
            return f"{count} process{'es' if count > 1 else ''} of others"
        case ExclusiveProgram(name):
            return f"{name} runs with exclusive use"
        case Loaded(percent):
            return f"utilisation {percent:.0f} %"
        case Settling(quiet_s, dwell_s):
            return f"idle in {max(0, dwell_s - quiet_s):.0f} s"
        case _:
            return _PLAIN[type(cause)]
