"""A report as data: what it says, in which order, and where each of its numbers comes from. Values only; free of torch and Qt."""

from __future__ import annotations

import zlib
from typing import Literal

import msgspec

from assistant.facts import Fact, phrases
from scheduler.protocol.errors import MALFORMED, UserError

Kind = Literal["job", "daily", "span"]
"""On one job; on a day; on a stretch of time that somebody asked for."""

Values = tuple[float | None, ...]
"""In the chart's unit; None is a gap."""


class Prose(msgspec.Struct, frozen=True, tag="prose"):
    text: str
    """Markdown."""


class Table(msgspec.Struct, frozen=True, tag="table"):
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells of Markdown: what facts say."""
    note: str = ""
    """Below it, Markdown: why there is no data for some of it."""


class Curve(msgspec.Struct, frozen=True):
    """One device: n buckets of time, each with the mean, the lowest and the highest reading."""

    label: str
    times: tuple[float, ...]
    """Seconds since the epoch."""
    mean: Values
    low: Values
    high: Values


class Chart(msgspec.Struct, frozen=True, tag="chart"):
    title: str
    unit: str
    since: float
    until: float
    """Both ends of the time axis, seconds since the epoch."""
    lines: tuple[Curve, ...]
    source: str
    top: float | None = None
    """Where the value axis ends as long as nothing is higher."""
    note: str = ""
    """Below it, Markdown: what the facts say of the curves, or why there are none."""

    @property
    def heading(self) -> str:
        """Title and unit."""
        return f"{self.title}, {self.unit}" if self.unit and self.unit != self.title else self.title


class Excerpt(msgspec.Struct, frozen=True, tag="excerpt"):
    """Foreign words, shown as they are and never taken for anything else."""

    title: str
    text: str
    """Plain text, free of control characters but line feeds."""
    source: str


Block = Prose | Table | Chart | Excerpt


class Section(msgspec.Struct, frozen=True):
    title: str
    blocks: tuple[Block, ...]


class Report(msgspec.Struct, frozen=True):
    kind: Kind
    title: str
    since: float
    until: float
    """What it is about, seconds since the epoch."""
    written: float
    writer: str
    """`template` or `model NAME`: who wrote the prose. Tables and charts are made by code."""
    sections: tuple[Section, ...]
    facts: tuple[Fact, ...]
    """Every number in it is of one of these, or a reading in a chart."""
    job: int | None = None

    @property
    def about(self) -> str:
        """What it is about, when it was written and by whom. Plain text."""
        when = phrases.stretch(self.since, self.until)
        written = phrases.moment(self.written, self.until)
        return f"{when[:1].upper()}{when[1:]}. Written {written}; the words by: {self.writer}; tables and charts by code."


def packed(report: Report) -> bytes:
    """Small enough to be kept beside a message."""
    return zlib.compress(msgspec.json.encode(report))


def unpacked(data: bytes) -> Report:
    """Raises UserError where it is none."""
    try:
        return msgspec.json.decode(zlib.decompress(data), type=Report)
    except (zlib.error, *MALFORMED) as e:
        raise UserError(f"this report cannot be read: {e}. Have it written again.") from e
