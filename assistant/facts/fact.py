"""A fact, and how facts about one subject are put together."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from assistant.facts import phrases


class Fact(msgspec.Struct, frozen=True):
    """One thing that may be said."""

    name: str
    value: float | int | str | None
    """As computed, None where there is none."""
    unit: str
    said: str
    """The value as Markdown: rounded, with its unit; N/A with the reason where there is none."""
    source: str
    time: float
    """When it was so, seconds since the epoch."""
    text: str
    """The whole fact as a phrase that stands alone."""

    @property
    def subject(self) -> str:
        return self.name.split(".", 1)[0]


class FactBuilder:
    """Builds the facts about one subject."""

    def __init__(self, subject: str, title: str, source: str, time: float) -> None:
        self.facts: list[Fact] = []
        self.source = source
        self._subject, self._title, self._time = subject, title, time

    def value(
        self, name: str, title: str, value: float | int | str | None, unit: str, said: str
    ) -> None:
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
            )
        )

    def text(self, name: str, title: str, words: str) -> None:
        """Words, perhaps foreign."""
        self.value(name, title, phrases.plain(words), "", phrases.escaped(words))

    def number(self, name: str, title: str, value: float, unit: str, otherwise: str) -> None:
        """A quantity in its unit; where it is not a finite number: `otherwise`, why not."""
        if math.isfinite(value):
            self.value(name, title, value, unit, phrases.quantity(value, unit))
        else:
            self.absent(name, title, otherwise)

    def absent(self, name: str, title: str, reason: str) -> None:
        self.value(name, title, None, "", f"N/A ({phrases.escaped(reason)})")


def named(facts: Iterable[Fact]) -> dict[str, Fact]:
    """Facts by name; where two bear the same name the newer one counts (the template tells both, see `assistant.writing.template`)."""
    found: dict[str, Fact] = {}
    for fact in facts:
        if fact.name not in found or fact.time >= found[fact.name].time:
            found[fact.name] = fact
    return found
