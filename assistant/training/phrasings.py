"""How people ask for the tools, read from `grammar/LANGUAGE/*.txt`, and what of it no training example has.

A grammar file has sections `[role tool]` of phrasings, one a line, and lists `@name` of words. In both `(a|b|)` is a choice, `<name>`
an entry of a list, and `%n` a value: n a number, g a GPU's, h how many, t a time, w a word, c a command. What an entry of a list or
the end of a line (`:: place=first`) sets are arguments of the tool. Lines with `~` may follow a polite opener. Lines of `@same` are
words that stand for each other in any phrasing.
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
"""What is learnt, and what is held out, farther and farther from it: combinations of the words of a phrasing, each of which is learnt in
another combination; templates, which are whole phrasings, in words that others teach; and what has a word that no training example has."""
WHOLE: tuple[Part, ...] = ("templates", "unheard")
"""Of phrasings that are held out whole."""
COMBINATIONS, TEMPLATES = 8, 12
"""One in so many is held out: of the combinations that a phrasing has, and of the phrasings."""
_DRAW = 2
"""What is held out whole is drawn anew once the errors on it have been looked at: what was written since may be against them."""
_GRAMMARS = Path(__file__).parent / "grammar"
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_WORD = re.compile(r"<\w+>|%\w|[\w'-]+")
_PIECE = re.compile(r"[\w<>%'-]+|[^\w<>%'-]+")
"""A word, or what is between two."""
_SAME = 0.2
"""How often a word stands for another."""


class Line(NamedTuple):
    """A phrasing, and the arguments it sets."""

    text: str
    arguments: dict[str, str]
    polite: bool
    voice: str = ""
    """The file it is in: who speaks so, or of what."""


class Grammar(NamedTuple):
    lists: dict[str, list[Line]]
    sections: dict[tuple[str, str], list[Line]]
    same: dict[str, list[str]]
    """A word or several: what stands for it as well."""


@cache
def grammar(language: str) -> Grammar:
    found, at = Grammar({}, {}, {}), list[Line]()
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


def _listed(text: str) -> list[Line]:
    arguments, _, forms = text.partition(":")
    return [Line(form.strip(), _pairs(arguments), False) for form in forms.split(" | ")]


def _phrasing(text: str, voice: str) -> Line:
    phrasing, _, arguments = text.partition("::")
    return Line(
        phrasing.strip().removeprefix("~"), _pairs(arguments), phrasing.startswith("~"), voice
    )


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


@cache
def lines(language: str, part: Part) -> dict[tuple[str, str], list[Line]]:
    """The phrasings of every tool that may have sentences of this part."""
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
    """Those that have phrasings which are held out whole."""
    return sorted(
        {line.voice for section in lines(language, "templates").values() for line in section}
    )


def chosen(random: Random, text: str) -> str:
    """Of every `(a|b)` one."""
    while choice := _CHOICE.search(text):
        text = text[: choice.start()] + random.choice(choice[1].split("|")) + text[choice.end() :]
    return text


def part_of(language: str, sentence: str) -> Part:
    """Where a sentence belongs, its choices made. What is held out of one line is learnt from no other, nor what reads like it."""
    if unaccented(sentence) in _withheld(language):
        return "templates" if set(_WORD.findall(sentence)) <= heard(language) else "unheard"
    return "combinations" if unaccented(sentence) in _combinations(language) else "learnt"


def varied(random: Random, language: str, sentence: str) -> str:
    """A sentence that is learnt, now and then with other words for the same; it never becomes one that is held out."""
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
    """A line as what follows each other: one text, or several to choose from."""
    return [part.split("|") if i % 2 else [part] for i, part in enumerate(_CHOICE.split(text))]


def sentences(text: str) -> Iterator[str]:
    """All that a line says."""
    return (_plain("".join(some)) for some in product(*_choices(text)))


def combinations(text: str) -> set[str]:
    """The sentences of a line that are held out: of two choices at least, each of which is learnt in another of its sentences."""
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
    """All that is held out of lines that are learnt."""
    learnt = (line for section in lines(language, "learnt").values() for line in section)
    return frozenset(unaccented(said) for line in learnt for said in combinations(line.text))


def _drawn(plain: str) -> bool:
    return crc32(plain.encode()) % COMBINATIONS == 0


@cache
def _withheld(language: str) -> frozenset[str]:
    """All that the held-out lines say."""
    withheld = (line for section in lines(language, "templates").values() for line in section)
    return frozenset(unaccented(sentence) for line in withheld for sentence in sentences(line.text))


@cache
def heard(language: str) -> frozenset[str]:
    """The words of what is learnt."""
    learnt = [line.text for section in lines(language, "learnt").values() for line in section]
    return frozenset(
        word for text in (*learnt, *grammar(language).same) for word in _WORD.findall(text)
    )


@cache
def _longest(language: str) -> int:
    """Pieces of what stands for something else."""
    return max((len(_PIECE.findall(form)) for form in grammar(language).same), default=0)
