"""Represent a fact, and build the facts about one subject."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from gpudeck.assistant.facts import phrases
from gpudeck.language.rendering import render
from gpudeck.language.text import Message, Text, phrase

QUEUE = phrase("queue")
"""The source of what the queue knows of jobs."""


class Fact(msgspec.Struct, frozen=True):
    """Represent one thing that a text may state."""

    name: str
    value: float | int | str | None
    """The computed value; None if there is none."""
    unit: str
    said: str
    """The value as Markdown, rounded and with its unit; N/A with the reason if there is none."""
    source: Message
    time: float
    """The time of the value, seconds since the epoch."""
    text: str
    """The whole fact as a phrase that stands alone."""
    error: float | None = None
    """How far the value may be off, in percent, either way; None if its source does not say."""
    worded: Message | None = None
    """The text in `said` as a value that other languages can render, or why there is no value."""

    @property
    def subject(self) -> str:
        """Return the part of the name before the first dot."""
        return self.name.split(".", 1)[0]


class FactBuilder:
    """Build the facts about one subject."""

    def __init__(self, subject: str, title: str, source: Message, time: float) -> None:
        self.facts: list[Fact] = []
        self.source = source
        self.error: float | None = None
        self._subject, self._title, self._time = subject, title, time

    def value(
        self,
        name: str,
        title: str,
        value: float | int | str | None,
        unit: str,
        said: str,
        worded: Message | None = None,
    ) -> None:
        """Add a value with its text, and with `worded`; the whole fact reads `TITLE: SAID`."""
        text = f"{self._title} {title}: {said}".strip()
        self.facts.append(
            Fact(
                f"{self._subject}.{name}",
                value,
                unit,
                said,
                self.source,
                self._time,
                text[0].upper() + text[1:],
                self.error,
                worded,
            )
        )

    def text(self, name: str, title: str, words: Message) -> None:
        """Add words, perhaps foreign ones."""
        shown = render(words)
        worded = None if isinstance(words, str) else words
        self.value(name, title, phrases.plain(shown), "", phrases.escaped(shown), worded)

    def number(self, name: str, title: str, value: float, unit: str, otherwise: Text) -> None:
        """Add a quantity in its unit; if it is not finite, add that it is absent, and why:
        `otherwise`.
        """
        if math.isfinite(value):
            self.value(name, title, value, unit, phrases.quantity(value, unit))
        else:
            self.absent(name, title, otherwise)

    def absent(self, name: str, title: str, reason: Message) -> None:
        """Add that there is no value, and why."""
        self.value(name, title, None, "", f"N/A ({phrases.escaped(render(reason))})", reason)


def named(facts: Iterable[Fact]) -> dict[str, Fact]:
    """Return facts by name; of two facts with one name the newer one counts.

    The template states both (see `gpudeck.assistant.writing.template`).
    """
    found: dict[str, Fact] = {}
    for fact in facts:
        if fact.name not in found or fact.time >= found[fact.name].time:
            found[fact.name] = fact
    return found
