"""The causes that make a device busy, as values, and the one function that makes texts of them."""

from __future__ import annotations

import msgspec

from gpudeck.language.text import Message, Number, Text, joined, moment, phrase


class HeldByJobs(msgspec.Struct, frozen=True, tag="held by jobs"):
    """Name the jobs that run on the device."""

    jobs: tuple[int, ...]


class HeldByOthers(msgspec.Struct, frozen=True, tag="held by others"):
    """Describe a device that the queue of another user holds, or a part of it."""


class JobWaits(msgspec.Struct, frozen=True, tag="job waits"):
    """Name the job that waits for a GPU."""

    job: int


class Lent(msgspec.Struct, frozen=True, tag="lent"):
    """Describe a device that the assistant has, or is about to get."""


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

    note: Message


class Unreachable(msgspec.Struct, frozen=True, tag="unreachable"):
    """Describe a device of another machine that cannot be reached."""

    since: float
    """Seconds since the epoch."""
    why: Message


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
    | Lent
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


_PLAIN: dict[type[BusyCause], Text] = {
    HeldByOthers: phrase("in use by another user's queue"),
    Lent: phrase("the assistant, or other work that waited for it, has it"),
    NoReading: phrase("no current reading"),
    Removed: phrase("it can no longer be read"),
    UtilisationUnknown: phrase("utilisation cannot be read"),
}
"""The texts of causes without values."""


def left_of(cause: Settling) -> Number:
    """Return the seconds for which the device must still be quiet."""
    return Number(max(0.0, cause.dwell_s - cause.quiet_s), ".0f", "s")


def explain(cause: BusyCause) -> Message:  # noqa: PLR0912 - one line a cause
    """Return the text that tells a person why a device is not idle."""
    match cause:
        case HeldByJobs((job,)):
            return phrase("job {job} runs", job=job)
        case HeldByJobs(jobs):
            first, last = joined(jobs[:-1]), jobs[-1]
            return phrase("jobs {numbers} and {job} run", numbers=first, job=last)
        case JobWaits(job):
            return phrase("job {job} waits", job=job)
        case QuietHours(hours):
            return phrase("quiet hours, {hours}", hours=hours)
        case Reserved(holder, until):
            return phrase("reserved for {holder} until {time}", holder=holder, time=moment(until))
        case NotResponding(note):
            return note
        case Unreachable(since, why):
            return phrase("unreachable since {time}: {problem}", time=moment(since), problem=why)
        case Asleep(since):
            return phrase("asleep since {time}", time=moment(since))
        case OtherProcesses(1):
            return phrase("1 process of others")
        case OtherProcesses(count):
            return phrase("{n} processes of others", n=count)
        case ExclusiveProgram(name):
            return phrase("{name} runs with exclusive use", name=name)
        case Loaded(percent):
            return phrase("utilisation {amount}", amount=Number(percent, ".0f", "%"))
        case Settling():
            return phrase("idle in {amount}", amount=left_of(cause))
        case _:
            return _PLAIN[type(cause)]
