"""Read the priority of a job that is said in a word."""

from __future__ import annotations

import re

from gpudeck.assistant.intents.tokens import unaccented

_PRIORITIES = {
    10: re.compile(r"high\w*|urgent\w*|top|max\w*|up|bump|raise|hoch\w*|hoh\w+|dringend\w*|rauf"
                   r"|hautes?|priorit\w*|monte\w*|alt[ao]s?|sub\w+"),
    0: re.compile(r"normal\w*|default|standard|mittel|medium|moyenne|medi[ao]"),
    -10: re.compile(r"low\w*|down|min\w*|niedrig\w*|gering\w*|runter|senk\w*|basses?|baiss\w*"
                    r"|faible|baj\w+"),
}  # fmt: skip
"""Priorities in words, behind which none is left out; 0 is what a job has where nothing is said."""


def priority_of(letters: str) -> int | None:
    """Return the priority that a word stands for, or None; `high` and `low priority` are two."""
    words = re.findall(r"[^\W\d_]+", unaccented(letters.casefold()))
    said = {level for level, known in _PRIORITIES.items() if any(map(known.fullmatch, words))}
    lower = said - {10}  # the word priority itself means a high one
    return next(iter(lower or said)) if len(lower) == 1 or said == {10} else None
