"""Requests and the routes they need, from the phrasings in `grammar/*.txt`: values drawn at random and masked by the assistant's own masks.

A grammar file has sections `[role tool]` of phrasings, one a line, and lists `@name` of words. In both `(a|b|)` is a choice, `<name>`
an entry of a list, and `%n` a value: n a number, g a GPU's, h how many, t a time, w a word, c a command. What an entry of a list or
the end of a line (`:: place=first`) sets are arguments of the tool. Lines with `~` may follow a polite opener. Every sixth phrasing of
a section is held out: no training example has it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from assistant.masks import NUMBER_WORDS, masked
from assistant.routes import BY_NAME, SYSTEM, TOOLS, Route
from assistant.training.noise import noised
from assistant.training.values import VALUES

__all__ = ["LANGUAGES", "SYSTEM", "TOOLS", "Example", "example", "lines"]

LANGUAGES = {"en": 0.7, "de": 0.1, "fr": 0.1, "es": 0.1}
"""Share of the examples in each."""
HELD_OUT = 6
_GRAMMARS = Path(__file__).parent / "grammar"
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_PART = re.compile(r"<(\w+)>|%([nghtwc])")
_QUESTION = re.compile(r"(?:wh|how|is |are |did |w[aio]|quel|que|qu|cu|co|est|où|dónde|ist )")
_MARK = re.compile(r"\x01(\d+)\x02")


class Line(NamedTuple):
    """A phrasing, and the arguments it sets."""

    text: str
    arguments: dict[str, str]
    polite: bool


class Grammar(NamedTuple):
    lists: dict[str, list[Line]]
    sections: dict[tuple[str, str], list[Line]]


class Example(NamedTuple):
    """A masked request, and the line that says what it needs."""

    request: str
    route: str


def example(random: Random, held_out: bool, language: str = "") -> Example:
    """A request by a phrasing of training, or by one that is held out; in any language, or in one."""
    while True:
        chosen = language or random.choices(*zip(*LANGUAGES.items(), strict=True))[0]
        sections = lines(chosen, held_out)
        names = sorted(sections)
        role, tool = random.choices(names, [len(sections[name]) ** 0.5 for name in names])[0]
        if found := told(random, chosen, role, tool, random.choice(sections[role, tool])):
            return found


def told(random: Random, language: str, role: str, tool: str, line: Line) -> Example | None:
    """A request by one phrasing. None where the masks take its values for something else, as `seven` alone or a number twice."""
    return _Telling(random, _grammar(language)).told(role, tool, line)


@cache
def lines(language: str, held_out: bool) -> dict[tuple[str, str], list[Line]]:
    """The phrasings of every tool that are held out, or those that are not."""
    found = {
        name: [line for i, line in enumerate(phrasings) if (i % HELD_OUT == HELD_OUT - 1) == held_out]
        for name, phrasings in _grammar(language).sections.items()
    }
    return {name: some for name, some in found.items() if some}


@cache
def _grammar(language: str) -> Grammar:
    grammar, at = Grammar({}, {}), list[Line]()
    for raw in (_GRAMMARS / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        text = raw.strip()
        if text.startswith("@"):
            at = grammar.lists[text[1:]] = []
        elif text.startswith("["):
            role, tool = text[1:-1].split()
            assert (role, tool) in BY_NAME, text
            at = grammar.sections[role, tool] = []
        elif text and not text.startswith("#"):
            at += _read(text, at in grammar.lists.values())
    return grammar


def _read(text: str, listed: bool) -> list[Line]:
    if listed:
        arguments, _, forms = text.partition(":")
        return [Line(form.strip(), _pairs(arguments), False) for form in forms.split(" | ")]
    phrasing, _, arguments = text.partition("::")
    return [Line(phrasing.strip().removeprefix("~"), _pairs(arguments), phrasing.startswith("~"))]


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split())


def choose(random: Random, text: str) -> str:
    """Of every `(a|b)` one."""
    while choice := _CHOICE.search(text):
        text = text[: choice.start()] + random.choice(choice[1].split("|")) + text[choice.end() :]
    return text


class _Telling:
    """One request as it is put together: text with marks for values, which are drawn at once and written in last."""

    def __init__(self, random: Random, grammar: Grammar) -> None:
        self.random, self.lists = random, grammar.lists
        self.written: list[str] = []
        """Values as a person types them, by the numbers of their marks."""
        self.arguments: dict[str, str] = {}
        """Of the route: words, or marks."""

    def told(self, role: str, tool: str, line: Line) -> Example | None:
        """See `told`."""
        text = self._expanded(self._turned(line))
        text = noised(self.random, self._politely(text, line.polite))
        request, values = masked(_MARK.sub(lambda mark: self.written[int(mark[1])], text))
        known = [argument.name for argument in BY_NAME[role, tool].arguments]
        assert set(self.arguments) <= set(known), f"{role} {tool} takes no {sorted(self.arguments)}: {line.text}"
        slots = {name: self._slot(self.arguments[name], values) for name in known if name in self.arguments}
        if any(slot is None for slot in slots.values()) or len(set(values.values())) < len(values) or "\n" in request:
            return None
        return Example(request, Route(role, tool, {name: slot for name, slot in slots.items() if slot}).line())

    def _turned(self, line: Line) -> Line:
        """Now and then the time comes first."""
        if line.text.endswith(" <when>") and self.random.random() < 0.1:
            return line._replace(text=f"<when>, {line.text.removesuffix(' <when>')}")
        return line

    def _expanded(self, line: Line) -> str:
        text = choose(self.random, line.text)
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
            inner.append(self._expanded(self._entry(piece[1:-1])) if piece.startswith("<") else piece)
        return " ".join("".join(inner).split())

    def _entry(self, name: str) -> Line:
        """Of a list of several values the value first, so that each is as likely as the others."""
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
        """The slot of a value; a word as it is. None where the masks did not find the value."""
        if not (mark := _MARK.fullmatch(value)):
            return value
        wanted = _meant(self.written[int(mark[1])])
        return next((f"{{{slot}}}" for slot, meaning in values.items() if meaning == wanted), None)


def _meant(written: str) -> str:
    """What a value stands for once it is masked."""
    return NUMBER_WORDS.get(written) or next(iter(masked(written)[1].values()), written)
