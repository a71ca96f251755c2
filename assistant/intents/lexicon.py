"""The words of requests in four languages, and the concepts that they stand for.

The words are in `lexicon.txt`: a section a kind, in which a line is `value: English; German;
French; Spanish`, each a list of phrases in normalized form (see
`gpudeck.assistant.intents.tokens`): no capitals and no accents but an acute one on a last letter.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpudeck.language.languages import LANGUAGES, Language

WORDS = Path(__file__).with_name("lexicon.txt")


class Meaning(NamedTuple):
    """Describe one thing that a phrase may stand for."""

    kind: str
    value: str
    languages: tuple[Language, ...]


@cache
def phrases() -> dict[tuple[str, ...], tuple[Meaning, ...]]:
    """Return the meanings of all phrases, as tuples of normalized words."""
    found: defaultdict[tuple[str, ...], dict[tuple[str, str], set[Language]]] = defaultdict(dict)
    kind = ""
    for line in filter(None, WORDS.read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            kind = line.strip("[]")
            continue
        value, _, words = line.partition(": ")
        for language, listed in zip(LANGUAGES, words.split(";"), strict=True):
            for phrase in filter(None, map(str.strip, listed.split(","))):
                known = found[tuple(phrase.split())]
                known.setdefault((kind, "" if value == "-" else value), set()).add(language)
    return {
        phrase: tuple(
            Meaning(kind, value, tuple(name for name in LANGUAGES if name in spoken))
            for (kind, value), spoken in meanings.items()
        )
        for phrase, meanings in found.items()
    }


@cache
def english(kind: str, value: str) -> str:
    """Return the first English phrase for a meaning; empty if there is none."""
    found = (
        " ".join(phrase)
        for phrase, meanings in phrases().items()
        for meaning in meanings
        if (meaning.kind, meaning.value) == (kind, value) and "en" in meaning.languages
    )
    return next(found, "")


LONGEST = 6
"""Words of the longest phrase."""
