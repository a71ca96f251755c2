"""The table of alert rules: for each the setting of its threshold, its level and its text. Pure.

The default of a threshold is in `gpudeck.scheduler.protocol.settings`; when an alert is raised and
cleared at a given threshold is in DEVICE_RULES and JOB_RULES below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gpudeck.language.numbers import span
from gpudeck.scheduler.protocol.devices import NA, Device, Reading
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.recovery import recovery_text
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import HostState
from gpudeck.scheduler.telemetry.hysteresis import Thresholds

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


class Wording(NamedTuple):
    """Hold what an alert tells people."""

    now: str
    """While its cause lasts."""
    over: str
    """Once it is cleared."""


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


def _tenses(subject: str, verbs: tuple[str, str], rest: str) -> Wording:
    """Return a sentence with the verb of the present, and with that of the past."""
    now, over = verbs
    return Wording(f"{subject} {now} {rest}", f"{subject} {over} {rest}")


_BE, _HAVE_BEEN = ("is", "was"), ("has been", "was")


def _hot(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    values = subject.reading.values
    peak = values["temp"]
    limit = peak - (_above_limit(subject) or 0.0) + thresholds.raise_at
    rest = f"over {limit:.0f} °C, peak {peak:.0f} °C"
    if round(peak) <= round(limit):
        rest = f"at its alert level of {limit:.0f} °C"
    if "temp_limit" not in values and "temp_margin" not in values:
        rest += f" (assumed to slow down at {DEFAULT_SLOWDOWN_TEMP:.0f} °C)"
    return _tenses(subject.label, _BE, rest)


def _memory(subject: DeviceSubject) -> float | None:
    used, total = subject.reading.get("mem_used"), subject.reading.get("mem_total")
    if isinstance(used, NA) or isinstance(total, NA) or not total > 0:
        return None
    return 100 * used / total


def _full(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    rest = f"over {thresholds.raise_at:.0f} % full, peak {_memory(subject) or 0:.0f} %"
    return _tenses(f"the memory of {subject.label}", _BE, rest)


def _throttled_by(reasons: frozenset[str]) -> Callable[[DeviceSubject], float | None]:
    def level(subject: DeviceSubject) -> float | None:
        text = subject.reading.texts.get("throttle")
        return None if text is None else float(not reasons.isdisjoint(text.split(", ")))

    return level


def _slowed(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    reasons = subject.reading.texts["throttle"].split(", ")
    why = ", ".join(r for r in reasons if r in SLOWED)
    rest = f"throttled for over {span(thresholds.raise_s)}: {why}"
    return _tenses(subject.label, _HAVE_BEEN, rest)


def _capped(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    rest = f"throttled by its power limit for over {span(thresholds.raise_s)}"
    return _tenses(subject.label, _HAVE_BEEN, rest)


def _errors(subject: DeviceSubject) -> float | None:
    counts = [v for field in _ERRORS if (v := subject.reading.values.get(field)) is not None]
    return sum(counts) if counts else None


def _faulty(subject: DeviceSubject, _: Thresholds) -> Wording:
    values = subject.reading.values
    found = [f"{v:.0f} {name}" for field, name in _ERRORS.items() if (v := values.get(field))]
    last = f" (the last: Xid {values['xid']:.0f})" if values.get("xid") else ""
    return _tenses(subject.label, ("has had", "had"), f"{', '.join(found)}{last}")


def _recover(subject: DeviceSubject, _: Thresholds) -> Wording:
    action = recovery_text(subject.reading.values["recovery_action"])
    return _tenses(f"{subject.label}: the driver", ("asks for", "asked for"), action)


def _corrected(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    rest = f"{subject.corrected or 0:.0f} memory errors within an hour"
    limit = f"(limit {thresholds.raise_at:.0f})"
    return _tenses(subject.label, ("has corrected", "corrected"), f"{rest} {limit}")


def _unused(subject: DeviceSubject) -> float | None:
    util = subject.reading.get("util")
    if subject.job is None or subject.device.kind == "cpu":
        return 0.0
    return None if isinstance(util, NA) else float(util <= subject.settings.idle_util_percent)


def _held_idle(subject: DeviceSubject, thresholds: Thresholds) -> Wording:
    job = subject.job
    assert job is not None, "the rule is about a job"
    holder, least = f"held by job {job.id} ({job.spec.name})", span(thresholds.raise_s)
    return Wording(
        f"{subject.label} is {holder}, and has been idle for over {least}",
        f"{subject.label} was {holder}, and idle for over {least}",
    )


def _unreachable(subject: HostSubject, thresholds: Thresholds) -> Wording:
    least = span(thresholds.raise_at * _MINUTE)
    rest = f"unreachable for over {least}: {subject.host.problem}"
    return _tenses(subject.host.name, _HAVE_BEEN, rest)


def _stalled(subject: JobSubject, thresholds: Thresholds) -> Wording:
    job, limit = subject.job, span(thresholds.raise_at * _MINUTE)
    rest = f"no progress for over {limit}"
    return _tenses(f"job {job.id} ({job.spec.name})", ("has made", "made"), rest)


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
        _full,
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
        _capped,
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
        _recover,
    ),
    AlertRule(
        "memory errors",
        "alert_corrected",
        lambda count: Thresholds(max(count, 1), max(count, 1)),
        lambda s: s.corrected,
        _corrected,
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
        _unreachable,
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
