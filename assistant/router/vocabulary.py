"""Turn requests into tokens of the router model: words in pieces, slots and symbols whole."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from random import Random

END = 0
"""The token that ends a meaning."""
ASK, AGAIN, MEANS = "[ask]", "[again]", "[means]"
_PIECE = re.compile(r"<\w\d>|\(\w+\)|[^\s<>()]+")
_WORD = re.compile(r"[^\W\d_]+|\d+|[^\w\s]")
_KEPT = frozenset("%/+°#&")
_CUT = 0.08
"""The share of words that are cut at a random place in training, as unknown words are."""


def words(text: str) -> list[str]:
    """Return the words of a request in lower case, without accents and punctuation; slots whole."""
    found: list[str] = []
    for part in _PIECE.findall(text):
        if part[0] in "<(":
            found.append(part)
            continue
        folded = unicodedata.normalize("NFD", part.casefold())
        bare = "".join(c for c in folded if not unicodedata.combining(c))
        found += [word for word in _WORD.findall(bare) if word[0].isalnum() or word in _KEPT]
    return found


class Vocabulary:
    """Hold the tokens: symbols of meanings and slots, then pieces of words."""

    def __init__(self, symbols: Iterable[str], pieces: Iterable[str]) -> None:
        self.symbols, self.pieces = list(symbols), list(pieces)
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols, END + 1)}
        first = len(self.symbols) + 1
        self._pieces = {piece: i for i, piece in enumerate(self.pieces, first)}
        self.size = first + len(self.pieces)
        self._longest = max(map(len, self.pieces))
        self._cached = lru_cache(50_000)(self._cut)

    @classmethod
    def load(cls, file: Path) -> Vocabulary:
        """Load a vocabulary: symbols, an empty line, and pieces, one a line."""
        symbols, _, pieces = file.read_text(encoding="utf-8").partition("\n\n")
        return cls(symbols.splitlines(), pieces.splitlines())

    def save(self, file: Path) -> None:
        """Write what `load` reads."""
        parts = ("\n".join(self.symbols), "\n".join(self.pieces))
        file.write_text("\n\n".join(parts) + "\n", encoding="utf-8")

    def _cut(self, text: str) -> tuple[int, ...]:
        """Return the longest pieces of a text, from its beginning on."""
        found: list[int] = []
        while text:
            for size in range(min(len(text), self._longest), 0, -1):
                if (token := self._pieces.get(text[:size])) is not None:
                    found.append(token)
                    text = text[size:]
                    break
            else:
                text = text[1:]  # a letter of another script
        return tuple(found)

    def request(self, text: str, random: Random | None = None) -> list[int]:
        """Return the tokens of a request with slots; with `random`, some words are cut anywhere."""
        found: list[int] = []
        for word in words(text):
            if word[0] in "<(":
                found += [self.ids[word]] if word in self.ids else []
            elif random is not None and len(word) > 3 and random.random() < _CUT:
                at = random.randrange(1, len(word))
                found += [*self._cut(f" {word[:at]}"), *self._cut(word[at:])]
            else:
                found += self._cached(f" {word}")
        return found

    def meaning(self, text: str) -> list[int]:
        """Return the tokens of a meaning. Raises KeyError for an unknown symbol."""
        return [self.ids[word] for word in text.split()]

    def prompt(
        self, before: str, request: str, twice: bool, random: Random | None = None
    ) -> list[int]:
        """Return the tokens that a meaning follows.

        Args:
            before: The meaning of the last request, without its slots; empty at first.
            request: The request with slots.
            twice: Read the request twice: the second time knows its end.
            random: Vary how words are cut.
        """
        asked = self.request(request, random)
        again = [self.ids[AGAIN], *self.request(request, random)] if twice else []
        return [*self.meaning(before), self.ids[ASK], *asked, *again, self.ids[MEANS]]
