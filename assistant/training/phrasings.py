"""How people ask for the tools, read from `grammar/*.txt`, and what of it no training example has.

A grammar file has sections `[role tool]` of phrasings, one a line, and lists `@name` of words. In both `(a|b|)` is a choice, `<name>`
an entry of a list, and `%n` a value: n a number, g a GPU's, h how many, t a time, w a word, c a command. What an entry of a list or
the end of a line (`:: place=first`) sets are arguments of the tool. Lines with `~` may follow a polite opener.
"""

from __future__ import annotations

import math
import re
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple
from zlib import crc32

from assistant.routes import BY_NAME

Part = Literal["learnt", "sentences", "wordings"]
"""Held out are sentences, which say in known words what no training example says just so, and wordings: lines, with all they can say."""
SENTENCES, WORDINGS = 8, 12
"""One in so many is held out."""
_GRAMMARS = Path(__file__).parent / "grammar"
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_WORD = re.compile(r"<\w+>|%\w|[\w'-]+")
_FEW = 64
"""Sentences of a line that are looked through one by one; of one with more each word is in some that is learnt."""


class Line(NamedTuple):
    """A phrasing, and the arguments it sets."""

    text: str
    arguments: dict[str, str]
    polite: bool


class Grammar(NamedTuple):
    lists: dict[str, list[Line]]
    sections: dict[tuple[str, str], list[Line]]


@cache
def grammar(language: str) -> Grammar:
    found, at = Grammar({}, {}), list[Line]()
    for raw in (_GRAMMARS / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        text = raw.strip()
        if text.startswith("@"):
            at = found.lists[text[1:]] = []
        elif text.startswith("["):
            role, tool = text[1:-1].split()
            assert (role, tool) in BY_NAME, text
            at = found.sections.setdefault((role, tool), [])
        elif text and not text.startswith("#"):
            at += _read(text, any(at is known for known in found.lists.values()))
    return found


def _read(text: str, listed: bool) -> list[Line]:
    if listed:
        arguments, _, forms = text.partition(":")
        return [Line(form.strip(), _pairs(arguments), False) for form in forms.split(" | ")]
    phrasing, _, arguments = text.partition("::")
    return [Line(phrasing.strip().removeprefix("~"), _pairs(arguments), phrasing.startswith("~"))]


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


@cache
def lines(language: str, part: Part) -> dict[tuple[str, str], list[Line]]:
    """The phrasings of every tool that have sentences of this part."""
    wordings = part == "wordings"
    found = {
        name: [line for i, line in enumerate(section) if (i % WORDINGS == WORDINGS - 1) == wordings]
        for name, section in grammar(language).sections.items()
    }
    return {name: some for name, some in found.items() if some}


def chosen(random: Random, text: str) -> str:
    """Of every `(a|b)` one."""
    while choice := _CHOICE.search(text):
        text = text[: choice.start()] + random.choice(choice[1].split("|")) + text[choice.end() :]
    return text


def held_out(language: str, line: Line, sentence: str) -> bool:
    """Whether a sentence that a line says, its choices made, is held out. One that is all that its line says is learnt."""
    return "|" in line.text and _drawn(sentence) and set(_WORD.findall(sentence)) <= _learnt(language)


def _drawn(sentence: str) -> bool:
    return crc32(" ".join(sentence.split()).encode()) % SENTENCES == 0


@cache
def _learnt(language: str) -> frozenset[str]:
    """Words of sentences that are surely learnt, whatever is held out of the others."""
    words: set[str] = set()
    for line in (line for section in lines(language, "learnt").values() for line in section):
        parts = [part.split("|") if i % 2 else [part] for i, part in enumerate(_CHOICE.split(line.text))]
        if len(parts) > 1 and math.prod(map(len, parts)) <= _FEW:
            said = [sentence for some in product(*parts) if not _drawn(sentence := "".join(some))]
        else:
            said = [" ".join(word for part in parts for word in part)]
        words.update(word for sentence in said for word in _WORD.findall(sentence))
    return frozenset(words)
