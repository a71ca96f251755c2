"""Read how people ask for the tools from `grammar/LANGUAGE/*.txt`, and hold some of it out.

A grammar file has sections `[role tool]` of phrasings, one a line, and lists `@name` of words. In
both, `(a|b|)` is a choice, `<name>` an entry of a list, and `%n` a value: n a number, g a GPU's,
h a count, t a time, w a word, c a command. What an entry of a list or the end of a line
(`:: place=first`) sets are arguments of the tool. Lines with `~` may follow a polite opener. Lines
of `@same` are words that may replace each other in any phrasing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple
from zlib import crc32

from assistant.intents.normalize import unaccented
from assistant.intents.table import BY_NAME

Part = Literal["learnt", "combinations", "templates", "unheard"]
"""The parts of the phrasings. "learnt" is trained on. Held out, in growing distance from it, are
combinations of a phrasing's choices, each of which is learnt in another combination; templates,
which are whole phrasings in learnt words; and "unheard", with a word that no training example
has.
"""
WHOLE: tuple[Part, ...] = ("templates", "unheard")
"""The parts of phrasings that are held out whole."""
COMBINATIONS, TEMPLATES = 8, 12
"""One in this many is held out: of the combinations of a phrasing, and of the phrasings."""
_DRAW = 2
"""The draw of what is held out whole. It changes after its errors were read, because later
phrasings may address them.
"""
_GRAMMARS = Path(__file__).parent / "grammar"
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_WORD = re.compile(r"<\w+>|%\w|[\w'-]+")
_PIECE = re.compile(r"[\w<>%'-]+|[^\w<>%'-]+")
"""A word, or what is between two words."""
_SAME = 0.2
"""The probability that a word is replaced with another."""


class Phrasing(NamedTuple):
    """Hold a phrasing, and the arguments that it sets."""

    text: str
    arguments: dict[str, str]
    polite: bool
    voice: str = ""
    """The name of its file: the kind of speaker or subject."""


class Grammar(NamedTuple):
    """Hold the lists, phrasings and replaceable words of a language."""

    lists: dict[str, list[Phrasing]]
    sections: dict[tuple[str, str], list[Phrasing]]
    same: dict[str, list[str]]
    """The replacements of a word or of several."""


@cache
def grammar(language: str) -> Grammar:
    """Read the grammar of a language."""
    found, at = Grammar({}, {}, {}), list[Phrasing]()
    files = sorted((_GRAMMARS / language).glob("*.txt"))
    for voice, raw in (
        (file.stem, line)
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
    ):
        text = raw.strip()
        if text.startswith("@"):
            at = found.lists[text[1:]] = []
        elif text.startswith("["):
            role, tool = text[1:-1].split()
            assert (role, tool) in BY_NAME, text
            at = found.sections.setdefault((role, tool), [])
        elif text.startswith("= "):
            forms = text[2:].split(" | ")
            for form in forms:
                found.same.setdefault(form, []).extend(other for other in forms if other != form)
        elif text and not text.startswith("#"):
            at += (
                _listed(text)
                if any(at is known for known in found.lists.values())
                else [_phrasing(text, voice)]
            )
    return found


def _listed(text: str) -> list[Phrasing]:
    arguments, _, forms = text.partition(":")
    return [Phrasing(form.strip(), _pairs(arguments), False) for form in forms.split(" | ")]


def _phrasing(text: str, voice: str) -> Phrasing:
    phrasing, _, arguments = text.partition("::")
    return Phrasing(
        phrasing.strip().removeprefix("~"), _pairs(arguments), phrasing.startswith("~"), voice
    )


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


@cache
def lines(language: str, part: Part) -> dict[tuple[str, str], list[Phrasing]]:
    """Return the phrasings of each tool that may have sentences of this part."""
    whole = part in WHOLE
    found = {
        name: [
            line
            for line in section
            if (crc32(f"{_DRAW} {language} {line.text}".encode()) % TEMPLATES == 0) == whole
        ]
        for name, section in grammar(language).sections.items()
    }
    return {name: some for name, some in found.items() if some}


def voices(language: str) -> list[str]:
    """Return the voices of phrasings that are held out whole."""
    return sorted(
        {line.voice for section in lines(language, "templates").values() for line in section}
    )


def chosen(random: Random, text: str) -> str:
    """Return the text with one option of each `(a|b)`."""
    while choice := _CHOICE.search(text):
        text = text[: choice.start()] + random.choice(choice[1].split("|")) + text[choice.end() :]
    return text


def part_of(language: str, sentence: str) -> Part:
    """Return the part of a sentence whose choices are made.

    What is held out of one line is learnt from no other, nor is anything that reads like it.
    """
    if unaccented(sentence) in _withheld(language):
        return "templates" if set(_WORD.findall(sentence)) <= learnt_words(language) else "unheard"
    return "combinations" if unaccented(sentence) in _combinations(language) else "learnt"


def varied(random: Random, language: str, sentence: str) -> str:
    """Return a learnt sentence, sometimes with other words, that never becomes a held-out one."""
    same, pieces = grammar(language).same, _PIECE.findall(sentence)
    said: list[str] = []
    at = 0
    while at < len(pieces):
        lengths = range(min(_longest(language), len(pieces) - at), 0, -1)
        length = next((n for n in lengths if "".join(pieces[at : at + n]) in same), 0)
        form = "".join(pieces[at : at + (length or 1)])
        said.append(random.choice(same[form]) if length and random.random() < _SAME else form)
        at += length or 1
    other = "".join(said)
    return other if part_of(language, other) == "learnt" else sentence


def _plain(sentence: str) -> str:
    return " ".join(sentence.split())


def _choices(text: str) -> list[list[str]]:
    """Return a line as a sequence of texts, each with its options."""
    return [part.split("|") if i % 2 else [part] for i, part in enumerate(_CHOICE.split(text))]


def sentences(text: str) -> Iterator[str]:
    """Return all sentences of a line."""
    return (_plain("".join(some)) for some in product(*_choices(text)))


def combinations(text: str) -> set[str]:
    """Return the held-out sentences of a line: with two choices, each learnt in another
    sentence.
    """
    parts = _choices(text)
    if len(parts) < 5:
        return set()
    said = {_plain("".join(some)): some for some in product(*parts)}
    learnt = [
        set(choices)
        for choices in zip(
            *(some for plain, some in said.items() if not _drawn(plain)), strict=True
        )
    ]
    drawn = ((plain, some) for plain, some in said.items() if _drawn(plain))
    return {
        plain
        for plain, some in drawn
        if learnt and all(choice in seen for choice, seen in zip(some, learnt, strict=True))
    }


@cache
def _combinations(language: str) -> frozenset[str]:
    """Return everything that is held out of learnt lines."""
    learnt = (line for section in lines(language, "learnt").values() for line in section)
    return frozenset(unaccented(said) for line in learnt for said in combinations(line.text))


def _drawn(plain: str) -> bool:
    return crc32(plain.encode()) % COMBINATIONS == 0


@cache
def _withheld(language: str) -> frozenset[str]:
    """Return everything that the held-out lines contain."""
    withheld = (line for section in lines(language, "templates").values() for line in section)
    return frozenset(unaccented(sentence) for line in withheld for sentence in sentences(line.text))


@cache
def learnt_words(language: str) -> frozenset[str]:
    """Return the words of what is learnt."""
    learnt = [line.text for section in lines(language, "learnt").values() for line in section]
    return frozenset(
        word for text in (*learnt, *grammar(language).same) for word in _WORD.findall(text)
    )


@cache
def _longest(language: str) -> int:
    """Return the most pieces of a replaceable expression."""
    return max((len(_PIECE.findall(form)) for form in grammar(language).same), default=0)
