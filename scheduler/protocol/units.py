"""Read and write numbers, amounts of memory and spans of time. Pure."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpudeck.language.numbers import GIB
from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.protocol.errors import UserError

_BYTES = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": GIB,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_BYTES |= {letter: _BYTES[f"{letter}ib"] for letter in "kmgt"}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
MAX_BYTES = 2**60
MAX_SECONDS = 366 * 86400.0
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")


def parse_integer(text: str) -> int:
    """Read a whole number, which may be negative. Raises UserError."""
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise UserError(phrase("expected a whole number; got {value}", value=repr(text)))
    return int(text)


def parse_count(text: str) -> int:
    """Read a whole number that is not negative. Raises UserError."""
    if not re.fullmatch(r"[0-9]+", text.strip()):
        raise UserError(phrase("expected a whole number, 0 or more; got {value}", value=repr(text)))
    return int(text)


def parse_bytes(text: str | int) -> int:
    """Read an amount such as 20GiB, 512M, 1.5 GB or 1073741824, in bytes. Raises UserError."""
    if (found := _parse(str(text), _BYTES, MAX_BYTES)) is None:
        raise UserError(
            phrase(
                "an amount of memory such as 20GiB or 512MiB is needed; got {value}",
                value=repr(str(text)),
            )
        )
    return round(found)


def parse_size(text: str | int) -> int:
    """Read the memory of a job, in bytes; a typed number without a unit is in GiB.

    The text 0 stands for none, and an integer is in bytes. Raises UserError for less than 1 MiB.
    """
    if text in ("0", 0):
        return 0
    size = parse_bytes(text)
    if size < 2**20 and isinstance(text, str) and re.fullmatch(r"\d+(\.\d+)?", text.strip()):
        size = parse_bytes(f"{text.strip()}GiB")
    if size < 2**20:
        raise UserError(
            phrase("{value} is less than 1 MiB: add a unit, as in 20GiB", value=str(text))
        )
    return size


def parse_seconds(text: str | float) -> float:
    """Read a span such as 90, 30s, 45min, 2h or 1d, in seconds. Raises UserError."""
    if (found := _parse(str(text), _SECONDS, MAX_SECONDS)) is None:
        raise UserError(
            phrase(
                "a time such as 90s, 45min, 2h or 1d is needed; got {value}", value=repr(str(text))
            )
        )
    return found


def _parse(text: str, units: dict[str, int], most: float) -> float | None:
    found = _NUMBER.fullmatch(text.strip())
    factor = units.get(found[2].lower()) if found else None
    value = float(found[1]) * factor if found and factor is not None else math.nan
    return value if 0 < value <= most else None


LAST_MOMENT = 2.0**32
"""Nothing is planned for later than this, in seconds since the epoch; it is in 2106."""


def parse_moment(text: str, now: float) -> float:
    """Read a moment, in seconds since the epoch. Raises UserError.

    It is a span before `now`, such as 7d or 45min, or a local date such as 2026-11-20 or
    2026-11-20T14:30.
    """
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        pass
    try:
        return now - parse_seconds(text)
    except UserError as e:
        raise UserError(
            phrase(
                "a span such as 7d or 2h, or a date such as 2026-11-20 or 2026-11-20T14:30, is "
                "needed; got {value}",
                value=repr(text),
            )
        ) from e


def parse_begin(text: str, now: float) -> float:
    """Read a moment that is to come, in seconds since the epoch. Raises UserError.

    It is a local time such as 22:30, today or tomorrow, a local date such as 2026-12-01 or
    2026-12-01 08:00, or a span after `now`, such as +2h.
    """
    at = _read_begin(text.strip(), now)
    if at >= LAST_MOMENT:
        raise UserError(
            phrase(
                "a time before {year} is needed; got {text}",
                year=time.localtime(LAST_MOMENT).tm_year,
                text=repr(text),
            )
        )
    return at


def parse_daily(text: str, now: float) -> tuple[float, float]:
    """Read times of every day such as 20:00-23:00: when they last began or will next begin, and
    when they are over then, in seconds since the epoch. Raises UserError."""
    match = re.fullmatch("([0-9]{1,2}:[0-9]{2})-([0-9]{1,2}:[0-9]{2})", text.strip())
    if match is None:
        raise UserError(phrase("times such as 20:00-23:00 are needed; got {text}", text=repr(text)))
    begin = _read_begin(match[1], now)
    end = _read_begin(match[2], begin)
    day_before = (datetime.fromtimestamp(begin) - timedelta(days=1)).timestamp()
    end_before = _read_begin(match[2], day_before)
    return (day_before, end_before) if end_before > now else (begin, end)


def _read_begin(text: str, now: float) -> float:
    try:
        if text.startswith("+"):
            return now + parse_seconds(text[1:])
        if re.fullmatch("[0-9]{1,2}:[0-9]{2}", text):
            local = datetime.fromtimestamp(now)
            hour, minute = map(int, text.split(":"))
            at = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
            return (at if at > local else at + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (UserError, ValueError, OverflowError, OSError) as e:
        raise UserError(
            phrase(
                "a time such as 22:30, a date such as 2026-12-01 08:00, or a span such as +2h, is "
                "needed; got {value}",
                value=repr(text),
            )
        ) from e


def numbered(jobs: Sequence[int]) -> str:
    """Write numbers in English as `list_jobs` does."""
    return str(list_jobs(jobs))


def list_jobs(jobs: Sequence[int]) -> Text:
    """Return job 3; jobs 3 and 4; jobs 3, 4 and 5."""
    if len(jobs) == 1:
        return phrase("job {job}", job=jobs[0])
    return phrase("jobs {numbers} and {job}", numbers=joined(jobs[:-1]), job=jobs[-1])


def list_job_ranges(jobs: Iterable[int]) -> Text:
    """Return job 3; jobs 3, 5 to 9, 12. There is one at least."""
    ranges: list[list[int]] = []
    for job in sorted(jobs):
        if ranges and ranges[-1][1] == job - 1:
            ranges[-1][1] = job
        else:
            ranges.append([job, job])
    parts = [
        first if first == last else phrase("{first} to {last}", first=first, last=last)
        for first, last in ranges
    ]
    if len(parts) == 1 and isinstance(only := parts[0], int):
        return phrase("job {job}", job=only)
    return phrase("jobs {numbers}", numbers=joined(parts))
