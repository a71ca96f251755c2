"""Read the phrases of four languages, which requests and what they mean are composed from.

A file of `phrases/` has three kinds of lines. `@name = a | b` names phrases that stand for each
other; `@name += c` adds to them. `> MEANING :: P=a,b` begins the requests that have this meaning
(`gpudeck.assistant.training.symbols`), one for each value of the parameters, which stand in braces.
All other lines are requests; `5 * TEXT` is one that comes five times as often. In a request,
`@name` is one of the named phrases, `@name/other` is one with the other in the place of `$`,
`[a|b|]` is one of these words or none, and `<n:D>` is a slot, here a number called D. A digit
behind a name distinguishes slots: `@gpu2` has `<n:D2>`; without it, it is `<n:D1>`. In a meaning,
`@D1` is that slot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import accumulate, product
from math import prod
from pathlib import Path
from random import Random
from typing import NamedTuple

FOLDER = Path(__file__).with_name("phrases")
LANGUAGES = ("en", "de", "fr", "es")
NUMBERED = "1234"
"""The numbers of slots of a kind, of which a request has at most so many."""
NAME = re.compile(r"@([\w°-]+)(?:/([\w-]+))?")
SLOT = re.compile(r"<(\w):(\w+?)>")
POINTER = re.compile(r"@(\w+)")
CHOICE = re.compile(r"\[([^\[\]]*)\]")
_DEFINITION = re.compile(r"@([\w°{}-]+) (\+?)= (.*)")
_BETWEEN = re.compile(r"\|(?![^\[]*\])")
"""A bar outside of brackets, which are not nested in definitions."""
_MOST_WAYS = 40
_OFTEN = re.compile(r"(\d+) \* (.*)")


class Rule(NamedTuple):
    """Hold the requests of one meaning."""

    meaning: str
    requests: tuple[str, ...]
    ends: tuple[float, ...]
    """Cumulative weights of the requests: one with many choices comes more often."""


class Phrases:
    """Hold the phrases of one language."""

    def __init__(self, text: str) -> None:
        self.names: dict[str, tuple[str, ...]] = {}
        self.rules: list[Rule] = []
        heads: list[tuple[str, list[str]]] = []
        for line in map(str.strip, text.splitlines()):
            if not line or line.startswith("#"):
                continue
            if definition := _DEFINITION.fullmatch(line):
                name, more = definition[1], tuple(map(str.strip, _BETWEEN.split(definition[3])))
                self.names[name] = (*self.names.get(name, ()), *more) if definition[2] else more
            elif line.startswith(">"):
                heads.append((line[1:].strip(), []))
            else:
                often = _OFTEN.fullmatch(line)
                heads[-1][1].extend([often[2]] * int(often[1]) if often else [line])
        for head, requests in heads:
            meaning, _, parameters = head.partition("::")
            for chosen in _choices(parameters):
                said = tuple(filled(request, chosen) for request in requests)
                ends = tuple(accumulate(min(_ways(text), _MOST_WAYS) ** 0.5 for text in said))
                self.rules.append(Rule(filled(meaning.strip(), chosen), said, ends))

    def expand(self, random: Random, text: str, number: str = NUMBERED[0]) -> str:
        """Return a text with each name replaced by one of its phrases, and its slots numbered."""

        def phrase(found: re.Match[str]) -> str:
            name, other, suffix = found[1], found[2], number
            if name not in self.names:
                name, suffix = name[:-1], name[-1]
            chosen = random.choice(self.names[name])
            if other:
                chosen = chosen.replace("$", f"@{other}")
            return self.expand(random, chosen, suffix)

        def slot(found: re.Match[str]) -> str:
            if found[2][-1] in NUMBERED:
                return found[0]
            return f"<{found[1]}:{found[2]}{number}>"

        while CHOICE.search(text):
            text = CHOICE.sub(lambda found: random.choice(found[1].split("|")), text)
        return SLOT.sub(slot, NAME.sub(phrase, text))

    def one(self, random: Random, name: str, **chosen: str) -> str:
        """Return one of the phrases of a name, with its parameters filled in."""
        return self.expand(random, filled(random.choice(self.names[name]), chosen))

    def say(self, random: Random, rule: Rule) -> str:
        """Return one of the requests of a meaning."""
        return self.expand(random, random.choices(rule.requests, cum_weights=rule.ends)[0])


@cache
def phrases(language: str) -> Phrases:
    """Return the phrases of a language."""
    return Phrases((FOLDER / f"{language}.txt").read_text(encoding="utf-8"))


def _ways(text: str) -> int:
    """Return in how many ways the choices of a text can be made."""
    return prod(found[1].count("|") + 1 for found in CHOICE.finditer(text))


def _choices(parameters: str) -> Iterator[dict[str, str]]:
    """Yield the values of parameters such as `M=temp,power; A=max,min`, no two the same."""
    named = [part.strip().partition("=") for part in parameters.split(";") if part.strip()]
    for values in product(*(each.split(",") for _, _, each in named)):
        if len(set(values)) == len(values):
            yield {name: value for (name, _, _), value in zip(named, values, strict=True)}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the parameters in braces replaced."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def numbered(text: str, meaning: str) -> tuple[str, str] | None:
    """Return a request and its meaning with the slots numbered in their order.

    None means that the meaning has a slot that the request lacks, or the request has too many.
    """
    names: dict[str, str] = {}

    def slot(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        count = 1 + sum(other[0] == kind for other in names.values())
        return f"<{names.setdefault(name, f'{kind}{count}')}>"

    text = SLOT.sub(slot, text)
    if any(name not in names for name in POINTER.findall(meaning)):
        return None
    if any(name[1:] not in NUMBERED for name in names.values()):
        return None
    return text, POINTER.sub(lambda found: names[found[1]], meaning)
