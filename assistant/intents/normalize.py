"""Normalize a request for the small model: lower case, no punctuation, few accents, typos mended.

A word of five letters or more that the model was not taught is replaced by the most frequent taught
word that one typo turns into it: a letter left out, typed twice, replaced by its neighbour on the
keyboard, or swapped with the next one (Damerau, 1964). First letters are taken as typed, and words
that merely look alike are left alone. The taught words, the most frequent first, are in
`words.txt`, written by `python -m assistant.training.words` without the held-out phrasings.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path
from string import ascii_lowercase

WORDS = Path(__file__).with_name("words.txt")
SHORTEST, LONGEST = 5, 30
"""Letters of a word that is mended: shorter ones have too many neighbours, and no taught word is
longer."""
WORD = re.compile(r"\{[^}]*\}|[^\W\d_]+")
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_APOSTROPHES = re.compile(r"['’´`]")
_NOT_LAST = re.compile(r"[^éó\x00-\x7f]|[éó](?=\w)")
"""Characters whose accents are removed."""
_CPU = re.compile(r"(?<![\d}] )\bcpu(s?)\b(?! [\d{])")
"""The CPU is read as a GPU, which the taught phrasings speak of, unless a number is beside it."""
_MARKS = re.compile(r"[^\w\s{}%/+°<>=#*&@-]|(?<!\w)-|-(?!\w)")
"""All characters but those of slots, units, paths, sums and hyphenated words."""


def plain(request: str) -> str:
    """Normalize a request, for example `The TEMPERATRE, please??` to `the temperature please`.

    Slots such as {n1} stay as they are.
    """
    return _CPU.sub(r"gpu\1", WORD.sub(lambda word: _mended(word[0]), bare(request)))


def bare(text: str) -> str:
    """Remove capitals, punctuation, and accents but an acute one at the end of a word.

    That one distinguishes *annulé* from *annule* and *canceló* from *cancelo*. Look-alikes of
    letters, digits and braces from other scripts do not pass for them.
    """
    composed = unicodedata.normalize("NFC", _APOSTROPHES.sub("", text).casefold())
    letters = "".join(c for c in composed if not unicodedata.combining(c))
    return " ".join(
        _MARKS.sub(" ", _NOT_LAST.sub(lambda letter: _base(letter[0]), letters)).split()
    )


def _base(letter: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", letter) if not unicodedata.combining(c))


def unaccented(text: str) -> str:
    """Remove what `bare` removes and all accents, as on a keyboard without them."""
    return bare(text).replace("é", "e").replace("ó", "o")


@cache
def _ranks() -> dict[str, int]:
    return {word: rank for rank, word in enumerate(WORDS.read_text(encoding="utf-8").split())}


def _mended(word: str) -> str:
    ranks = _ranks()
    if not SHORTEST <= len(word) <= LONGEST or word in ranks:
        return word
    return min(typo_candidates(word) & ranks.keys(), key=ranks.__getitem__, default=word)


def typo_candidates(word: str) -> set[str]:
    """Return all spellings that one typo behind the first letter turns into this word."""
    inside = [(word[:i], word[i:]) for i in range(1, len(word))]
    left_out = {a + letter + b for a, b in inside for letter in ascii_lowercase}
    twice = {a + b[1:] for a, b in inside if a[-1] == b[0]}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in inside if len(b) > 1}
    missed = {a + letter + b[1:] for a, b in inside if len(b) > 1 for letter in _beside(b[0])}
    return left_out | twice | swapped | missed


@cache
def _beside(letter: str) -> frozenset[str]:
    """Return the keys next to a letter on the keyboard."""
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
