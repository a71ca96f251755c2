"""Read the priority of a job that is said in a word."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.tokens import unaccented

_PRIORITIES = {
    10: re.compile(r"high|highest|urgent\w*|top|max\w*|hoch|hochste\w*|hohe[mnrs]?|dringend\w*"
                   r"|hautes?|priorit\w*|prio|alt[ao]s?"),
    0: re.compile(r"normal\w*|default|standard|mittel|medium|moyenne|medi[ao]"),
    -10: re.compile(r"low|lowest|min\w*|niedrig\w*|gering\w*|basses?|faible|baj[ao]s?"),
}  # fmt: skip
"""Priorities in words; 0 is what a job has where nothing is said. What only says that one is to be
higher or lower, such as `up` and `bajar`, is none of them."""


def priority_of(letters: str) -> int | None:
    """Return the priority that a word stands for, or None; `high` and `low priority` are two.

    What is higher than something (`higher`, `höher`) has no level of its own.
    """
    words = re.findall(r"[^\W\d_]+", unaccented(letters.casefold()))
    said = {level for level, known in _PRIORITIES.items() if any(map(known.fullmatch, words))}
    lower = said - {10}  # the word priority itself means a high one
    return next(iter(lower or said)) if len(lower) == 1 or said == {10} else None


def is_priority(letters: str) -> bool:
    """Return whether letters are a word for a priority itself, which says nothing of how high."""
    return _ITSELF.fullmatch(unaccented(letters.casefold())) is not None


_ITSELF = re.compile(r"priorit\w*|prio|vorrang|preferencia")
