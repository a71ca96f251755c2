"""Say why a field has no value: a tagged union of causes, and `explain`, the one place that words
them."""

from __future__ import annotations

from typing import Literal

import msgspec

from gpudeck.language.text import Message, Text, phrase

Cause = Literal[
    "unread",
    "unreported",
    "unrecorded",
    "first reading",
    "short interval",
    "nothing counted",
    "counters",
    "peak bandwidth",
    "NVLink",
    "NVLink errors",
    "disk",
    "network",
    "temperature sensor",
    "CPU clock",
    "RAPL",
    "RAPL permission",
    "job counts",
    "asleep",
    "falling asleep",
]
_SENTENCES: dict[Cause, Text] = {
    "unread": phrase("no reading yet"),
    "unreported": phrase("not reported by this device"),
    "unrecorded": phrase("not recorded"),
    "first reading": phrase("not known before the second reading"),
    "short interval": phrase("read too soon after the last reading"),
    "nothing counted": phrase("GPM counted nothing in this interval"),
    "counters": phrase("the counters or the clock cannot be read"),
    "peak bandwidth": phrase("the peak bandwidth of this card is not known"),
    "NVLink": phrase("this card has no NVLink"),
    "NVLink errors": phrase("NVML counts no errors of these links"),
    "disk": phrase("this machine shows no disk"),
    "network": phrase("this machine shows no network"),
    "temperature sensor": phrase("this kernel exposes no CPU temperature sensor (hwmon)"),
    "CPU clock": phrase("this kernel does not expose the CPU clock"),
    "RAPL": phrase("this kernel exposes no RAPL energy counter (/sys/class/powercap)"),
    "RAPL permission": phrase("only root may read the RAPL energy counter (/sys/class/powercap)"),
    "job counts": phrase("known only while a job counts its own"),
    "asleep": phrase("the device sleeps, and reading it would wake it"),
    "falling asleep": phrase("not in use, and not read so that it can fall asleep"),
}


class Unavailable(msgspec.Struct, frozen=True, tag="unavailable"):
    """Name the cause, where nothing else is known about it."""

    cause: Cause


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Quote the error of the interface that was asked."""

    interface: Literal["NVML", "GPM"]
    message: str


class Unreadable(msgspec.Struct, frozen=True, tag="unreadable"):
    """Quote the error of the operating system for a counter that exists."""

    counter: str
    message: str


class NoCounters(msgspec.Struct, frozen=True, tag="no counters"):
    """Describe a GPU or driver without the hardware counters of GPM."""

    message: str


class RateUnknown(msgspec.Struct, frozen=True, tag="rate unknown"):
    """Describe a GPU whose FLOP per cycle nobody has measured."""

    capability: tuple[int, int]


Absence = str | Text | Unavailable | Refused | Unreadable | NoCounters | RateUnknown
"""A string is the sentence of a recording, where the cause itself is not kept."""


def explain(absence: Absence) -> Message:
    """Return the text that tells a person why a field has no value."""
    match absence:
        case str() | Text():
            return absence
        case Unavailable(cause):
            return _SENTENCES[cause]
        case Refused(interface, message):
            return f"{interface}: {message}"
        case Unreadable(counter, message):
            return phrase("{name} cannot be read: {problem}", name=counter, problem=message)
        case NoCounters(message):
            return phrase(
                "no hardware counters: GPM needs Hopper or later (driver says: {quote})",
                quote=message,
            )
        case RateUnknown((major, minor)):
            return phrase(
                "the FLOP per cycle of compute capability {version} was not measured yet",
                version=f"{major}.{minor}",
            )
