"""Represent a report as data: its sections, their order, and the source of every number.

These are values only, without torch and Qt.
"""

from __future__ import annotations

import zlib
from typing import Literal

import msgspec

from gpudeck.assistant.facts import Fact, phrases
from gpudeck.language.languages import Language
from gpudeck.language.numbers import capitalized
from gpudeck.language.text import phrase
from gpudeck.language.words import Words, words
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError

Kind = Literal["job", "daily", "span"]
"""A report on one job, on a day, or on a span that somebody asked for."""

Values = tuple[float | None, ...]
"""Values in the chart's unit; None is a gap."""


class Prose(msgspec.Struct, frozen=True, tag="prose"):
    """Represent running text."""

    text: str
    """Markdown."""


class Table(msgspec.Struct, frozen=True, tag="table"):
    """Represent a table with a title and a note."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    """Cells of Markdown, from facts."""
    note: str = ""
    """Markdown below the table: why some of it has no data."""


class Curve(msgspec.Struct, frozen=True):
    """Represent one device: buckets of time, each with the mean, lowest and highest reading."""

    label: str
    times: tuple[float, ...]
    """Seconds since the epoch."""
    mean: Values
    low: Values
    high: Values


class Chart(msgspec.Struct, frozen=True, tag="chart"):
    """Represent a chart over time, with a curve for each device."""

    title: str
    unit: str
    since: float
    until: float
    """The ends of the time axis, seconds since the epoch."""
    lines: tuple[Curve, ...]
    source: str
    top: float | None = None
    """The end of the value axis, unless a value is higher."""
    note: str = ""
    """Markdown below the chart: what the facts say about the curves, or why there are none."""

    @property
    def heading(self) -> str:
        """Return the title with the unit."""
        return f"{self.title}, {self.unit}" if self.unit and self.unit != self.title else self.title


class Excerpt(msgspec.Struct, frozen=True, tag="excerpt"):
    """Represent foreign words, which are shown as they are and never interpreted."""

    title: str
    text: str
    """Plain text without control characters other than line feeds."""
    source: str


Block = Prose | Table | Chart | Excerpt


class Section(msgspec.Struct, frozen=True):
    """Represent a section: a title and its blocks."""

    title: str
    blocks: tuple[Block, ...]


class Report(msgspec.Struct, frozen=True):
    """Represent a whole report."""

    kind: Kind
    title: str
    since: float
    until: float
    """The ends of the span it is about, seconds since the epoch."""
    written: float
    writer: str
    """`template` or `model NAME`, for the prose; code makes tables and charts."""
    sections: tuple[Section, ...]
    facts: tuple[Fact, ...]
    """The facts: every number in the report is of one of these, or a reading in a chart."""
    job: int | None = None
    language: Language = "en"

    @property
    def words(self) -> Words:
        """Return the words of its language."""
        return words(self.language)

    @property
    def about(self) -> str:
        """Return the span, unless the title has it, the time of writing and the writer, as plain
        text."""
        when = phrases.stretch(self.since, self.until)
        written = phrases.moment(self.written, self.until)
        if self.language != "en":
            when = self.words.span(self.since, self.until, self.until)
            written = self.words.moment(self.written, self.until)
        made = self.words.text(
            "Written {written}. Text by: {writer}. Tables and charts by code.",
            written=written,
            writer=self.words.text("template") if self.writer == "template" else self.writer,
        )
        return made if self.kind == "span" else f"{capitalized(when)}. {made}"


def packed(report: Report) -> bytes:
    """Return the report as bytes small enough to keep beside a message."""
    return zlib.compress(msgspec.json.encode(report))


def unpacked(data: bytes) -> Report:
    """Return a packed report. Raises UserError if it cannot be read."""
    try:
        return msgspec.json.decode(zlib.decompress(data), type=Report)
    except (zlib.error, *MALFORMED) as e:
        raise UserError(
            phrase("this report cannot be read: {problem}. Write it again.", problem=str(e))
        ) from e
