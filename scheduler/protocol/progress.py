"""The progress protocol: a job may print a line that holds nothing but a JSON object like

    {"gpudeck": "progress", "done": 3, "total": 10, "note": "time", "flops": 1.2e13, "time": 1.7e9}

`flops` counts up over the job's life; `time` is in seconds since the epoch. All fields but
`gpudeck`, `done` and `total` are optional. The bars of tqdm are read, too, for jobs that do not use
the protocol.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from gpudeck.scheduler.protocol.errors import MALFORMED
from gpudeck.scheduler.protocol.jobs import Progress

MAX_LINE = 4096
"""Bytes; a longer line is output, not progress."""
_MARK = b'"gpudeck"'
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""ECMA-48: colours, cursor moves, titles."""
_FACTORS = {b"k": 1e3, b"M": 1e6, b"G": 1e9, b"T": 1e12}
_COUNT = rb"\d{1,15}(?:\.\d{1,9})?[kMGT]?"
_BAR = re.compile(
    rb"(?P<note>[^%|]{0,200}?)\s{0,9}\d{1,3}%\|[^|]*\| *(?P<done>"
    + _COUNT
    + rb")/(?P<total>"
    + _COUNT
    + rb") \[.*"
)


class _ProgressLine(msgspec.Struct):
    """Represent a line of the protocol."""

    gpudeck: Literal["progress"]
    done: float
    total: float
    note: str = ""
    flops: float = 0.0
    time: float = 0.0


_DECODE = msgspec.json.Decoder(_ProgressLine).decode


def parse(line: bytes, now: float) -> Progress | None:
    """Return the progress that a line of output reports; None for ordinary output. Never raises."""
    if len(line) > MAX_LINE or _MARK not in line:
        return None
    try:
        report = _DECODE(line)
    except MALFORMED:
        return None
    numbers = (report.done, report.total, report.flops, report.time)
    if not all(math.isfinite(number) for number in numbers) or report.total <= 0:
        return None
    done = min(max(report.done, 0.0), report.total)
    # the time of a clock that runs ahead (or counts in ms) must not be in the future
    at = min(report.time, now) if report.time > 0 else now
    return Progress(done, report.total, printable(report.note)[:120], max(report.flops, 0.0), at)


def parse_bar(line: bytes, now: float) -> Progress | None:
    """Return the progress that a bar of tqdm shows; None for any other line.

    A bar is like `train:  45%|####5     | 45/100 [00:12<00:15, 3.6it/s]`.
    """
    found = _BAR.fullmatch(line) if len(line) <= MAX_LINE and b"%|" in line else None
    if found is None:
        return None
    done, total = _scaled(found["done"]), _scaled(found["total"])
    note = printable(found["note"].decode(errors="replace")).strip(" :")[:120]
    return Progress(min(done, total), total, note, 0.0, now) if total > 0 else None


def _scaled(text: bytes) -> float:
    """Return a count that tqdm wrote with or without a unit: 45, 1.20k, 3.0M."""
    factor = _FACTORS.get(text[-1:], 1.0)
    return float(text[:-1] if factor > 1 else text) * factor


def unescaped(text: str) -> str:
    """Return the text without the escape sequences of a terminal (colours, cursor, titles)."""
    return _ESCAPES.sub("", text)


def printable(text: str) -> str:
    """Return the text without control characters, so that it cannot control a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
