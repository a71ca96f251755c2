"""Look up facts for the cells of a report's tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.facts.phrases import escaped
from gpudeck.language.numbers import duration
from gpudeck.language.rendering import render
from gpudeck.language.text import Message
from gpudeck.language.words import Words
from gpudeck.language.words import words as english

NO_DATA = "no data"
_MOMENTS = 1e8
"""Seconds from which a value is a moment."""
_QUOTED = (
    "name", "called", "versions", "inputs", "doing", "reason", "what", "text", "device", "note",
    "source",
)  # fmt: skip
"""Facts whose words are not ours, or that quote names or the output of jobs, in which no number may
change."""


class Cells:
    """Look up facts by name for the cells of tables. Every lookup may find nothing."""

    def __init__(self, facts: Sequence[Fact], words: Words | None = None, now: float = 0.0) -> None:
        """Index the facts; `words` are those of the report's language, `now` its time."""
        self.words, self._now = words or english("en"), now
        self._named: dict[str, list[Fact]] = {}
        for fact in facts:
            self._named.setdefault(fact.name, []).append(fact)

    def said(self, name: str) -> str:
        """Return the value in words; values that differ, each with its source; `no data` if there
        is none.
        """
        known = [fact for fact in self._named.get(name, ()) if fact.value is not None]
        found = {self._said(fact): fact for fact in known}
        if len(found) > 1:
            return self.words.text(
                "sources disagree: {list}",
                list=", ".join(
                    f"{said} ({self.message(fact.source)})" for said, fact in found.items()
                ),
            )
        return next(iter(found), self.words.text(NO_DATA))

    def message(self, message: Message) -> str:
        """Return a message in the report's language."""
        return render(message, self.words.language)

    def _said(self, fact: Fact) -> str:
        moment = fact.unit == "s" and isinstance(fact.value, float) and fact.value > _MOMENTS
        if moment and self.words.language != "en":
            at = float(fact.value or 0)
            if datetime.fromtimestamp(at).date() == datetime.fromtimestamp(self._now).date():
                return self.words.text("at {clock}", clock=self.words.clock(at, seconds=True))
            return self.words.moment(at, self._now)
        if fact.worded is not None:
            return escaped(render(fact.worded, self.words.language))
        what = fact.name.rpartition(".")[2]
        return fact.said if what in _QUOTED else self.words.numbers(fact.said)

    def given(self, name: str, otherwise: str = "") -> str:
        """Return `said`, or `otherwise` if there is no value."""
        return found if (found := self.said(name)) != self.words.text(NO_DATA) else otherwise

    def uncertainty(self, name: str) -> str:
        """Return ` (±14 %)` if a source says how far the value may be off, or an empty text."""
        errors = [fact.error for fact in self._named.get(name, ()) if fact.value is not None]
        known = [error for error in errors if error]
        return f" (±{max(known):.0f} %)" if known else ""

    def missing(self, name: str) -> str | None:
        """Return why there is no value; None if there is one."""
        facts = self._named.get(name, [])
        if any(fact.value is not None for fact in facts):
            return None
        return self._why(facts[-1]) if facts else self.words.text("nothing reported it")

    def _why(self, fact: Fact) -> str:
        """Return why a fact has no value."""
        return escaped(self.message(fact.worded or ""))

    def told(self, fact: Fact) -> str:
        """Return the value of one fact, or why it has none."""
        if fact.value is None:
            return f"– ({self._why(fact)})"
        if fact.name.endswith(".covered"):
            return self.words.numbers(duration(float(fact.value)))
        return self._said(fact)

    def number(self, name: str) -> float | None:
        """Return the value itself, for sorting only."""
        values = (fact.value for fact in self._named.get(name, ()))
        return next((value for value in values if isinstance(value, int | float)), None)

    def why_not(self, wanted: Sequence[tuple[str, str]]) -> str:
        """Return a sentence for each reason why some of `wanted` (a title, the name of a fact) are
        missing.
        """
        reasons: dict[str, list[str]] = {}
        for what, name in wanted:
            if (why := self.missing(name)) is not None:
                reasons.setdefault(why, []).append(what)
        return " ".join(
            self.words.text(
                "No data for {what}: {why}.", what=", ".join(dict.fromkeys(whats)), why=why
            )
            for why, whats in reasons.items()
        )
