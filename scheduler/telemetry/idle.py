"""When the assistant may have a device, and when it must leave it. Pure: what was seen and the policy in, a verdict out.

A device is idle once no job waits or runs, no foreign process or exclusive program is on it, and its utilisation stayed at or below the
limit for the dwell time. It is busy again at once. No reading means busy: what cannot be seen is not free, and a gap between two
readings ends the quiet. Who had to leave waits longer: each eviction of the last ten minutes doubles the dwell time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from scheduler.protocol.snapshot import Busy, Idle


class Policy(NamedTuple):
    util_percent: float
    dwell_s: float
    exclusive: frozenset[str] = frozenset()
    """Names of programs that make a device busy, whether they compute on it or only draw."""


CPU_UTIL_PERCENT = 50.0
"""A CPU always does a little; below this it has room for the assistant's single thread."""
MAX_DWELL_S = 300.0
"""However often the assistant had to leave: the history in memory goes back ten minutes."""
REMEMBERED_S = 600.0
"""How long an eviction makes the dwell time longer."""


class Look(NamedTuple):
    """What was seen of a device at one moment."""

    time: float
    util: float | None
    """Percent; None where it could not be read."""
    foreign: int
    """Compute processes that are neither our jobs nor our assistant."""
    programs: frozenset[str] = frozenset()
    """Names of all programs that compute or draw on it, but for our assistant."""


def judge(
    looks: Sequence[Look], policy: Policy, now: float, barred: str | None, max_age_s: float = 3.0
) -> Idle | Busy:
    """Whether the assistant may come. `looks`: oldest first. `barred`: why not, whatever they show ("job 3 runs"); None: nothing does."""
    if barred is not None:
        return Busy(barred)
    if not looks or now - looks[-1].time > max_age_s:
        return Busy("no current reading")
    since = looks[-1].time
    for look in reversed(looks):
        if (why := _used(look, policy) or _loaded(look, policy)) is not None:
            if look is looks[-1]:
                return Busy(why)
            return _dwelt(since, policy, now)
        if since - look.time > max_age_s:
            break
        since = look.time
    return _dwelt(since, policy, now)


def leave(
    look: Look | None, policy: Policy, now: float, barred: str | None, max_age_s: float = 3.0
) -> str | None:
    """Why the assistant must leave a device that it has, None where it may stay. Its own load is no reason."""
    if barred is not None:
        return barred
    if look is None or now - look.time > max_age_s:
        return "no current reading"
    return _used(look, policy)


def dwell(base_s: float, evictions: Iterable[float], now: float) -> float:
    """Seconds of quiet that are asked for: twice as many for each time it had to leave, as far as these are remembered."""
    recent = sum(now - REMEMBERED_S < at <= now for at in evictions)
    return max(base_s, min(base_s * 2.0**recent, MAX_DWELL_S))


def _used(look: Look, policy: Policy) -> str | None:
    """Whoever else uses it."""
    if look.foreign:
        return f"{look.foreign} process{'es' if look.foreign > 1 else ''} of others"
    if found := sorted(look.programs & policy.exclusive):
        return f"{found[0]} runs, which has it for itself"
    return None


def _loaded(look: Look, policy: Policy) -> str | None:
    if look.util is None:
        return "utilisation cannot be read"
    if look.util > policy.util_percent:
        return f"utilisation {look.util:.0f} %"
    return None


def _dwelt(since: float, policy: Policy, now: float) -> Idle | Busy:
    quiet = now - since
    if quiet >= policy.dwell_s:
        return Idle(since)
    return Busy(f"settling, quiet for {quiet:.0f} of {policy.dwell_s:.0f} s")
