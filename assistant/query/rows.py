"""The rows that a query returns: values with units and sources."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from gpudeck.assistant.query.request import Span
from gpudeck.language.text import Message, Text

Value = float | int | str | Text | None


def number(value: Value) -> float:
    """Return a value that is a number; 0.0 for any other."""
    return value if isinstance(value, int | float) else 0.0


class Column(msgspec.Struct, frozen=True):
    """Describe a column. Its name is that of a measure, or of a part of the subject."""

    name: str
    unit: str = ""
    """As in `gpudeck.scheduler.protocol.fields`; `moment` for seconds since the epoch."""


class Row(msgspec.Struct, frozen=True):
    """Hold one row."""

    key: str
    """What it is about, such as gpu3, job12 or process4242; a chart's and a fact's subject."""
    label: str
    """The same for people: GPU 3, job 12 (train). Foreign names in it are plain text."""
    values: tuple[Value, ...]
    absent: tuple[Message, ...] = ()
    """Why values are missing, in the order of the columns; empty where they are not."""
    span: Span | None = None
    """The span of the row in a comparison of spans."""


class Note(NamedTuple):
    """Say something about the rows; the language's catalogue has its text."""

    kind: str
    values: tuple[Value, ...] = ()


class Rows(msgspec.Struct, frozen=True):
    """Hold the answer of a query."""

    subject: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    source: Text
    """Where the values come from."""
    time: float
    """When they were read, or the end of the span; seconds since the epoch."""
    span: Span | None = None
    """The span that they are about; None: now."""
    total: Value = None
    """The aggregate over the rows, in the unit of the first column."""
    best: str = ""
    """The key of the row with the highest or lowest value."""
    notes: tuple[Note, ...] = ()
    left_out: int = 0
    """Rows that the query's limit left out."""
