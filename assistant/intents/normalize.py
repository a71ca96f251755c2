"""A request as a small model reads it best: small letters without punctuation and most accents, and slips of the finger mended.

A word of five letters or more that the model was not taught is taken for the commonest taught one that is typed so by one slip: a letter
left out, struck twice, missed for its neighbour on the keyboard, or swapped with the next (Damerau, 1964). First letters are not missed,
and words that merely look alike are left alone. The words, the commonest first, are in `words.txt`: those of the phrasings that a model
learns from, none of what is held out (`python -m assistant.training.words` writes it).
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
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_APOSTROPHES = re.compile(r"['’´`]")
_NOT_LAST = re.compile(r"[^éó\x00-\x7f]|[éó](?=\w)")
"""What may have an accent that is not kept."""
_CPU = re.compile(r"(?<![\d}] )\bcpu(s?)\b(?! [\d{])")
"""A device like the others to all tools: read as a GPU, of which the phrasings speak; but none of several, nor so many of them."""
_MARKS = re.compile(r"[^\w\s{}%/+°<>=#*&@-]|(?<!\w)-|-(?!\w)")
"""All but what slots, units, paths, sums and hyphened words are made of."""


def plain(request: str) -> str:
    """`What's teh TEMPERATRE of gpu {n1}??` becomes `whats teh temperature of gpu {n1}`; slots are left as they are."""
    return _CPU.sub(r"gpu\1", WORD.sub(lambda word: _mended(word[0]), bare(request)))


def bare(text: str) -> str:
    """Without capitals and punctuation, and without accents but an acute one at the end of a word, which parts *annulé* from *annule*,
    *résumé* from *resume* and *canceló* from *cancelo*. What only looks like a letter, a digit or a brace is made none."""
    composed = unicodedata.normalize("NFC", _APOSTROPHES.sub("", text).casefold())
    letters = "".join(c for c in composed if not unicodedata.combining(c))
    return " ".join(
        _MARKS.sub(" ", _NOT_LAST.sub(lambda letter: _base(letter[0]), letters)).split()
    )


def _base(letter: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", letter) if not unicodedata.combining(c))


def unaccented(text: str) -> str:
    """As `bare`, and as one types it whose keyboard has no accents."""
    return bare(text).replace("é", "e").replace("ó", "o")


@cache
def _ranks() -> dict[str, int]:
    return {word: rank for rank, word in enumerate(WORDS.read_text(encoding="utf-8").split())}


def _mended(word: str) -> str:
    ranks = _ranks()
    if not SHORTEST <= len(word) <= LONGEST or word in ranks:
        return word
    return min(meant(word) & ranks.keys(), key=ranks.__getitem__, default=word)


def meant(word: str) -> set[str]:
    """What is typed like this by one slip behind its first letter."""
    inside = [(word[:i], word[i:]) for i in range(1, len(word))]
    left_out = {a + letter + b for a, b in inside for letter in ascii_lowercase}
    twice = {a + b[1:] for a, b in inside if a[-1] == b[0]}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in inside if len(b) > 1}
    missed = {a + letter + b[1:] for a, b in inside if len(b) > 1 for letter in _beside(b[0])}
    return left_out | twice | swapped | missed


@cache
def _beside(letter: str) -> frozenset[str]:
    """The keys that touch a letter's."""
    places = {
        key: (row, column + row / 2)
        for row, keys in enumerate(_ROWS)
        for column, key in enumerate(keys)
    }
    if letter not in places:
        return frozenset()
    row, column = places[letter]
    return frozenset(
        key
        for key, (r, c) in places.items()
        if key != letter and abs(r - row) <= 1 and abs(c - column) <= 1
    )
