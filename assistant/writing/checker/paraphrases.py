"""Rewrite what people say in many ways in the words that the checker reads.

Each row is a meaning and the phrases that have it, as regular expressions. A meaning is one that a
fact decides. A phrase that means more than any fact can say becomes a word that is in no table of
`gpudeck.assistant.writing.checker.lexicon`, so its sentence is refused.
"""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import (
    phrases_of_devices,
    phrases_of_jobs,
    phrases_of_values,
)

_ROWS = (*phrases_of_devices.ROWS, *phrases_of_jobs.ROWS, *phrases_of_values.ROWS)
_TABLE = tuple(
    (re.compile(rf"(?<![\w{{.])(?:{'|'.join(phrases)})(?![\w}}])", re.IGNORECASE), meaning)
    for meaning, *phrases in _ROWS
)


def rewritten(sentence: str, quoted: str) -> str:
    """Return the sentence with every phrase in the words that the checker reads.

    Args:
        sentence: The sentence, perhaps with slots.
        quoted: The words of the facts, in lower case: a phrase that stands there is left as it is.
    """
    for pattern, meaning in _TABLE:
        found = pattern.search(sentence)
        if found and found[0].lower() not in quoted:
            sentence = pattern.sub(meaning, sentence)
    return sentence
