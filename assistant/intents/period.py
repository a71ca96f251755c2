"""The stretch of time that a call is about: the last hours, since a time of day, or one that has a name."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from assistant.intents.tool_call import ToolCall

_UNITS = {"minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 7 * 86400.0}
_NIGHT = (20, 8)
"""Hours of the day at which a night begins and ends."""


class Period(NamedTuple):
    """Seconds since the epoch, local days."""

    since: float
    until: float


def period(call: ToolCall, now: float) -> Period | None:
    """None where the call names none."""
    for unit, seconds in _UNITS.items():
        if (count := call.number(unit)) is not None:
            return Period(now - count * seconds, now)
    if since := call.text("since"):
        return Period(_since(since, now), now)
    return _named(call.text("period"), now) if call.text("period") else None


def _since(text: str, now: float) -> float:
    """The last time it was so late, or the beginning of a day."""
    if len(text) > 5:
        return min(datetime.fromisoformat(text).timestamp(), now)
    hour, minute = map(int, text.split(":"))
    at = datetime.fromtimestamp(now).replace(hour=hour, minute=minute, second=0, microsecond=0)
    return (at if at.timestamp() <= now else at - timedelta(days=1)).timestamp()


def _named(name: str, now: float) -> Period:
    """A day is the last 24 hours, a week the last seven days, today since midnight; a night until it is over the one before it."""
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
