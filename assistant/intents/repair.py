"""Mend words that nobody knows: typos, umlauts typed as two letters, compounds, joined pronouns.

A mended word is only ever read, never trusted: `gpudeck.assistant.intents.exact` compares what was
typed, so that an order with a mended word shows its card. Words of other scripts stay unknown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path

from gpudeck.assistant.intents.lexicon import phrases
from gpudeck.assistant.intents.setting_words import setting_phrases
from gpudeck.assistant.intents.tokens import Token, unaccented, unit_words
from gpudeck.language.languages import Language

WORDS = Path(__file__).with_name("words.txt")
"""Words of requests, the most frequent first."""
SHORTEST = 4
"""Letters of a word that is mended; shorter ones have too many neighbours."""
_SURE = 7
"""Letters from which on a word may have two typos."""
_COMMON = 19_000
"""The most frequent taught words are words, also where the lexicon lacks them."""
_PART = 4
"""The fewest letters of a compound's part."""
_LINKS = ("", "s", "n", "en", "es")
"""What joins the parts of a German compound."""
_PLAIN = re.compile(r"[a-zé]+")
_TWO_LETTERS = (("ae", "a"), ("oe", "o"), ("ue", "u"))
_ENCLITICS = ("melo", "mela", "noslo", "me", "nos", "lo", "la", "los", "las", "le", "les", "se")
_PRONOUN = {"melo": "lo", "mela": "la", "noslo": "lo"}


def mended(tokens: Sequence[Token], names: Collection[str]) -> list[Token]:
    """Return the tokens with unknown words mended.

    Args:
        tokens: Of a request.
        names: Words of the names of jobs and groups, which stay as they are.
    """
    if any(token.kind == "odd" for token in tokens):
        return list(tokens)  # invisible characters split words: nothing here is a typo
    spoken = _spoken(tokens)
    found: list[Token] = []
    for token in tokens:
        word = unaccented(token.norm)
        if token.kind != "word" or word in names or token.norm in names or _known(word):
            found.append(token)
        else:
            found += [token._replace(norm=part) for part in _mended(token, word, spoken)]
    return found


def _spoken(tokens: Sequence[Token]) -> Language | None:
    """Return the language of most known words, or None."""
    votes: Counter[Language] = Counter()
    for token in tokens:
        for name in _languages().get(unaccented(token.norm), ()):
            votes[name] += 1
    best = votes.most_common(2)
    return best[0][0] if best and (len(best) == 1 or best[0][1] > best[1][1]) else None


@cache
def _languages() -> dict[str, frozenset[Language]]:
    """Return the languages of the words of requests."""
    found: defaultdict[str, set[Language]] = defaultdict(set)
    for phrase, meanings in phrases().items():
        for word in phrase:
            found[unaccented(word)].update(name for one in meanings for name in one.languages)
    return {word: frozenset(names) for word, names in found.items()}


def _mended(token: Token, word: str, spoken: Language | None) -> tuple[str, ...]:
    """Return the words that an unknown one stands for, or itself."""
    if len(word) < SHORTEST or not _PLAIN.fullmatch(token.norm) or " " in token.norm:
        return (token.norm,)
    for way in (_with_umlaut, _without_pronoun, _parts):
        if found := way(word):
            return found
    return _nearest(word, spoken) or (token.norm,)


@cache
def vocabulary() -> frozenset[str]:
    """Return all words that requests are read by, without accents."""
    words = {word for phrase in phrases() for word in phrase}
    words |= {word for phrase in setting_phrases() for word in phrase}
    return frozenset(map(unaccented, words | set(unit_words())))


@cache
def common_words() -> dict[str, int]:
    """Return the rank of the most frequent taught words."""
    words = WORDS.read_text(encoding="utf-8").split()[:_COMMON]
    return {word: rank for rank, word in enumerate(words)}


def _known(word: str) -> bool:
    return word in vocabulary()


def _with_umlaut(word: str) -> tuple[str, ...]:
    for typed, letter in _TWO_LETTERS:
        if typed in word and _known(found := word.replace(typed, letter)):
            return (found,)
    return ()


def _without_pronoun(word: str) -> tuple[str, ...]:
    """Return a Spanish verb and the pronoun at its end: `cancelalo` is `cancela lo`."""
    for ending in _ENCLITICS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= 3 and _acts(stem):
            return (stem, _PRONOUN.get(ending, ending))
    return ()


def _acts(word: str) -> bool:
    return any(
        meaning.kind in ("verb", "compare", "filler") and "es" in meaning.languages
        for meaning in phrases().get((word,), ())
    )


def _parts(word: str) -> tuple[str, ...]:
    """Return the parts of a German compound: `durchschnittstemperatur`."""
    for cut in range(len(word) - _PART, _PART - 1, -1):
        last = word[cut:]
        if not _noun(last):
            continue
        for link in _LINKS:
            first = word[:cut].removesuffix(link)
            if word[:cut].endswith(link) and len(first) >= 3 and _noun(first):
                return (first, last)
    return ()


def _noun(word: str) -> bool:
    return any(
        meaning.kind not in ("filler", "verb", "pron", "not", "cond", "ask", "all")
        and "de" in meaning.languages
        for meaning in phrases().get((word,), ())
    )


@cache
def _by_letter() -> dict[str, tuple[str, ...]]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for word in sorted(vocabulary()):
        if len(word) >= SHORTEST:
            found[word[0]].append(word)
    return {letter: tuple(words) for letter, words in found.items()}


@cache
def _nearest(word: str, spoken: Language | None) -> tuple[str, ...]:
    """Return the known word with the same first letter that the fewest typos turn into this."""
    ranks = common_words()
    if len(word) < SHORTEST or word in ranks or _known(word):
        return ()
    allowed = 2 if len(word) >= _SURE else 1
    near = [
        (distance(word, other, allowed), ranks.get(other, _COMMON), other)
        for other in (*_by_letter().get(word[0], ()), *_by_letter().get(word[1], ()))
        if abs(len(other) - len(word)) <= allowed
        and (other[0] == word[0] or other[:2] == word[1::-1])
        and (spoken is None or spoken in _languages().get(other, {spoken}))
    ]
    best = min((one for one in near if one[0] <= allowed), default=None)
    return (best[2],) if best is not None else ()


def distance(first: str, second: str, most: int) -> int:
    """Count letters left out, added, replaced or swapped with their neighbour, up to `most` + 1."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, letter in enumerate(first, 1):
        last, row, before = before, [i] + [0] * len(second), row
        for k, other in enumerate(second, 1):
            row[k] = min(before[k] + 1, row[k - 1] + 1, before[k - 1] + (letter != other))
            if i > 1 and k > 1 and letter == second[k - 2] and first[i - 2] == other:
                row[k] = min(row[k], last[k - 2] + 1)
        if min(row) > most:
            return most + 1
    return row[-1]


def changes(tokens: Iterable[Token]) -> tuple[tuple[str, str], ...]:
    """Return the words that typos were found in, as typed and as read."""
    return tuple(
        (token.text, token.norm)
        for token in tokens
        if token.kind == "word" and _is_typo(unaccented(token.text.casefold()), token.norm)
    )


def _is_typo(typed: str, read: str) -> bool:
    return (
        typed != unaccented(read) and len(typed) >= SHORTEST and not _known(typed)
        and distance(typed, read, 2) <= 2 and typed.isalpha()
        and not any(way(typed) for way in (_with_umlaut, _without_pronoun))
    )  # fmt: skip
