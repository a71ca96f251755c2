"""The table of alert rules: for each the setting of its threshold, its level and its text. Pure.

The default of a threshold is in `scheduler.protocol.settings`; when an alert is raised and cleared
at a given threshold is in DEVICE_RULES and JOB_RULES below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from scheduler.protocol.devices import NA, Device, Reading
from scheduler.protocol.jobs import Job
from scheduler.protocol.recovery import recovery_text
from scheduler.protocol.settings import Settings
from scheduler.protocol.snapshot import HostState
from scheduler.protocol.units import span
from scheduler.telemetry.hysteresis import Thresholds

DEFAULT_SLOWDOWN_TEMP = 90.0
"""°C; assumed for a GPU that does not report its slow-down temperature."""
SLOWED = frozenset(
    {"hardware slow-down", "too hot (software)", "too hot (hardware)", "power brake"}
)
"""Unwanted reasons to hold the clocks down; a power limit is the user's own choice."""
CAPPED = frozenset({"power limit"})
CORRECTED = "ecc_corrected"
_ERRORS = {
    "ecc_uncorrected": "memory errors that could not be corrected",
    "rows_failure": "failed remapping of a memory row",
    "xid_count": "Xid errors of the driver",
}
_MINUTE = 60.0
Subject = TypeVar("Subject")


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
    text: Callable[[Subject, Thresholds], str]
    """Returns what the alert tells people."""
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


def _hot(subject: DeviceSubject, _: Thresholds) -> str:
    values = subject.reading.values
    above = _above_limit(subject) or 0.0
    text = (
        f"{subject.label} is at {values['temp']:.0f} °C, {abs(above):.0f} °C "
        f"{'above' if above > 0 else 'below'} its slow-down temperature"
    )
    if "temp_limit" in values or "temp_margin" in values:
        return text
    return f"{text}, assumed to be {DEFAULT_SLOWDOWN_TEMP:.0f} °C"


def _memory(subject: DeviceSubject) -> float | None:
    used, total = subject.reading.get("mem_used"), subject.reading.get("mem_total")
    if isinstance(used, NA) or isinstance(total, NA) or not total > 0:
        return None
    return 100 * used / total


def _throttled_by(reasons: frozenset[str]) -> Callable[[DeviceSubject], float | None]:
    def level(subject: DeviceSubject) -> float | None:
        text = subject.reading.texts.get("throttle")
        return None if text is None else float(not reasons.isdisjoint(text.split(", ")))

    return level


def _slowed(subject: DeviceSubject, thresholds: Thresholds) -> str:
    reasons = subject.reading.texts["throttle"].split(", ")
    why = ", ".join(r for r in reasons if r in SLOWED)
    return f"{subject.label} has been throttled for {span(thresholds.raise_s)}: {why}"


def _errors(subject: DeviceSubject) -> float | None:
    counts = [v for field in _ERRORS if (v := subject.reading.values.get(field)) is not None]
    return sum(counts) if counts else None


def _faulty(subject: DeviceSubject, _: Thresholds) -> str:
    values = subject.reading.values
    found = [f"{v:.0f} {name}" for field, name in _ERRORS.items() if (v := values.get(field))]
    last = f" (the last: Xid {values['xid']:.0f})" if values.get("xid") else ""
    return f"{subject.label} has had {', '.join(found)}{last}"


def _unused(subject: DeviceSubject) -> float | None:
    util = subject.reading.get("util")
    if subject.job is None or subject.device.kind == "cpu":
        return 0.0
    return None if isinstance(util, NA) else float(util <= subject.settings.idle_util_percent)


def _held_idle(subject: DeviceSubject, thresholds: Thresholds) -> str:
    job = subject.job
    assert job is not None, "the rule is about a job"
    return (
        f"{subject.label} is held by job {job.id} ({job.spec.name}), "
        f"and has been idle for {span(thresholds.raise_s)}"
    )


def _stalled(subject: JobSubject, thresholds: Thresholds) -> str:
    job, limit = subject.job, span(thresholds.raise_at * _MINUTE)
    return f"job {job.id} ({job.spec.name}) has made no progress for {limit}"


DEVICE_RULES: tuple[AlertRule[DeviceSubject], ...] = (
    AlertRule(
        "too hot",
        "alert_temperature",
        lambda margin: Thresholds(-margin, -margin - 3, 10, 30),
        _above_limit,
        _hot,
    ),
    AlertRule(
        "memory nearly full",
        "alert_memory",
        lambda percent: Thresholds(percent, percent - 3, 60, 30),
        _memory,
        lambda s, _: f"the memory of {s.label} is {_memory(s) or 0:.0f} % full",
    ),
    AlertRule(
        "throttled",
        "alert_slowdown",
        lambda seconds: Thresholds(1, 1, seconds, 10),
        _throttled_by(SLOWED),
        _slowed,
    ),
    AlertRule(
        "at its power limit",
        "alert_power_cap",
        lambda seconds: Thresholds(1, 1, seconds, 10),
        _throttled_by(CAPPED),
        lambda s, t: f"{s.label} has been throttled by its power limit for {span(t.raise_s)}",
    ),
    AlertRule(
        "hardware errors",
        "alert_errors",
        lambda count: Thresholds(max(count, 1), max(count, 1)),
        _errors,
        _faulty,
    ),
    AlertRule(
        "recovery needed",
        "alert_errors",
        lambda _: Thresholds(1, 1),
        lambda s: s.reading.values.get("recovery_action"),
        lambda s, _: (
            f"{s.label}: the driver asks for {recovery_text(s.reading.values['recovery_action'])}"
        ),
    ),
    AlertRule(
        "memory errors",
        "alert_corrected",
        lambda count: Thresholds(max(count, 1), max(count, 1)),
        lambda s: s.corrected,
        lambda s, _: f"{s.label} has corrected {s.corrected or 0:.0f} memory errors within an hour",
    ),
    AlertRule(
        "reserved but idle",
        "alert_idle_job",
        lambda minutes: Thresholds(1, 1, minutes * _MINUTE),
        _unused,
        _held_idle,
        per_job=True,
    ),
)

HOST_RULES: tuple[AlertRule[HostSubject], ...] = (
    AlertRule(
        "machine unreachable",
        "alert_host",
        lambda minutes: Thresholds(minutes, minutes),
        lambda s: s.unreachable_min,
        lambda s, t: (
            f"{s.host.name} has been unreachable for {span(t.raise_at * _MINUTE)}: {s.host.problem}"
        ),
    ),
)

JOB_RULES: tuple[AlertRule[JobSubject], ...] = (
    AlertRule(
        "no progress",
        "alert_stuck_job",
        lambda minutes: Thresholds(minutes, minutes),
        lambda s: s.stalled_min,
        _stalled,
    ),
)
