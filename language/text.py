"""Texts as values: an English template with what is filled in, to be rendered in any language.

    phrase("waits for job {job}, about {time}", job=3, time=moment(at, now))

Whoever shows a text calls `gpudeck.language.rendering.render`; `str` renders it in English.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Literal

import msgspec


class _Kind(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag=str.lower):
    """Tag a value with the lower-case name of its class."""


class Number(_Kind, frozen=True):
    """Represent a number that is written with the decimal sign of the reader's language."""

    value: float
    form: str = "g"
    """The format specification of Python, such as `.2f`; `,` groups whole digits."""
    unit: str = ""


class Bytes(_Kind, frozen=True):
    """Represent an amount of memory, written as 31 GiB, 1.5 GiB or 512 MiB."""

    count: float


class Span(_Kind, frozen=True):
    """Represent a span of time, written in its largest whole unit: 2 h, 90 s, 45 min."""

    seconds: float


Form = Literal["clock", "seconds", "day", "day of a year", "date", "date and clock"]
"""How a moment is written: 14:05; 14:05:09; Mon 03 Nov, 14:05; Mon 03 Nov 2025, 14:05; 03 Nov;
03 Nov, 14:05."""


class Moment(_Kind, frozen=True):
    """Represent a moment, written in the reader's time zone."""

    at: float
    """Seconds since the epoch."""
    form: Form = "clock"


class Listed(_Kind, frozen=True):
    """Represent items that are written one after another."""

    items: tuple[Value, ...]
    last: Literal["and", "or", ","] = "and"
    """What stands before the last item."""
    separator: str = ", "


class Text(_Kind, frozen=True):
    """Represent a text with its values.

    Texts compare and hash by template and values, so they can be counted and cached.
    """

    key: str
    """The English template, which the catalogues translate; values stand in braces by name."""
    values: tuple[tuple[str, Value], ...] = ()
    plural: str = ""
    """The template for other numbers than one, where the value `n` chooses between the two."""

    def __str__(self) -> str:
        """Return the text in English."""
        from gpudeck.language.rendering import render

        return render(self)


Value = str | int | float | Number | Bytes | Span | Moment | Listed | Text
"""What a text is filled with. A string is a name or a quotation, which no language changes."""
Message = str | Text
"""A string is a quotation: the words of another program, of a person, or of an old record."""


def phrase(key: str, **values: Value) -> Text:
    """Return a text. The catalogues are collected from the calls, so the template is a literal."""
    return Text(key, tuple(values.items()))


def phrase_count(one: str, many: str, n: int, **values: Value) -> Text:
    """Return the text that fits a number, which both templates may show as `{n}`."""
    return Text(one, (("n", n), *values.items()), many)


def message_of(error: Exception) -> Message:
    """Return the line of an error that was raised with a text or a string."""
    found = error.args[0] if error.args else ""
    return found if isinstance(found, Text) else str(found)


def mark_phrase(key: str) -> str:
    """Mark a template in a table for the catalogues; whoever uses it calls `Text(key)`."""
    return key


def moment(at: float, now: float | None = None) -> Moment:
    """Return a moment with its day where it is more than twelve hours away from `now`."""
    now = time.time() if now is None else now
    return Moment(at, "clock" if abs(at - now) < 43200 else "day")


def join_texts(texts: Iterable[Message], separator: str = "; ") -> Text:
    """Return several texts as one."""
    first, *more = texts
    if not more and isinstance(first, Text):
        return first
    return Text("{all}", (("all", joined((first, *more), separator)),))


def joined(items: Iterable[Value], separator: str = ", ") -> Text | Listed:
    """Return items with a separator between all of them."""
    return Listed(tuple(items), ",", separator)


_STORED_TEXT = '{"type":"text",'
"""What the JSON of a Text begins with."""


def stored_text(message: Message) -> str:
    """Return a string for a column of a table; `read_text` turns it into the message again."""
    return message if isinstance(message, str) else msgspec.json.encode(message).decode()


def read_text(stored: str) -> Message:
    """Return the message; a string of an older version, or a quotation, stays as it is."""
    if not stored.startswith(_STORED_TEXT):
        return stored
    try:
        return msgspec.json.decode(stored, type=Text)
    except msgspec.MsgspecError:
        return stored
