"""A request as a small model reads it best: small letters without accents or punctuation, and slips of the finger mended.

A word of five letters or more that the model was not taught, and one slip away from words that it was, is taken for the commonest of these.
A slip is a letter left out, put in or mistaken, or two swapped (Damerau, 1964). The words, the commonest first, are in `words.txt`: those
of the phrasings that a model learns from, none of what is held out (`python -m assistant.training.words` writes it).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from string import ascii_lowercase

WORDS = Path(__file__).with_name("words.txt")
SHORTEST, LONGEST = 5, 30
"""Letters of a word that is mended: a shorter one has too many neighbours, and none that is known is longer."""
WORD = re.compile(r"\{[^}]*\}|[^\W\d_]+")
_MARKS = re.compile(r"[^\w\s{}%/+°<>=#*&@-]|(?<!\w)-|-(?!\w)")


def plain(request: str) -> str:
    """`What's teh TEMPERATRE of gpu {n1}??` becomes `whats teh temperature of gpu {n1}`; slots are left as they are."""
    return WORD.sub(lambda word: _mended(word[0]), bare(request))


def bare(text: str) -> str:
    """Without capitals, accents and punctuation."""
    small = "".join(c for c in unicodedata.normalize("NFKD", text).casefold() if not unicodedata.combining(c))
    return " ".join(_MARKS.sub(" ", re.sub(r"['’´`]", "", small)).split())


@cache
def _ranks() -> dict[str, int]:
    return {word: rank for rank, word in enumerate(WORDS.read_text(encoding="utf-8").split())}


def _mended(word: str) -> str:
    ranks = _ranks()
    if not SHORTEST <= len(word) <= LONGEST or word in ranks:
        return word
    return min(slips(word) & ranks.keys(), key=ranks.__getitem__, default=word)


def slips(word: str) -> set[str]:
    """All that is one slip away from a word."""
    parts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    left_out = {a + b[1:] for a, b in parts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in parts if len(b) > 1}
    mistaken = {a + letter + b[1:] for a, b in parts if b for letter in ascii_lowercase}
    put_in = {a + letter + b for a, b in parts for letter in ascii_lowercase}
    return left_out | swapped | mistaken | put_in
