"""Every sentence on a waiting job, its end, an alert and the clean-up is translated, as a whole."""

from __future__ import annotations

import re
from datetime import datetime
from typing import get_args

import pytest

from gpudeck.assistant.housekeeping.in_use import CHANGED
from gpudeck.assistant.housekeeping.leftovers import REASON
from gpudeck.assistant.housekeeping.restoring import TAKEN
from gpudeck.language.languages import Language
from gpudeck.language.rendering import render, render_moment
from gpudeck.language.text import Message, Moment, Text, phrase
from gpudeck.scheduler.protocol.busy_causes import HeldByJobs, QuietHours
from gpudeck.scheduler.protocol.devices import Device, Process, Reading
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.recovery import recovery_action, recovery_text
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import HostState
from gpudeck.scheduler.protocol.wait_reasons import (
    AfterJobs,
    AllDrained,
    Behind,
    BehindUser,
    Blocker,
    Booked,
    ClusterFull,
    ClusterMissing,
    ClusterUnavailable,
    DependencyFailed,
    Drained,
    End,
    EnvironmentMissing,
    FolderUnreadable,
    GroupFull,
    GroupPaused,
    Held,
    HeldBy,
    HeldByAdmin,
    HeldByOthers,
    JustTaken,
    LockHolder,
    MemoryFree,
    MemoryHeldByOthers,
    MemoryUnknown,
    Needs,
    NoDevices,
    NoProcessor,
    NoReading,
    NoRoom,
    NotBefore,
    NotConsidered,
    NotIdle,
    OtherDevices,
    Preempts,
    QueuePaused,
    ReplayShown,
    RetryLater,
    SharedBy,
    SpecDamaged,
    StartFailed,
    StartsNow,
    TakesTurn,
    TooFewGpus,
    TooFewOfType,
    TooLittleMemory,
    Unseen,
    UsedBy,
    UserGpus,
    UserHours,
    WaitReason,
)
from gpudeck.scheduler.protocol.wait_texts import explain, headline
from gpudeck.scheduler.telemetry.alert_rules import (
    DEVICE_RULES,
    HOST_RULES,
    JOB_RULES,
    DeviceSubject,
    HostSubject,
    JobSubject,
    Wording,
)
from gpudeck.scheduler.telemetry.hysteresis import Thresholds

LANGUAGES: tuple[Language, ...] = ("de", "fr", "es")
NOW, SOON, LATER = 1_764_000_000.0, 1_764_003_600.0, 1_764_300_000.0
GIB = 2.0**30
ENGLISH = re.compile(
    r"\b(the|is|of|has|had|and|until|by|free|needs|waits|waiting|it|its|from|more|about|at|have|"
    r"this|are|which|held|job had|over|for|been|not|ended|was (?:held|over|throttled))\b",
    re.IGNORECASE,
)

PROCESS = Process(4711, "python3", "ada", 2.0**31)
HOLDERS = (LockHolder(4711, "ada"), Unseen())
BLOCKERS: tuple[Blocker, ...] = (
    Drained("GPU 0", mig=False),
    Drained("GPU 1", mig=True),
    Booked("GPU 2", phrase("group {group} of {user}", group="g1", user="ada"), SOON, LATER),
    Booked("GPU 3", phrase("work outside of the queue"), NOW - 60, SOON),
    HeldBy("GPU 4", 12, "x1, x2", End(SOON)),
    HeldBy("CPU", 12, "x1", End(LATER, latest=True)),
    HeldBy("GPU 5", 12, "x1", None),
    SharedBy("GPU 6", (3, 4, 5)),
    SharedBy("lab1 GPU 6", (3,)),
    UsedBy("GPU 7", PROCESS, 2),
    UsedBy("GPU 7", Process(5, "x1"), 0),
    HeldByOthers("GPU 0"),
    HeldByOthers("GPU 0", 2.5 * GIB),
    MemoryHeldByOthers("GPU 0", 1.5 * GIB, 2 * GIB),
    *(HeldByOthers("GPU 0", size, who) for size in (0.0, 2.5 * GIB) for who in HOLDERS),
    *(MemoryHeldByOthers("GPU 0", 1.5 * GIB, 2 * GIB, who) for who in HOLDERS),
    NoReading("GPU 0"),
    MemoryUnknown("GPU 0"),
    MemoryFree("GPU 0", 3 * GIB),
    MemoryFree("GPU 0", 3 * GIB, 12),
    MemoryFree("GPU 0", 3 * GIB, 12, End(SOON)),
    MemoryFree("GPU 0", 3 * GIB, user=UsedBy("GPU 0", PROCESS, 0)),
)
ON_ONE, ON_TWO = Needs(1, 20 * 2**30), Needs(2, 20 * 2**30, "h100")
REASONS: tuple[WaitReason, ...] = (
    NotConsidered(),
    StartsNow(),
    QueuePaused(),
    Held(7),
    HeldByAdmin(),
    EnvironmentMissing(),
    SpecDamaged(),
    AfterJobs((3,), "x1"),
    AfterJobs((3,), "x1", End(LATER)),
    AfterJobs((3, 4, 5)),
    DependencyFailed(3, "failed"),
    DependencyFailed(3, "cancelled"),
    DependencyFailed(3, "lost"),
    NotBefore(LATER),
    RetryLater(2, SOON),
    StartFailed(phrase("{cluster} is not in the settings", cluster="ray:lab")),
    FolderUnreadable(LATER, "x1"),
    JustTaken("GPU 0"),
    GroupPaused("g1"),
    GroupFull("g1", 2, 2),
    UserGpus(4, 4),
    UserHours(12.5, 12.0),
    NoProcessor(4, 4),
    ClusterUnavailable("ray:lab", LATER, "x1"),
    ClusterMissing("ray:lab"),
    ClusterFull("ray:lab", 5),
    Behind(3),
    Preempts((3,), 8.0),
    Preempts((3, 5), 8.0),
    TakesTurn((3, 5), 8.0),
    BehindUser(3, 12.5, 0.5),
    NoDevices(),
    ReplayShown(),
    *(OtherDevices(kind, "cpu") for kind in ("nvidia", "amd", "intel", "cpu")),
    TooFewGpus(2, 1, cpu=False),
    TooFewGpus(1, 0, cpu=True),
    TooFewOfType(2, "h100", 1, ("NVIDIA A100", "NVIDIA L4")),
    TooLittleMemory(ON_ONE, 16 * GIB),
    TooLittleMemory(ON_TWO, 16 * GIB),
    TooLittleMemory(Needs(1, 20 * 2**30, cpu=True), 16 * GIB),
    AllDrained(Needs(1), ("GPU 0", "GPU 1"), mig=False),
    AllDrained(Needs(1, gpu_type="h100"), ("GPU 0",), mig=True),
    NoRoom(Needs(2), BLOCKERS, 0),
    NoRoom(Needs(1, cpu=True), BLOCKERS[5:6], 0),
    NoRoom(ON_ONE, BLOCKERS, more=3),
    NoRoom(ON_TWO, (), 1),
    NotIdle((("GPU 0", HeldByJobs((3, 4))), ("GPU 1", QuietHours("08:00-18:00")))),
    NotIdle((("CPU", HeldByJobs((3,))),), cpu=True),
)
FOUND = (
    REASON,
    CHANGED,
    TAKEN,
)


def alerts() -> list[Text]:
    """Return the texts of all alerts, while their causes last and after that."""
    job = Job(12, Spec(("x",), "/x", "x1"), NOW, Queued())
    values = {
        "temp": 95.0, "mem_used": 99.0, "mem_total": 100.0, "ecc_uncorrected": 2.0,
        "rows_failure": 1.0, "xid_count": 3.0, "xid": 79.0,
    }  # fmt: skip
    texts = {"throttle": "hardware slow-down, too hot (software)"}
    device = Device("u1", 0, "H100", "nvidia")
    found: list[Wording] = []
    for known in ({}, {"temp_limit": 90.0}, {"temp_limit": 95.0}):
        for action in range(1, 8):
            reading = Reading(
                "u1", NOW, {**values, **known, "recovery_action": float(action)}, texts=texts,
                processes=(Process(7, "x2", memory=2.0**31),),
            )  # fmt: skip
            subject = DeviceSubject("REPLAY GPU 0", device, reading, job, Settings(), 5.0)
            found += (rule.text(subject, Thresholds(1, 1, 60, 10)) for rule in DEVICE_RULES)
    host = HostState("lab1", "lab1", NOW, "x1")
    found += (rule.text(HostSubject(host, 5.0), Thresholds(5, 5)) for rule in HOST_RULES)
    found += (rule.text(JobSubject(job, 5.0), Thresholds(5, 5)) for rule in JOB_RULES)
    return [
        text
        for wording in found
        for text in (wording.now, wording.over, phrase("{sub}; clears soon", sub=wording.over))
    ]


def check(sentence: Message) -> None:
    """Find a sentence translated into all languages, without an English word."""
    for language in LANGUAGES:
        found = render(sentence, language)
        assert found != str(sentence), f"{language}: {sentence}"
        assert not ENGLISH.search(found), f"{language}: {sentence!r} became {found!r}"


def test_all_kinds_of_reasons_are_rendered_here() -> None:
    assert {type(reason) for reason in REASONS} == set(get_args(WaitReason))
    assert {type(blocker) for blocker in BLOCKERS} == set(get_args(Blocker))


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: type(reason).__name__)
def test_every_reason_why_a_job_waits_is_translated(reason: WaitReason) -> None:
    check(explain(reason, NOW))
    check(headline(reason, NOW))


def test_every_blocker_is_translated_in_a_list_with_others() -> None:
    for blocker in BLOCKERS:
        check(explain(NoRoom(ON_ONE, (blocker, Drained("GPU 9", mig=False))), NOW))


def test_what_is_found_on_disk_is_translated() -> None:
    for sentence in FOUND:
        check(sentence)


def test_every_alert_is_translated() -> None:
    for sentence in alerts():
        check(sentence)
    assert recovery_text(8.0) == "recovery action 8"
    check(recovery_action(8.0))


def test_days_and_months_are_named_in_the_language() -> None:
    at = Moment(datetime(2026, 3, 23, 8).timestamp(), "day")
    assert render_moment(at, "de") == "Mo 23 März, 08:00"
    assert render_moment(at, "fr") == "lun 23 mars, 08:00"
    assert render_moment(at, "es") == "lun 23 mar, 08:00"
