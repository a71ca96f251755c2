"""Format numbers with units, durations and times, and N/A with its reason.

Numbers have the decimal point of the window's language.
"""

from __future__ import annotations

import math
import time
from typing import Literal

import msgspec

from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_text
from gpudeck.language import numbers
from gpudeck.scheduler.protocol.devices import NA
from gpudeck.scheduler.protocol.fields import FIELDS
from gpudeck.scheduler.protocol.snapshot import label

GIB = 2.0**30
Meaning = Literal["", "warm", "hot", "throttled", "failed"]
"""All that colour stands for."""
NOT_AVAILABLE = "–"
"""What stands for a value that is not there; the reason is told beside it or on hover."""
device_label = label
_TINY = 1e-4
"""Smaller numbers are written with an exponent."""
_LANE_LABEL = 6
_RATES = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def shortest_label(text: str) -> str:
    """Return a device's label where space is short: 0 for "GPU 0", lab1 0 for "lab1 GPU 0"."""
    return " ".join(word for word in text.split() if word != "GPU")


def lane_label(text: str) -> str:
    """Return a device's label beside its lane of a chart, which has room for six characters."""
    short = shortest_label(text)
    host, _, number = short.rpartition(" ")
    return short if len(short) <= _LANE_LABEL else f"{host[:3]}… {number}"


class FormattedValue(msgspec.Struct, frozen=True):
    """Hold a value as text."""

    text: str
    unit: str = ""
    reason: str | None = None
    """The reason for N/A; None for a value."""

    @property
    def available(self) -> bool:
        """Report if there is a value."""
        return self.reason is None

    def __str__(self) -> str:
        return f"{self.text} {self.unit}" if self.unit else self.text


def format_field(field: str, value: float | NA) -> FormattedValue:
    """Format a field of a reading.

    Bytes are shown as GiB, large amounts of energy as Wh, and the rest in the field's own unit.
    """
    if isinstance(value, NA):
        return FormattedValue(NOT_AVAILABLE, reason=tr_text(value.reason))
    if not math.isfinite(value):
        return FormattedValue(NOT_AVAILABLE, reason=tr("the device reported an invalid number"))
    unit = FIELDS[field].unit
    if unit == "J":
        return FormattedValue(*tr_decimal(numbers.energy(value)).split())
    if unit == "B":
        return FormattedValue(tr_decimal(f"{value / GIB:.1f}"), "GiB")
    if unit == "B/s":
        size, unit = next(
            ((size, unit) for size, unit in _RATES if abs(value) >= 0.9995 * size), _RATES[-1]
        )
        return (
            FormattedValue(significant(value / size), unit)
            if value
            else FormattedValue("0", "GB/s")
        )
    if unit in ("%", "°C", "MHz") or (unit == "W" and abs(value) >= 9.95):
        return FormattedValue(f"{value:.0f}", unit)
    return FormattedValue(significant(value), unit)


def significant(value: float) -> str:
    """Format about three significant digits without an exponent: 0.085, 2.35, 63.4, 633."""
    size = abs(value)
    digits = 0 if size >= 99.95 or size == 0 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return tr_decimal(f"{value:.{digits}f}")


def precise(value: float) -> str:
    """Format like `significant`, but keep two digits of a small number: 0.00043, 1.83e-5."""
    size = abs(value)
    if not 0 < size < 0.00995:
        return significant(value)
    if size < _TINY:
        digits, _, power = f"{value:.2e}".partition("e")
        return tr_decimal(f"{digits}e{int(power)}")
    return tr_decimal(f"{value:.{1 - math.floor(math.log10(size))}f}")


def scaled(count: float, unit: str) -> str:
    """Format a count with a decimal prefix: 1.10 TFLOP, 275 GFLOP."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{significant(count / factor)} {prefix}{unit}"
    return f"{significant(count)} {unit}"


def memory(count: float) -> str:
    """Format bytes as MiB or GiB."""
    if count < GIB:
        return f"{significant(count / 2**20)} MiB"
    return tr_decimal(f"{count / GIB:.1f} GiB")


def duration(seconds: float) -> str:
    """Format a span of time: 49 ms, 4.2 s, 3 min 05 s, 2 h 07 min, 3 d 04 h."""
    return tr_decimal(numbers.duration(seconds, aligned=True))


def rounded(seconds: float) -> str:
    """Format a span that is estimated, from two minutes on in whole ones: 28 s, 12 min, 2 h 5 min.

    Args:
        seconds: The span.
    """
    whole = 60.0 * round(seconds / 60) if seconds >= 120 else seconds
    return tr_decimal(numbers.duration(whole))


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Return a count with its noun: 1 job, 2 jobs."""
    return f"{count} {noun}{'' if count == 1 else ending}"


def clock(at: float, now: float | None = None) -> str:
    """Format a time of day, with the date if it is not the day of `now`.

    Args:
        at: Seconds since the epoch.
        now: Seconds since the epoch; the current time if omitted.
    """
    then, today = time.localtime(at), time.localtime(now)
    same_day = (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S", then)


def ago(at: float, now: float) -> str:
    """Format how long ago a moment was, or will be: just now, 5 min ago, 3 h ago, in 2 days.

    Args:
        at: Seconds since the epoch.
        now: Seconds since the epoch.
    """
    seconds, past = abs(now - at), at <= now
    if seconds < 60.0:
        return tr("just now") if past else tr("in less than a minute")
    if seconds >= 86400.0:
        days = int(seconds // 86400.0)
        if past:
            return tr_count("{n} day ago", "{n} days ago", days)
        return tr_count("in {n} day", "in {n} days", days)
    span = f"{seconds // 3600.0:.0f} h" if seconds >= 3600.0 else f"{seconds // 60.0:.0f} min"
    return tr("{time} ago", time=span) if past else tr("in {time}", time=span)
