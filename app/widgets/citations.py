"""Where a shown text tells a fact: each figure in it leads to the facts that it is from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_LONG = 12
"""Words of so many characters are marked as figures are; shorter ones, such as `done`, stand everywhere."""
_LISTED = 5
_ESCAPED = re.compile(r"\\([^a-zA-Z0-9\s])")
_SUBJECT = re.compile(r"(?:REPLAY GPU|GPU|Job|Alert) \d+|CPU")

Told = tuple[str, str, str]
"""Of a fact: all of it as a phrase, its value as Markdown, its source."""


class Citation(NamedTuple):
    start: int
    end: int
    facts: tuple[int, ...]
    """Places of the facts among those of the message; several where they say the same."""


def citations(text: str, facts: Sequence[Told]) -> list[Citation]:
    """`text`: as it is seen, plain. The longest value counts; of facts with one value those of the subject named last before it."""
    saying: dict[str, list[int]] = {}
    for i, (_, value, _) in enumerate(facts):
        said = _ESCAPED.sub(r"\1", value).replace("TFLOP/s", "TFLOP/\u2060s")
        if not said.startswith("N/A") and (re.search(r"\d", said) or len(said) >= _LONG):
            saying.setdefault(said, []).append(i)
    if not saying:
        return []
    values = "|".join(map(re.escape, sorted(saying, key=len, reverse=True)))
    found = re.finditer(rf"(?<![\w.])(?<!Job )(?<!job )(?<!GPU )(?:{values})(?!\w|\.\d)", text)
    subjects = [(match.start(), match[0].lower()) for match in _SUBJECT.finditer(text)]
    return [
        Citation(
            match.start(), match.end(), _nearest(match.start(), subjects, saying[match[0]], facts)
        )
        for match in found
    ]


def tooltip(citation: Citation, facts: Sequence[Told]) -> str:
    """The facts and their sources, a line each; plain text."""
    told = [(_ESCAPED.sub(r"\1", facts[i][0]), facts[i][2]) for i in citation.facts[:_LISTED]]
    return "\n".join(f"{text} ({source})" for text, source in told)


def _nearest(
    at: int, subjects: Sequence[tuple[int, str]], candidates: Sequence[int], facts: Sequence[Told]
) -> tuple[int, ...]:
    for start, subject in reversed(subjects):
        if start <= at and (
            own := tuple(i for i in candidates if facts[i][0].lower().startswith(f"{subject} "))
        ):
            return own
    return tuple(candidates)
