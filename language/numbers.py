"""Write numbers, amounts, spans and moments in English."""

from __future__ import annotations

import math
import time

GIB = 2**30
_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
"""Units of time with the next smaller ones, both with their seconds."""


def amount(count: float) -> str:
    """Write bytes as 31 GiB, 1.5 GiB or 512 MiB, rounded down so that free memory is free."""
    unit, name = (GIB, "GiB") if count >= GIB else (2**20, "MiB")
    tenths = math.floor(10 * max(count, 0.0) / unit)
    return f"{tenths // 10 if tenths >= 100 or not tenths % 10 else tenths / 10} {name}"


def energy(joules: float) -> str:
    """Write an energy as 81 J, 0.25 Wh, 4.50 Wh or 1.24 kWh."""
    hours = joules / 3600
    if abs(hours) < 0.1:
        return f"{joules:.0f} J"
    value, unit = (hours, "Wh") if abs(hours) < 1000 else (hours / 1000, "kWh")
    return (
        f"{value:.{max(0, 3 - len(str(int(abs(value)))))}f} {unit}"
        if abs(value) >= 1
        else f"{value:.3g} {unit}"
    )


def span(seconds: float) -> str:
    """Write a span in its largest whole unit: 2 h, 90 s, 45 min."""
    for name, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:g} s"


def duration(seconds: float, aligned: bool = False) -> str:
    """Write a duration in its two largest units: 49 ms, 4.2 s, 3 min 20 s, 2 h 5 min, 3 d 4 h.

    Args:
        seconds: The duration; what is below zero counts as zero.
        aligned: Write the smaller unit even if it is zero, and with two digits: 2 h 05 min. So the
            durations of a table line up, and one that grows does not jump.
    """
    seconds = max(seconds, 0.0)
    if 0 < seconds < 0.0995:
        return f"{1e3 * seconds:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, part, smaller in _UNITS:
        if whole >= size:
            rest = whole % size // part
            if aligned:
                return f"{whole // size} {unit} {rest:02d} {smaller}"
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def clock(at: float, now: float) -> str:
    """Write a moment as local time, with the day where it is over twelve hours away."""
    return time.strftime(
        "%H:%M" if abs(at - now) < 43200 else "%a %d %b, %H:%M", time.localtime(at)
    )


def capitalized(text: str) -> str:
    """Return the text with a capital at its beginning; the rest stays as it is."""
    return text[:1].upper() + text[1:]
