"""Read a value with its unit in the unit of facts."""

from __future__ import annotations

import re

_BASE = {
    "s": (1.0, "duration"), "min": (60.0, "duration"), "h": (3600.0, "duration"),
    "d": (86400.0, "duration"), "ms": (1.0, "median"), "°C": (1.0, "temp"), "W": (1.0, "power"),
    "%": (1.0, "util"), "TFLOP/s": (1.0, "tflops"), "MiB": (2.0**20, "mem_used"),
    "GiB": (2.0**30, "mem_used"), "Wh": (3600.0, "energy"), "kWh": (3.6e6, "energy"),
    "kW": (1000.0, "power"),
}  # fmt: skip
"""By unit: how many of the facts' unit it is, and a field that is measured in it."""

_AMOUNT = re.compile(r"-?\d+(?:\.\d+)? \S+(?: \d+ \S+)*")


def in_base_unit(text: str) -> tuple[float, str] | None:
    """Return a value in the unit of facts, with a field of that unit; None without a known unit."""
    total, field = 0.0, ""
    if not _AMOUNT.fullmatch(text):
        return None
    for number, unit in re.findall(r"(-?[\d.]+) ([^\s\d]+)", text):
        if unit not in _BASE:
            return None
        scale, field = _BASE[unit]
        total += float(number) * scale
    return (total, field) if field else None


def step_of(text: str) -> float:
    """Return the last unit of a value in the unit of facts."""
    unit = text.rsplit(" ", 1)[-1]
    return _BASE[unit][0] if unit in _BASE else 1.0


BOUNDS = ("=", ">", "<", ">=", "<=", "~", "<~", ">~")
"""What a text says of a value: that it is the value, more, less, at least, at most, about, nearly
or a little more."""
_NEARLY = {"duration": 0.15}
"""How far below a value what is `nearly` that value may be, and how far above `a little more`."""
_LITTLE_MORE = {"duration": 0.25}
DENIED = {">": "<=", "<": ">=", ">=": "<", "<=": ">"}
"""What a bound becomes if it is denied."""


def is_within(true: float, said: float, field: str, bound: str, step: float = 0.0) -> bool:
    """Return True if a value with a bound describes the true value, both in the same unit.

    `step` is the smallest unit in which the value is told: `about 3 min` may be 2 min 40 s.
    """
    apart, size = true - said, abs(said)
    equal = abs(apart) <= 1e-6 * size
    match bound:
        case "=":
            return equal
        case "~" if field == "util":
            return abs(apart) <= max(0.05 * size, 2.0)
        case "~":
            return abs(apart) <= min(max(0.05 * size, step / 2), 0.15 * size)
        case "<~" | ">~" if field == "util":
            return 0 <= (apart if bound == ">~" else -apart) <= 6.0
        case "<~":
            return -_NEARLY.get(field, 0.05) * size <= apart <= 1e-6 * size
        case ">~":
            return -1e-6 * size <= apart <= _LITTLE_MORE.get(field, 0.05) * size
        case _:
            return (equal and "=" in bound) or (not equal and (apart > 0) is (bound[0] == ">"))
