"""Quiet hours: when nobody is told of alerts, and when the assistant uses no GPU."""

from __future__ import annotations

import time


def is_quiet(hours: str, at: float) -> bool:
    """Whether `at` (seconds since the epoch) lies in `hours`, local time: 22:00-07:00, or empty for never. The end is not quiet."""
    if not hours:
        return False
    local = time.localtime(at)
    now = local.tm_hour * 60 + local.tm_min
    start, end = (int(text[:2]) * 60 + int(text[3:]) for text in hours.split("-"))
    return start <= now < end if start <= end else now >= start or now < end
