"""Causes are values with one wording each, and printed JSON keeps the sentences."""

from __future__ import annotations

import msgspec
import pytest

from gpudeck.language.numbers import clock
from gpudeck.scheduler.protocol import absence, busy_causes
from gpudeck.scheduler.protocol.absence import (
    NoCounters,
    RateUnknown,
    Refused,
    Unavailable,
    Unreadable,
)
from gpudeck.scheduler.protocol.busy_causes import (
    ExclusiveProgram,
    HeldByJobs,
    HeldByOthers,
    JobWaits,
    Loaded,
    NoReading,
    NotResponding,
    OtherProcesses,
    QuietHours,
    Removed,
    Reserved,
    Settling,
    UtilisationUnknown,
)
from gpudeck.scheduler.protocol.devices import NA, Device, Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Busy, DeviceState, Snapshot, printable

BUSY = [
    (HeldByJobs((3,)), "job 3 runs"),
    (HeldByJobs((3, 4)), "jobs 3 and 4 run"),
    (HeldByOthers(), "in use by another user's queue"),
    (JobWaits(5), "job 5 waits"),
    (QuietHours("22:00-07:00"), "quiet hours, 22:00-07:00"),
    (Reserved("group night", 0.0), f"reserved for group night until {clock(0.0, 1e9)}"),
    (NoReading(), "no current reading"),
    (Removed(), "it can no longer be read"),
    (NotResponding("GPU 1 does not answer: lost"), "GPU 1 does not answer: lost"),
    (OtherProcesses(1), "1 process of others"),
    (OtherProcesses(2), "2 processes of others"),
    (ExclusiveProgram("blender"), "blender runs with exclusive use"),
    (UtilisationUnknown(), "utilisation cannot be read"),
    (Loaded(93.4), "utilisation 93 %"),
    (Settling(3.2, 15.0), "idle in 12 s"),
]
ABSENT = [
    ("a sentence of a recording", "a sentence of a recording"),
    (Refused("NVML", "Not Supported"), "NVML: Not Supported"),
    (Unreadable("the counter", "I/O error"), "the counter cannot be read: I/O error"),
    (
        NoCounters("Not Supported"),
        "no hardware counters: GPM needs Hopper or later (driver says: Not Supported)",
    ),
    (
        RateUnknown((10, 0)),
        "the FLOP per cycle of compute capability 10.0 was not measured yet",
    ),
    (Unavailable("NVLink"), "this card has no NVLink"),
]


@pytest.mark.parametrize(("cause", "text"), BUSY)
def test_each_cause_of_a_busy_device_has_one_wording(
    cause: busy_causes.BusyCause, text: str
) -> None:
    assert str(Busy(cause).reason) == text
    assert msgspec.json.decode(msgspec.json.encode(Busy(cause)), type=Busy) == Busy(cause)


@pytest.mark.parametrize(("cause", "text"), ABSENT)
def test_each_cause_of_an_absent_field_has_one_wording(cause: absence.Absence, text: str) -> None:
    assert str(NA(cause).reason) == text
    assert msgspec.json.decode(msgspec.json.encode(NA(cause)), type=NA) == NA(cause)


def test_every_unavailable_field_is_explained() -> None:
    for cause in absence.Cause.__args__:
        assert absence.explain(Unavailable(cause))


def test_printed_json_has_sentences_and_no_causes() -> None:
    device = Device("GPU-0", 0, "H100", "nvidia")
    reading = Reading("GPU-0", 1.0, {"util": 0.0}, {"fan": Refused("NVML", "Not Supported")})
    state = DeviceState(device, reading, Busy(JobWaits(3)))
    printed = printable(Snapshot(1, 1.0, (state,), (), Settings(), "nvml"))["devices"][0]
    assert printed["use"] == {"type": "busy", "reason": "job 3 waits"}
    assert printed["device"]["silent"] == ""
    assert printed["reading"]["absent"] == {"fan": "NVML: Not Supported"}
    assert printed["reading"]["otherwise"] == "not reported by this device"
