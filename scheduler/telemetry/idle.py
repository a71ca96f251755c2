"""When a device is idle. Pure: history and policy in, Idle or Busy(reason) out.

A device is idle once no job waits or runs, no foreign process holds it, and its utilisation stayed at or below the limit for
the dwell time. It is busy again at once. No reading means busy: what cannot be seen is not free, and a gap between two readings
ends the quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from scheduler.telemetry.snapshot import Busy, Idle


class Policy(NamedTuple):
    util_percent: float
    dwell_s: float


CPU_UTIL_PERCENT = 50.0
"""A CPU always does a little; below this it has room for the assistant's single thread."""


class Look(NamedTuple):
    """What was seen of a device at one moment."""

    time: float
    util: float | None
    """Percent; None where it could not be read."""
    foreign: int
    """Compute processes that are neither our jobs nor our assistant."""


def judge(looks: Sequence[Look], policy: Policy, now: float, queue: str | None, max_age_s: float = 3.0) -> Idle | Busy:
    """`looks`: oldest first. `queue`: why the queue needs the device ("job 3 runs"), None where it does not."""
    if queue is not None:
        return Busy(queue)
    if not looks or now - looks[-1].time > max_age_s:
        return Busy("no current reading")
    since = looks[-1].time
    for look in reversed(looks):
        if (why := _busy(look, policy)) is not None:
            if look is looks[-1]:
                return Busy(why)
            return _dwelt(since, policy, now)
        if since - look.time > max_age_s:
            break
        since = look.time
    return _dwelt(since, policy, now)


def _busy(look: Look, policy: Policy) -> str | None:
    if look.util is None:
        return "utilisation cannot be read"
    if look.util > policy.util_percent:
        return f"utilisation {look.util:.0f} %"
    if look.foreign:
        return f"{look.foreign} process{'es' if look.foreign > 1 else ''} of others"
    return None


def _dwelt(since: float, policy: Policy, now: float) -> Idle | Busy:
    quiet = now - since
    if quiet >= policy.dwell_s:
        return Idle(since)
    return Busy(f"settling, quiet for {quiet:.0f} of {policy.dwell_s:.0f} s")
