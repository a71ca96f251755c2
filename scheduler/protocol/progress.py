"""The progress protocol: a job may print, on a line of its own, a JSON object like

    {"gpudeck": "progress", "done": 3, "total": 10, "note": "timing", "flops": 1.2e13, "time": 1760000000.0}

`flops` counts up over the job's life; `time` is seconds since the epoch. All but `gpudeck`, `done` and `total` may be left out.
Bars of tqdm are understood too, of jobs that do not speak the protocol.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from scheduler.protocol.errors import MALFORMED
from scheduler.protocol.jobs import Progress

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


class _Line(msgspec.Struct):
    gpudeck: Literal["progress"]
    done: float
    total: float
    note: str = ""
    flops: float = 0.0
    time: float = 0.0


_DECODE = msgspec.json.Decoder(_Line).decode


def parse(line: bytes, now: float) -> Progress | None:
    """The progress this line of output reports, or None where it is ordinary output. Never raises: output is foreign data."""
    if len(line) > MAX_LINE or _MARK not in line:
        return None
    try:
        said = _DECODE(line)
    except MALFORMED:
        return None
    if (
        not all(math.isfinite(x) for x in (said.done, said.total, said.flops, said.time))
        or said.total <= 0
    ):
        return None
    done = min(max(said.done, 0.0), said.total)
    at = (
        min(said.time, now) if said.time > 0 else now
    )  # a clock that runs ahead (or counts in ms) must not look like the future
    return Progress(done, said.total, printable(said.note)[:120], max(said.flops, 0.0), at)


def parse_bar(line: bytes, now: float) -> Progress | None:
    """The progress that a bar of tqdm shows, such as `train:  45%|####5     | 45/100 [00:12<00:15, 3.6it/s]`; else None."""
    found = _BAR.fullmatch(line) if len(line) <= MAX_LINE and b"%|" in line else None
    if found is None:
        return None
    note, done, total = (
        found["note"].decode(errors="replace"),
        _scaled(found["done"]),
        _scaled(found["total"]),
    )
    return (
        Progress(min(done, total), total, printable(note).strip(" :")[:120], 0.0, now)
        if total > 0
        else None
    )


def _scaled(text: bytes) -> float:
    """A count as tqdm writes it, with or without a unit: 45, 1.20k, 3.0M."""
    factor = _FACTORS.get(text[-1:], 1.0)
    return float(text[:-1] if factor > 1 else text) * factor


def unescaped(text: str) -> str:
    """`text` without the sequences that colour a terminal, move its cursor or name its window."""
    return _ESCAPES.sub("", text)


def printable(text: str) -> str:
    """`text` without control characters: what a job prints must not steer a terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
