"""Phrase values with units, sensible rounding and times, and make foreign text safe for
Markdown.
"""

from __future__ import annotations

import re
import time

from gpudeck.scheduler.protocol.progress import parse, parse_bar, printable, unescaped

_DECIMALS = {"%": 0, "°C": 0, "W": 0, "MHz": 0, "lanes": 0, "J": 0}
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_LONG_S = 300.0
"""Seconds from which a span is given to the minute."""
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit: 71 °C, 37 %, 23.4 GiB, 612 TFLOP/s, 0.412 ms."""
    return (
        _bytes(value, unit) if unit in ("B", "B/s") else f"{_number(value, unit)} {unit}".rstrip()
    )


def _number(value: float, unit: str) -> str:
    if not unit:  # a count, or a ratio such as a loss
        return f"{value:.0f}" if float(value).is_integer() else significant(value, 4)
    decimals = 1 if unit == "W" and abs(value) < 10 else _DECIMALS.get(unit)
    return significant(value) if decimals is None else f"{value:.{decimals}f}"


def _bytes(value: float, unit: str) -> str:
    step = 0
    while abs(value) >= 1024 and step < len(_BINARY) - 1:
        value, step = value / 1024, step + 1
    number = f"{value:.0f}" if step == 0 or value >= 100 else f"{value:.1f}"
    return f"{number} {_BINARY[step]}{unit[1:]}"


def significant(value: float, digits: int = 3) -> str:
    """Return three significant digits, without an exponent where a person would not write one."""
    if value == 0 or not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}" if value else "0"
    whole = len(str(int(abs(value))))
    if abs(value) >= 1:
        return f"{value:.{max(0, digits - whole)}f}"
    return f"{value:.{digits}g}"


def date(seconds: float) -> str:
    """Return a day in the local time zone: 21 November 2026."""
    day = time.localtime(seconds)
    return f"{day.tm_mday} {_MONTHS[day.tm_mon - 1]} {day.tm_year}"


def clock(seconds: float) -> str:
    """Return a time of day in the local time zone: 14:03:20."""
    return time.strftime("%H:%M:%S", time.localtime(seconds))


def moment(seconds: float, now: float) -> str:
    """Return a moment: at 14:03:20, with its date if that is not the date of `now`."""
    return (
        f"at {clock(seconds)}"
        if date(seconds) == date(now)
        else f"on {date(seconds)} at {clock(seconds)}"
    )


def stretch(since: float, until: float, now: float | None = None) -> str:
    """Return a span of time: on 21 November 2026 from 14:03 to 14:13.

    Short spans include seconds. The date is left out if it is that of `now`.
    """
    digits = 5 if until - since >= _LONG_S else 8
    first, last = clock(since)[:digits], clock(until)[:digits]
    if date(since) != date(until):
        return f"from {date(since)}, {first} to {date(until)}, {last}"
    day = "" if now is not None and date(now) == date(since) else f"on {date(since)} "
    return f"{day}from {first} to {last}"


def plain(text: str, limit: int = 200) -> str:
    """Return foreign text on one line, without control characters, at most `limit` characters."""
    text = " ".join(printable(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def escaped(text: str, limit: int = 200) -> str:
    """Return foreign text as Markdown that shows it as it is.

    Nothing in it becomes emphasis, code, a link, HTML or a table column.
    """
    text = re.sub(r"([\\`*\[\]<>|~&!$])", r"\\\1", plain(text, limit))
    text = re.sub(r"(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])", r"\\_", text)
    return re.sub(r"(:)(?=//)|(?<=www)(\.)|(@)", lambda m: "\\" + m[0], text, flags=re.IGNORECASE)


def fenced(text: str) -> str:
    """Return foreign lines as a Markdown block, in a fence longer than any in them."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


_TAB = "    "


def log_lines(data: bytes) -> list[str]:
    """Return the lines of some output, one for each line feed, so that they can be counted.

    A progress report or a bar becomes an empty line. Of a line that was redrawn with carriage
    returns, only its last version is kept.
    """
    return [_line(raw) for raw in data.removesuffix(b"\n").split(b"\n")] if data else []


def clean(text: str) -> str:
    """Return one line without escape sequences and control characters."""
    return printable(unescaped(text).replace("\t", _TAB)).rstrip()


def _line(raw: bytes) -> str:
    shown = raw.rstrip(b"\r").rpartition(b"\r")[2]
    if parse(shown, 0.0) is not None or parse_bar(shown, 0.0) is not None:
        return ""
    return clean(shown.decode(errors="replace"))
