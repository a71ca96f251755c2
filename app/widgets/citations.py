"""Find the values in a text that come from facts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LONG = 12
"""Words of this length are cited like numbers; shorter ones, such as `done`, are too common."""
_LISTED = 5
_ESCAPED = re.compile(r"\\([^a-zA-Z0-9\s])")
_SUBJECT = re.compile(r"(?:REPLAY GPU|GPU|Job|Alert) \d+|CPU")

CitedFact = tuple[str, str, str]
"""A fact as a phrase with its value, the value as Markdown, and its source."""


class Citation(NamedTuple):
    """One value in a text, and the facts that it comes from."""

    start: int
    end: int
    facts: tuple[int, ...]
    """Indices of the facts; several if they have the same value."""


def citations(text: str, facts: Sequence[CitedFact]) -> list[Citation]:
    """Find the values of facts in a text.

    The longest value counts. Of facts with the same value, those about the subject that was named
    last before it count.

    Args:
        text: Plain text, as it is shown.
    """
    of_value: dict[str, list[int]] = {}
    for i, (_, value, _) in enumerate(facts):
        value_text = unescaped(value).replace("TFLOP/s", "TFLOP/\u2060s")
        if not value_text.startswith("N/A") and (
            re.search(r"\d", value_text) or len(value_text) >= _LONG
        ):
            of_value.setdefault(value_text, []).append(i)
    if not of_value:
        return []
    values = "|".join(map(re.escape, sorted(of_value, key=len, reverse=True)))
    found = re.finditer(rf"(?<![\w.])(?<!Job )(?<!job )(?<!GPU )(?:{values})(?!\w|\.\d)", text)
    subjects = [(match.start(), match[0].lower()) for match in _SUBJECT.finditer(text)]
    return [
        Citation(
            match.start(), match.end(), _nearest(match.start(), subjects, of_value[match[0]], facts)
        )
        for match in found
    ]


def unescaped(text: str) -> str:
    """Return Markdown without the backslashes that keep its characters as they are."""
    return _ESCAPED.sub(r"\1", text)


def tooltip(citation: Citation, facts: Sequence[CitedFact]) -> str:
    """Return the facts and their sources, a line each, as plain text."""
    lines = [(unescaped(facts[i][0]), facts[i][2]) for i in citation.facts[:_LISTED]]
    return "\n".join(f"{text} ({source})" for text, source in lines)


def _nearest(
    at: int,
    subjects: Sequence[tuple[int, str]],
    candidates: Sequence[int],
    facts: Sequence[CitedFact],
) -> tuple[int, ...]:
    """Return the candidates about the subject that was named last before a place in the text."""
    for start, subject in reversed(subjects):
        own = tuple(i for i in candidates if facts[i][0].lower().startswith(f"{subject} "))
        if start <= at and own:
            return own
    return tuple(candidates)
