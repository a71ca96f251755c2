"""Decide when the assistant may have a device, and when it must leave it. Pure.

A device is idle once no job waits or runs, no foreign process or exclusive program is on it, and
its utilisation stayed at or below the limit for the dwell time. It is busy again at once. No
reading means busy: a device that cannot be read is not free, and a gap between two readings ends
the quiet. Each eviction of the last ten minutes doubles the dwell time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpudeck.scheduler.protocol.busy_causes import (
    BusyCause,
    ExclusiveProgram,
    Loaded,
    NoReading,
    OtherProcesses,
    Settling,
    UtilisationUnknown,
)
from gpudeck.scheduler.protocol.snapshot import Busy, Idle

CPU_UTIL_PERCENT = 50.0
"""A CPU is never quite idle; below this it has room for the assistant's single thread."""
MAX_DWELL_S = 300.0
"""The longest dwell time, however often the assistant was evicted."""
REMEMBERED_S = 600.0
"""The time for which an eviction makes the dwell time longer."""


class IdlePolicy(NamedTuple):
    """Set the limits of the idle decision."""

    util_percent: float
    dwell_s: float
    exclusive: frozenset[str] = frozenset()
    """Names of programs that make a device busy, whether they compute on it or only draw."""


class UsageSample(NamedTuple):
    """Record how a device was used at one moment."""

    time: float
    util: float | None
    """Percent; None where it could not be read."""
    foreign: int
    """Compute processes that are neither our jobs nor our assistant."""
    programs: frozenset[str] = frozenset()
    """Names of all programs that compute or draw on it, except our assistant."""


def judge(
    samples: Sequence[UsageSample],
    policy: IdlePolicy,
    now: float,
    barred: BusyCause | None,
    max_age_s: float = 3.0,
) -> Idle | Busy:
    """Return whether the assistant may have the device.

    Args:
        samples: The recent past, oldest first.
        policy: The limits.
        now: Seconds since the epoch.
        barred: A cause that overrides the samples, such as a job that runs.
        max_age_s: The age at which a sample is too old, and the longest gap between two.
    """
    if barred is not None:
        return Busy(barred)
    if not samples or now - samples[-1].time > max_age_s:
        return Busy(NoReading())
    since = samples[-1].time
    for sample in reversed(samples):
        cause = _used(sample, policy) or _loaded(sample, policy)
        if cause is not None and sample is samples[-1]:
            return Busy(cause)
        if cause is not None or since - sample.time > max_age_s:
            break
        since = sample.time
    quiet = now - since
    return Idle(since) if quiet >= policy.dwell_s else Busy(Settling(quiet, policy.dwell_s))


def eviction_cause(
    sample: UsageSample | None,
    policy: IdlePolicy,
    now: float,
    barred: BusyCause | None,
    max_age_s: float = 3.0,
) -> BusyCause | None:
    """Return why the assistant must leave a device that it has, or None if it may stay.

    The arguments are those of `judge`. The assistant's own load is no cause.
    """
    if barred is not None:
        return barred
    if sample is None or now - sample.time > max_age_s:
        return NoReading()
    return _used(sample, policy)


def dwell_time(base_s: float, evictions: Iterable[float], now: float) -> float:
    """Return the seconds of quiet required: twice as many for each eviction remembered.

    Args:
        base_s: The dwell time of the settings.
        evictions: When the assistant was evicted, seconds since the epoch.
        now: Seconds since the epoch.
    """
    recent = sum(now - REMEMBERED_S < at <= now for at in evictions)
    return max(base_s, min(base_s * 2.0**recent, MAX_DWELL_S))


def _used(sample: UsageSample, policy: IdlePolicy) -> BusyCause | None:
    """Return who else uses the device."""
    if sample.foreign:
        return OtherProcesses(sample.foreign)
    if found := sorted(sample.programs & policy.exclusive):
        return ExclusiveProgram(found[0])
    return None


def _loaded(sample: UsageSample, policy: IdlePolicy) -> BusyCause | None:
    if sample.util is None:
        return UtilisationUnknown()
    return Loaded(sample.util) if sample.util > policy.util_percent else None
