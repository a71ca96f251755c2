"""The span of time that a call is about: the last hours, since a time of day, or a named one."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.intents.tool_call import ToolCall

_UNITS = {"minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 7 * 86400.0}
_NIGHT = (20, 8)
"""The hours of the day at which a night begins and ends."""


class Period(NamedTuple):
    """Delimit a span of time in seconds since the epoch; days are local."""

    since: float
    until: float


def period(call: ToolCall, now: float) -> Period | None:
    """Return the span of time that a call names, or None."""
    for unit, seconds in _UNITS.items():
        if (count := call.number(unit)) is not None:
            return Period(now - count * seconds, now)
    if since := call.text("since"):
        return Period(_since(since, now), now)
    return _named(call.text("period"), now) if call.text("period") else None


def _since(text: str, now: float) -> float:
    """Return the last time it was that time of day, or the beginning of a day."""
    if len(text) > 5:
        return min(datetime.fromisoformat(text).timestamp(), now)
    hour, minute = map(int, text.split(":"))
    at = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at.timestamp() <= now else at - timedelta(days=1)).timestamp()


def _named(name: str, now: float) -> Period:
    """Return a named span: `day` is the last 24 hours, `week` the last seven days.

    `today` is since midnight. `night` is the last one that has begun in full, until now or 8:00.
    """
    midnight = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    yesterday = midnight - timedelta(days=1)
    match name:
        case "today":
            return Period(midnight.timestamp(), now)
        case "yesterday":
            return Period(yesterday.timestamp(), midnight.timestamp())
        case "night":
            first, last = _NIGHT
            return Period(
                yesterday.replace(hour=first).timestamp(),
                min(midnight.replace(hour=last).timestamp(), now),
            )
        case "weekend":
            saturday = midnight - timedelta(days=(midnight.weekday() - 5) % 7)
            return Period(
                saturday.timestamp(), min((saturday + timedelta(days=2)).timestamp(), now)
            )
        case "all":
            return Period(0.0, now)
    spans = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "month": 30 * 86400.0}
    return Period(now - spans[name], now)
