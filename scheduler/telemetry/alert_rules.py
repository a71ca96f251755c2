"""The table of alert rules: for each the setting of its threshold, its level and its text. Pure.

The default of a threshold is in `gpudeck.scheduler.protocol.settings`; when an alert is raised and
cleared at a given threshold is in DEVICE_RULES and JOB_RULES below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gpudeck.language.numbers import GIB
from gpudeck.language.text import Bytes, Span, Text, Value, joined, mark_phrase, phrase
from gpudeck.scheduler.protocol.devices import NA, Device, Process, Reading
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.recovery import recovery_action
from gpudeck.scheduler.protocol.settings import Settings, listed
from gpudeck.scheduler.protocol.snapshot import HostState
from gpudeck.scheduler.telemetry.hysteresis import Thresholds

DEFAULT_SLOWDOWN_TEMP = 90.0
"""°C; assumed for a GPU that does not report its slow-down temperature."""
SLOWED = frozenset(
    {
        mark_phrase("hardware slow-down"),
        mark_phrase("too hot (software)"),
        mark_phrase("too hot (hardware)"),
        mark_phrase("power brake"),
    }
)
"""Unwanted reasons to hold the clocks down; a power limit is the user's own choice."""
CAPPED = frozenset({mark_phrase("power limit")})
CORRECTED = "ecc_corrected"
_ERRORS = {
    "ecc_uncorrected": mark_phrase("{n} memory errors that could not be corrected"),
    "rows_failure": mark_phrase("{n} failed remapping of a memory row"),
    "xid_count": mark_phrase("{n} Xid errors of the driver"),
}
_MINUTE = 60.0
_MUCH = GIB
"""Bytes of a GPU from which on a program that does nothing is worth an alert."""
Subject = TypeVar("Subject")


class Wording(NamedTuple):
    """Hold what an alert tells people."""

    now: Text
    """While its cause lasts."""
    over: Text
    """Once it is cleared."""
    process: int | None = None
    """The pid of the program that it is about."""


class DeviceSubject(NamedTuple):
    """Describe one device, as a rule sees it."""

    label: str
    """GPU 0."""
    device: Device
    reading: Reading
    job: Job | None
    """The job that holds the device, for a rule that is about a job."""
    settings: Settings
    corrected: float | None
    """Memory errors corrected within the hour; None where it is not known."""


class JobSubject(NamedTuple):
    """Describe one job that runs, as a rule sees it."""

    job: Job
    stalled_min: float
    """Minutes since it last reported progress."""


class HostSubject(NamedTuple):
    """Describe one machine that is watched over ssh, as a rule sees it."""

    host: HostState
    unreachable_min: float
    """Minutes since it could last be reached; 0 while it can."""


@dataclass(frozen=True)
class AlertRule(Generic[Subject]):
    """Define when an alert is raised."""

    name: str
    setting: str
    """The name of the setting that holds the threshold, or switches the rule off."""
    thresholds: Callable[[float], Thresholds]
    """Returns the limits of the level, given the setting's value."""
    level: Callable[[Subject], float | None]
    """Returns the level that is compared with the limits; None where it is not known."""
    text: Callable[[Subject, Thresholds], Wording]
    """Returns what was exceeded, and the level as the highest so far."""
    per_job: bool = False
    """Start anew with each job that holds the device."""


def _above_limit(subject: DeviceSubject) -> float | None:
    """Return °C above the slow-down temperature, negative below: by the card's own margin if
    any."""
    temp, margin = subject.reading.get("temp"), subject.reading.get("temp_margin")
    if isinstance(temp, NA) or subject.device.kind == "cpu":
        return None
    if not isinstance(margin, NA):
        return -margin
    return temp - subject.reading.values.get("temp_limit", DEFAULT_SLOWDOWN_TEMP)


def _hot(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    values, device = subject.reading.values, subject.label
    peak = values["temp"]
    limit = round(peak - (_above_limit(subject) or 0.0) + thresholds.raise_at)
    if round(peak) <= limit:
        now = phrase("{device} is at its alert level of {degrees} °C", device=device, degrees=limit)
        over = phrase(
            "{device} was at its alert level of {degrees} °C", device=device, degrees=limit
        )
    else:
        shown: dict[str, Value] = {"device": device, "degrees": limit, "peak": round(peak)}
        now = phrase("{device} is over {degrees} °C, peak {peak} °C", **shown)
        over = phrase("{device} was over {degrees} °C, peak {peak} °C", **shown)
    if "temp_limit" in values or "temp_margin" in values:
        return Wording(now, over)
    return Wording(_assumed(now), _assumed(over))


def _assumed(text: Text) -> Text:
    return phrase(
        "{text} (assumed to slow down at {limit} °C)", text=text, limit=round(DEFAULT_SLOWDOWN_TEMP)
    )


def _memory(subject: DeviceSubject) -> float | None:
    used, total = subject.reading.get("mem_used"), subject.reading.get("mem_total")
    if isinstance(used, NA) or isinstance(total, NA) or not total > 0:
        return None
    return 100 * used / total


def _full(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    shown: dict[str, Value] = {
        "device": subject.label,
        "percent": round(thresholds.raise_at),
        "peak": round(_memory(subject) or 0),
    }
    return Wording(
        phrase("the memory of {device} is over {percent} % full, peak {peak} %", **shown),
        phrase("the memory of {device} was over {percent} % full, peak {peak} %", **shown),
    )


def _throttled_by(reasons: frozenset[str]) -> Callable[[DeviceSubject], float | None]:
    def level(subject: DeviceSubject) -> float | None:
        text = subject.reading.texts.get("throttle")
        return None if text is None else float(not reasons.isdisjoint(text.split(", ")))

    return level


def _slowed(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    reasons = subject.reading.texts["throttle"].split(", ")
    why = joined(Text(reason) for reason in reasons if reason in SLOWED)
    device, least = subject.label, Span(thresholds.raise_s)
    return Wording(
        phrase(
            "{device} has been throttled for over {span}: {rest}",
            device=device,
            span=least,
            rest=why,
        ),
        phrase(
            "{device} was throttled for over {span}: {rest}", device=device, span=least, rest=why
        ),
    )


def _capped(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    device, least = subject.label, Span(thresholds.raise_s)
    return Wording(
        phrase(
            "{device} has been throttled by its power limit for over {span}",
            device=device,
            span=least,
        ),
        phrase(
            "{device} was throttled by its power limit for over {span}", device=device, span=least
        ),
    )


def _errors(subject: DeviceSubject) -> float | None:
    counts = [v for field in _ERRORS if (v := subject.reading.values.get(field)) is not None]
    return sum(counts) if counts else None


def _faulty(subject: DeviceSubject, _: Thresholds) -> Wording:
    values, device = subject.reading.values, subject.label
    faults = joined(
        Text(name, (("n", round(count)),))
        for field, name in _ERRORS.items()
        if (count := values.get(field))
    )
    if not (xid := values.get("xid")):
        return Wording(
            phrase("{device} has had {faults}", device=device, faults=faults),
            phrase("{device} had {faults}", device=device, faults=faults),
        )
    shown: dict[str, Value] = {"device": device, "faults": faults, "n": round(xid)}
    return Wording(
        phrase("{device} has had {faults} (the last: Xid {n})", **shown),
        phrase("{device} had {faults} (the last: Xid {n})", **shown),
    )


def _recover(subject: DeviceSubject, _: Thresholds) -> Wording:
    device, action = subject.label, recovery_action(subject.reading.values["recovery_action"])
    return Wording(
        phrase("{device}: the driver asks for {action}", device=device, action=action),
        phrase("{device}: the driver asked for {action}", device=device, action=action),
    )


def _corrected(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    shown: dict[str, Value] = {
        "device": subject.label,
        "n": round(subject.corrected or 0),
        "limit": round(thresholds.raise_at),
    }
    return Wording(
        phrase("{device} has corrected {n} memory errors within an hour (limit {limit})", **shown),
        phrase("{device} corrected {n} memory errors within an hour (limit {limit})", **shown),
    )


def _unused(subject: DeviceSubject) -> float | None:
    util = subject.reading.get("util")
    if subject.job is None or subject.device.kind == "cpu":
        return 0.0
    return None if isinstance(util, NA) else float(util <= subject.settings.idle_util_percent)


def _held_idle(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    job = subject.job
    assert job is not None, "the rule is about a job"
    shown: dict[str, Value] = {
        "device": subject.label,
        "job": job.id,
        "name": job.spec.name,
        "span": Span(thresholds.raise_s),
    }
    return Wording(
        phrase(
            "{device} is held by job {job} ({name}), and has been idle for over {span}", **shown
        ),
        phrase("{device} was held by job {job} ({name}), and idle for over {span}", **shown),
    )


def _idle_program(subject: DeviceSubject) -> float | None:
    """Return 1 where a program has held memory for as long as the setting says, and the GPU does
    nothing now."""
    program, util = _largest_program(subject), subject.reading.get("util")
    minutes = subject.settings.alert_idle_memory
    if program is None or subject.device.kind == "cpu" or isinstance(minutes, str):
        return 0.0
    if program.start and subject.reading.time - program.start < minutes * _MINUTE:
        return 0.0
    return None if isinstance(util, NA) else float(util <= subject.settings.idle_util_percent)


def _largest_program(subject: DeviceSubject) -> Process | None:
    """Return the program outside of the queue that holds most memory; None where none holds much.

    Ignored programs, such as a server that always runs, do not count.
    """
    ignored = listed(subject.settings.ignored_programs)
    known = [
        process
        for process in subject.reading.processes
        if process.foreign and process.name not in ignored and (process.memory or 0.0) >= _MUCH
    ]
    return max(known, key=lambda p: p.memory or 0.0, default=None)


def _idle_memory(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    program = _largest_program(subject)
    assert program is not None, "the rule is about a program"
    name = phrase("{name} (PID {pid})", name=program.name, pid=program.pid)
    if program.notebook:
        name = phrase(
            "{name} (PID {pid}, notebook {notebook})",
            name=program.name,
            pid=program.pid,
            notebook=program.notebook,
        )
    shown: dict[str, Value] = {
        "program": name,
        "size": Bytes(int(program.memory or 0.0)),
        "device": subject.label,
        "span": Span(thresholds.raise_s),
    }
    return Wording(
        phrase("{program} has held {size} of {device} and done nothing for {span}", **shown),
        phrase("{program} held {size} of {device} and did nothing for {span}", **shown),
        program.pid,
    )


def _unreachable(subject: HostSubject, thresholds: Thresholds) -> Wording:
    shown: dict[str, Value] = {
        "host": subject.host.name,
        "span": Span(thresholds.raise_at * _MINUTE),
        "problem": subject.host.problem or "",
    }
    return Wording(
        phrase("{host} has been unreachable for over {span}: {problem}", **shown),
        phrase("{host} was unreachable for over {span}: {problem}", **shown),
    )


def _stalled(subject: JobSubject, thresholds: Thresholds) -> Wording:
    job, least = subject.job, Span(thresholds.raise_at * _MINUTE)
    shown: dict[str, Value] = {"job": job.id, "name": job.spec.name, "span": least}
    return Wording(
        phrase("job {job} ({name}) has made no progress for over {span}", **shown),
        phrase("job {job} ({name}) made no progress for over {span}", **shown),
    )


DEVICE_RULES: tuple[AlertRule[DeviceSubject], ...] = (
    AlertRule(
        mark_phrase("too hot"),
        "alert_temperature",
        lambda margin: Thresholds(-margin, -margin - 3, 10, 30),
        _above_limit,
        _hot,
    ),
    AlertRule(
        mark_phrase("memory nearly full"),
        "alert_memory",
        lambda percent: Thresholds(percent, percent - 3, 60, 30),
        _memory,
        _full,
    ),
    AlertRule(
        mark_phrase("throttled"),
        "alert_slowdown",
        lambda seconds: Thresholds(1, 1, seconds, 10),
        _throttled_by(SLOWED),
        _slowed,
    ),
    AlertRule(
        mark_phrase("at its power limit"),
        "alert_power_cap",
        lambda seconds: Thresholds(1, 1, seconds, 10),
        _throttled_by(CAPPED),
        _capped,
    ),
    AlertRule(
        mark_phrase("hardware errors"),
        "alert_errors",
        lambda count: Thresholds(max(count, 1), max(count, 1)),
        _errors,
        _faulty,
    ),
    AlertRule(
        mark_phrase("recovery needed"),
        "alert_errors",
        lambda _: Thresholds(1, 1),
        lambda s: s.reading.values.get("recovery_action"),
        _recover,
    ),
    AlertRule(
        mark_phrase("memory errors"),
        "alert_corrected",
        lambda count: Thresholds(max(count, 1), max(count, 1)),
        lambda s: s.corrected,
        _corrected,
    ),
    AlertRule(
        mark_phrase("reserved but idle"),
        "alert_idle_job",
        lambda minutes: Thresholds(1, 1, minutes * _MINUTE),
        _unused,
        _held_idle,
        per_job=True,
    ),
    AlertRule(
        mark_phrase("memory held idle"),
        "alert_idle_memory",
        lambda minutes: Thresholds(1, 1, minutes * _MINUTE),
        _idle_program,
        _idle_memory,
    ),
)

HOST_RULES: tuple[AlertRule[HostSubject], ...] = (
    AlertRule(
        mark_phrase("machine unreachable"),
        "alert_host",
        lambda minutes: Thresholds(minutes, minutes),
        lambda s: s.unreachable_min,
        _unreachable,
    ),
)

JOB_RULES: tuple[AlertRule[JobSubject], ...] = (
    AlertRule(
        mark_phrase("no progress"),
        "alert_stuck_job",
        lambda minutes: Thresholds(minutes, minutes),
        lambda s: s.stalled_min,
        _stalled,
    ),
)
