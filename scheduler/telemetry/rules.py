"""What is worth an alert: for each rule the setting that limits it, the level that it looks at, and its words. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.protocol.devices import NA, Device, Reading
from scheduler.protocol.jobs import Job
from scheduler.protocol.settings import Settings
from scheduler.protocol.units import span
from scheduler.telemetry.hysteresis import Limits

USUAL_LIMIT = 90.0
"""°C; taken for the slow-down temperature of a GPU that does not tell its own."""
SLOWED = frozenset(
    {"hardware slow-down", "too hot (software)", "too hot (hardware)", "power brake"}
)
"""Reasons to hold the clocks down that should not be there; the power limit is the user's own."""
CAPPED = frozenset({"power limit"})
_MINUTE = 60.0


class Sight(NamedTuple):
    """What a rule looks at: one device, and the job that holds it or that the look is about."""

    label: str
    """What people call the device: GPU 0."""
    device: Device
    reading: Reading
    job: Job | None
    settings: Settings
    corrected: float | None
    """Memory errors that were put right within the hour; None where it cannot be told."""


@dataclass(frozen=True)
class Rule:
    """`level` of a sight is compared with `limits` of the user's threshold; `words` say what is the matter. None: cannot be told."""

    name: str
    setting: str
    limits: Callable[[float], Limits]
    level: Callable[[Sight], float | None]
    words: Callable[[Sight, float], str]
    """Of the sight, and for how many seconds it has been so."""
    job: bool = False
    """Whether it is about the job that holds the device: another job begins anew."""


def _above_limit(sight: Sight) -> float | None:
    """°C above the slow-down temperature (negative: below), as the card tells its margin, else by its limit."""
    temp, margin = sight.reading.get("temp"), sight.reading.get("temp_margin")
    if isinstance(temp, NA) or sight.device.kind == "cpu":
        return None
    return (
        temp - sight.reading.values.get("temp_limit", USUAL_LIMIT)
        if isinstance(margin, NA)
        else -margin
    )


def _hot(sight: Sight, seconds: float) -> str:
    above, limit = _above_limit(sight) or 0.0, sight.reading.get("temp_limit")
    usual = (
        f", taken as {USUAL_LIMIT:.0f} °C"
        if isinstance(limit, NA) and "temp_margin" not in sight.reading.values
        else ""
    )
    side = "above" if above > 0 else "below"
    return f"{sight.label} is at {sight.reading.values['temp']:.0f} °C, {abs(above):.0f} °C {side} its slow-down temperature{usual}"


def _memory(sight: Sight) -> float | None:
    used, total = sight.reading.get("mem_used"), sight.reading.get("mem_total")
    return (
        None
        if isinstance(used, NA) or isinstance(total, NA) or not total > 0
        else 100 * used / total
    )


def _held_by(reasons: frozenset[str]) -> Callable[[Sight], float | None]:
    def level(sight: Sight) -> float | None:
        told = sight.reading.texts.get("throttle")
        return None if told is None else float(not reasons.isdisjoint(told.split(", ")))

    return level


def _slowed(sight: Sight, seconds: float) -> str:
    why = ", ".join(r for r in sight.reading.texts["throttle"].split(", ") if r in SLOWED)
    return f"{sight.label} has been slowed down for {span(seconds)}: {why}"


CORRECTED = "ecc_corrected"
_ERRORS = {
    "ecc_uncorrected": "memory errors that could not be put right",
    "rows_failure": "failed remapping of a memory row",
    "xid_count": "Xid errors of the driver",
}


def _errors(sight: Sight) -> float | None:
    told = [v for field in _ERRORS if (v := sight.reading.values.get(field)) is not None]
    return sum(told) if told else None


def _broken(sight: Sight, seconds: float) -> str:
    found = [
        f"{v:.0f} {words}"
        for field, words in _ERRORS.items()
        if (v := sight.reading.values.get(field))
    ]
    last = sight.reading.values.get("xid")
    return f"{sight.label} has had {', '.join(found)}" + (
        f" (the last: Xid {last:.0f})" if last else ""
    )


def _does_nothing(sight: Sight) -> float | None:
    util = sight.reading.get("util")
    if sight.job is None or sight.device.kind == "cpu":
        return 0.0
    return None if isinstance(util, NA) else float(util <= sight.settings.idle_util_percent)


def _reserved(sight: Sight, seconds: float) -> str:
    job = sight.job
    return (
        f"{sight.label} has done nothing for {span(seconds)}, and is held by job {job.id} ({job.spec.name})"
        if job
        else ""
    )


RULES = (
    Rule(
        "too hot",
        "alert_temperature",
        lambda margin: Limits(-margin, -margin - 3, 10, 30),
        _above_limit,
        _hot,
    ),
    Rule(
        "memory nearly full",
        "alert_memory",
        lambda percent: Limits(percent, percent - 3, 60, 30),
        _memory,
        lambda s, _: f"the memory of {s.label} is {_memory(s) or 0:.0f} % full",
    ),
    Rule(
        "slowed down",
        "alert_slowdown",
        lambda seconds: Limits(1, 1, seconds, 10),
        _held_by(SLOWED),
        _slowed,
    ),
    Rule(
        "at its power limit",
        "alert_power_cap",
        lambda seconds: Limits(1, 1, seconds, 10),
        _held_by(CAPPED),
        lambda s, seconds: f"{s.label} has been held down by its power limit for {span(seconds)}",
    ),
    Rule(
        "hardware errors",
        "alert_errors",
        lambda count: Limits(max(count, 1), max(count, 1)),
        _errors,
        _broken,
    ),
    Rule(
        "memory errors",
        "alert_corrected",
        lambda count: Limits(max(count, 1), max(count, 1)),
        lambda s: s.corrected,
        lambda s, _: f"{s.label} has put right {s.corrected or 0:.0f} memory errors within an hour",
    ),
    Rule(
        "held and idle",
        "alert_idle_job",
        lambda minutes: Limits(1, 1, minutes * _MINUTE),
        _does_nothing,
        _reserved,
        job=True,
    ),
)
"""Of devices. The one rule of jobs, STUCK, looks at their progress instead."""

STUCK = "no progress"
