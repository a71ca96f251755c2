"""Values that any job prints, and that become its result if it writes no result file.

A line is read that holds nothing but a JSON object like `{"step": 3, "loss": 2.5}`, what Python
prints of such a dict, or pairs like `step=3 loss=2.5`. Output is foreign data: any bytes, any
length.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gpudeck.scheduler.protocol.errors import MALFORMED

MAX_LINE = 4096
"""Bytes; a longer line is output, not values."""
MOST_NAMES = 64
"""The most names that a job's result has."""
_NAME = r"[a-z][\w./-]{0,63}"
_PAIR = rf"{_NAME}\s?[=:]\s?[-+]?(?:\d[\d_]*(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_PAIRS = re.compile(rf"\s*{_PAIR}(?:(?:\s*[,;|]\s*|\s+){_PAIR})*\s*")
"""A text is matched in one way only: with several, a line that fits almost would take for ever."""
_EACH = re.compile(rf"({_NAME})\s?[=:]\s?([^\s,;|]+)")
_DECODE = msgspec.json.Decoder(dict[str, Any]).decode


def values_of(line: bytes) -> dict[str, float]:
    """Return the numbers that a line of output names; nothing for ordinary output. Never raises.

    Numbers that are not finite are left out, as JSON has none.
    """
    if len(line) > MAX_LINE:
        return {}
    line = line.strip()
    if line.startswith(b"{") and line.endswith(b"}"):
        return _numbers(_object(line))
    text = line.decode(errors="replace")
    if not _PAIRS.fullmatch(text):
        return {}
    return _numbers(dict(_EACH.findall(text)))


def last_values(lines: Iterable[bytes]) -> dict[str, float]:
    """Return the newest value of each name in the lines, which are in the order of the output."""
    found: dict[str, float] = {}
    for line in lines:
        for name, value in values_of(line).items():
            if name in found or len(found) < MOST_NAMES:
                found[name] = value
    return found


def _object(line: bytes) -> dict[str, Any]:
    """Return the object of JSON, or of what Python prints of a dict; nothing for another text."""
    try:
        found = _DECODE(line)
    except MALFORMED:
        try:
            found = ast.literal_eval(line.decode())
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return {}
    if not isinstance(found, dict) or "gpudeck" in found:
        return {}
    return {name: value for name, value in found.items() if isinstance(name, str)}


def _numbers(found: dict[str, Any]) -> dict[str, float]:
    numbers = {}
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number) and len(name) <= 64:
            numbers[name] = number
    return numbers
