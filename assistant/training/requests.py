"""Make requests with the routes they need.

Phrasings get random values, are distorted as if typed in a hurry, and are masked by the assistant's
own masks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import NamedTuple

from assistant.intents.masks import NUMBER_WORDS, masked
from assistant.intents.normalize import bare, plain
from assistant.intents.table import BY_NAME, Route
from assistant.training.handwritten import is_handwritten
from assistant.training.noise import noised
from assistant.training.phrasings import (
    WHOLE,
    Grammar,
    Part,
    Phrasing,
    chosen,
    grammar,
    learnt_words,
    lines,
    part_of,
    varied,
)
from assistant.training.values import VALUES

LANGUAGES = {"en": 0.7, "de": 0.1, "fr": 0.1, "es": 0.1}
"""The share of examples in each language."""
PUZZLED = 0.2
"""The probability that a word of a longer sentence is replaced with a meaningless one."""
_PART = re.compile(r"<(\w+)>|%([nghtwc])")
_QUESTION = re.compile(r"(?:wh|how|is |are |did |w[aio]|quel|que|qu|cu|co|est|où|dónde|ist )")
_MARK = re.compile(r"\x01(\d+)\x02")


class Example(NamedTuple):
    """Hold a masked request, and the line with the route it needs."""

    request: str
    route: str


def example(random: Random, part: Part, language: str = "") -> Example:
    """Return a request of one part, in any language or in one.

    It is never a hand-written one, not even in disguise.
    """
    while True:
        spoken = language or random.choices(*zip(*LANGUAGES.items(), strict=True))[0]
        if (found := _of(random, spoken, part, lines(spoken, part))) is not None:
            return found


def held_out(random: Random, voice: str, language: str) -> Example:
    """Return a request by a phrasing of one voice that is held out whole."""
    whole = lines(language, "templates").items()
    sections = {
        name: mine
        for name, section in whole
        if (mine := [line for line in section if line.voice == voice])
    }
    while True:
        if (found := _of(random, language, random.choice(WHOLE), sections)) is not None:
            return found


def _of(
    random: Random, language: str, part: Part, sections: Mapping[tuple[str, str], list[Phrasing]]
) -> Example | None:
    names = sorted(sections)
    role, tool = random.choices(names, [len(sections[name]) ** 0.5 for name in names])[0]
    found = example_of(random, language, role, tool, random.choice(sections[role, tool]), part)
    return found if found is not None and not is_handwritten(found.request) else None


def example_of(
    random: Random, language: str, role: str, tool: str, line: Phrasing, part: Part
) -> Example | None:
    """Return a request by one phrasing.

    It is None if the choices made a sentence of another part, or if the masks misread a value, such
    as `seven` alone or a number twice.
    """
    sentence = chosen(random, line.text)
    if part_of(language, sentence) != part:
        return None
    if part == "learnt":
        sentence = _puzzled(random, language, varied(random, language, sentence))
    return _RequestBuilder(random, grammar(language)).build(
        role, tool, line._replace(text=sentence)
    )


def _puzzled(random: Random, language: str, sentence: str) -> str:
    """Sometimes replace a word with a meaningless one, so that a model learns to use the others."""
    parts = sentence.split(" ")
    places = [i for i, part in enumerate(parts) if part.isalpha() and len(part) > 3]
    if len(parts) < 4 or not places or random.random() > PUZZLED:
        return sentence
    parts[random.choice(places)] = next(
        word
        for word in _puzzles(random, language)
        if plain(word) == word and word not in learnt_words(language)
    )
    return " ".join(parts)


def _puzzles(random: Random, language: str) -> Iterator[str]:
    """Yield meaningless words: beginnings of words with the ends of others."""
    while True:
        first, last = random.choices(_lettered(language), k=2)
        yield bare(first[: -(-len(first) // 2)] + last[len(last) // 2 :])


@cache
def _lettered(language: str) -> list[str]:
    return sorted(word for word in learnt_words(language) if word.isalpha() and len(word) > 3)


class _RequestBuilder:
    """Build one request: text with marks for values, which are drawn at once and inserted last."""

    def __init__(self, random: Random, grammar: Grammar) -> None:
        self.random, self.lists = random, grammar.lists
        self.written: list[str] = []
        """The values as a person types them, by the numbers of their marks."""
        self.arguments: dict[str, str] = {}
        """The arguments of the route: words, or marks."""

    def build(self, role: str, tool: str, line: Phrasing) -> Example | None:
        """Return the example of one phrasing, or None; see `example_of`."""
        text = self._expanded(self._turned(line))
        if is_handwritten(self._masked(text)[0]):
            return None
        text = noised(self.random, self._politely(text, line.polite))
        request, values = self._masked(text)
        known = [argument.name for argument in BY_NAME[role, tool].arguments]
        assert set(self.arguments) <= set(known), (
            f"{role} {tool} takes no {sorted(self.arguments)}: {line.text}"
        )
        slots = {
            name: self._slot(self.arguments[name], values)
            for name in known
            if name in self.arguments
        }
        if (
            any(slot is None for slot in slots.values())
            or len(set(values.values())) < len(values)
            or "\n" in request
        ):
            return None
        return Example(
            request, Route(role, tool, {name: slot for name, slot in slots.items() if slot}).line()
        )

    def _masked(self, text: str) -> tuple[str, dict[str, str]]:
        """Return the text with its values, masked."""
        return masked(_MARK.sub(lambda mark: self.written[int(mark[1])], text))

    def _turned(self, line: Phrasing) -> Phrasing:
        """Sometimes put the time first."""
        if line.text.endswith(" <when>") and self.random.random() < 0.1:
            return line._replace(text=f"<when>, {line.text.removesuffix(' <when>')}")
        return line

    def _expanded(self, line: Phrasing) -> str:
        text = chosen(self.random, line.text)
        marks: dict[str, str] = {}
        inner: list[str] = []

        def part(found: re.Match[str]) -> str:
            if found[1]:
                return f"<{found[1]}>"
            self.written.append(VALUES[found[2]](self.random))
            marks[f"%{found[2]}"] = f"\x01{len(self.written) - 1}\x02"
            return marks[f"%{found[2]}"]

        text = _PART.sub(part, text)
        self.arguments |= {name: marks.get(value, value) for name, value in line.arguments.items()}
        for piece in re.split(r"(<\w+>)", text):
            inner.append(
                self._expanded(self._entry(piece[1:-1])) if piece.startswith("<") else piece
            )
        return " ".join("".join(inner).split())

    def _entry(self, name: str) -> Phrasing:
        """Return an entry of a list; first its value is drawn, so that all values are equally
        likely.
        """
        entries = self.lists[name]
        value = self.random.choice(sorted({str(entry.arguments) for entry in entries}))
        return self.random.choice([entry for entry in entries if str(entry.arguments) == value])

    def _politely(self, text: str, polite: bool) -> str:
        random = self.random
        if polite and random.random() < 0.35:
            text = f"{self._entry('asks').text} {text}"
        if _QUESTION.match(text) and random.random() < 0.12:
            text = f"{self._entry('tells').text} {text}"
        if random.random() < 0.12:
            text = f"{self._entry('openers').text} {text}"
        if random.random() < 0.12:
            text = f"{text}{random.choice((' ', ', '))}{self._entry('closers').text}"
        return text

    def _slot(self, value: str, values: dict[str, str]) -> str | None:
        """Return the slot of a value, or a word as it is; None if the masks did not
        find the value.
        """
        if not (mark := _MARK.fullmatch(value)):
            return value
        wanted = _meant(self.written[int(mark[1])])
        return next((f"{{{slot}}}" for slot, meaning in values.items() if meaning == wanted), None)


def _meant(written: str) -> str:
    """Return what a value stands for once it is masked."""
    return NUMBER_WORDS.get(written) or next(iter(masked(written)[1].values()), written)
