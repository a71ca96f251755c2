"""Vary requests whose meaning is known: other names and numbers, and carelessly typed."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from gpudeck.assistant.training.filler import mistyped
from gpudeck.assistant.training.requests import Example

_NAMES = frozenset(
    {"jobs", "after", "after_any", "beside", "except", "user", "group", "tag", "name"}
)
"""Fields whose words may be others."""
_NAME = re.compile(r"[^\W\d_][\w.-]+")
_OTHER, _TYPO, _LOW, _PLAIN, _OPEN, _UNTOLD = 0.5, 0.12, 0.15, 0.15, 0.2, 0.1
"""How often a name or number is another one, a text is mistyped, in small letters, without accents
or without the mark at its end, and the words of the request before are not told."""


def names_of(found: Iterable[Example]) -> dict[str, tuple[str, ...]]:
    """Return the names that requests have in each field."""
    names = defaultdict[str, set[str]](set)
    for one in found:
        for field, first, last in one.spans:
            if field in _NAMES and _NAME.fullmatch(letters := one.text[first:last]):
                names[field].add(letters)
    return {field: tuple(sorted(each)) for field, each in names.items()}


def varied(one: Example, random: Random, names: Mapping[str, Sequence[str]]) -> Example:
    """Return a request that means the same of other things, or is typed in another way.

    Args:
        one: The request.
        random: Where chance comes from.
        names: The names that may stand in each field.
    """
    at, text = 0, ""
    before = one.before.partition(": ")[0] if random.random() < _UNTOLD else one.before
    spans: list[tuple[str, int, int]] = []
    typo = random.random() < _TYPO
    for field, first, last in sorted(one.spans, key=lambda span: span[1]):
        text += _between(random, one.text[at:first], typo)
        letters = one.text[first:last]
        other = _other(random, field, letters, names)
        if len(letters) > 2:
            before = before.replace(letters, other)
        spans.append((field, len(text), len(text) + len(other)))
        text, at = text + other, last
    text += _between(random, one.text[at:], typo)
    if random.random() < _OPEN and not (spans and spans[-1][2] == len(text)):
        text = text.rstrip("?.! ")
    for share, change in ((_LOW, str.lower), (_PLAIN, _without_accents)):
        if random.random() < share and len(changed := change(text)) == len(text):
            text = changed
    return one._replace(text=text, before=before, spans=tuple(spans))


def _other(random: Random, field: str, letters: str, names: Mapping[str, Sequence[str]]) -> str:
    if random.random() >= _OTHER:
        return letters
    if letters.isdecimal() and field in ("gpus", "count"):
        return str(random.randrange(field == "count", 9)) if len(letters) == 1 else letters
    if letters.isdecimal() and field in (*_NAMES, "pid"):
        return str(random.randrange(10 ** (len(letters) - 1), 10 ** len(letters)))
    if field in _NAMES and _NAME.fullmatch(letters):
        return random.choice(names[field])
    return letters


def _between(random: Random, text: str, typo: bool) -> str:
    """Return what stands between two spans, with the spaces at its ends."""
    if not typo or not text.strip():
        return text
    inner = text.strip()
    first = text.index(inner)
    return text[:first] + mistyped(random, inner) + text[first + len(inner) :]


def _without_accents(text: str) -> str:
    parts = unicodedata.normalize("NFD", text)
    return "".join(letter for letter in parts if not unicodedata.combining(letter))
