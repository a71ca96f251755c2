"""Counts invented numbers: random machines, briefs and answers by whoever writes, judged by a checker of its own.

The checker shares nothing with `assistant.verify`: it collects every number with its unit from the facts as they are told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import msgspec

from assistant import phrases
from assistant.facts import Fact
from assistant.training import decks
from assistant.writer import write

Facts = tuple[Fact, ...]
Author = Any
"""An `assistant.author.Author`."""

_UNIT = r"%|°C|TFLOP/s|GFLOP/s|[KMGT]?i?B/s|[KMGT]?i?B|MHz|GHz|kW|mW|W|ms|µs|us|ns|min|h|d|s|J|k?Wh"
_NUMBER = re.compile(rf"(\d[\d.,:e+-]*\d|\d)(?:\s?({_UNIT})(?![\w/]))?")
_QUESTIONS = (
    "how hot is it?", "what is the power of GPU 0?", "memory?", "which jobs failed?", "how is job 7?", "what is waiting?", "is it idle?",
    "tflops of gpu 1", "what runs?", "which gpu is it", "which jobs are done", "were any jobs cancelled?", "hello there", "",
)  # fmt: skip
_NOTE = "\n\nWritten from the template: "
"""What follows says what was refused, in quotes: no claim."""


def numbers(text: str) -> set[tuple[str, str]]:
    return {(number, unit or "") for number, unit in _NUMBER.findall(text)}


def invented(text: str, facts: Facts, question: str) -> set[tuple[str, str]]:
    """Numbers in `text` that no fact and not the question has, or that have another unit there."""
    told = "\n".join(f"{fact.text}\n{fact.said}\n{fact.source}\n{fact.subject.removeprefix('job')}" for fact in facts)
    return numbers(text.split(_NOTE, maxsplit=1)[0]) - numbers(told) - numbers(question) - set().union(*(_moment(fact) for fact in facts))


def _moment(fact: Fact) -> set[tuple[str, str]]:
    """A source is told with the time of its reading."""
    return numbers(phrases.clock(fact.time)) | numbers(phrases.moment(fact.time, fact.time))


def world(random: Random) -> tuple[Facts, str]:
    """The facts of a random machine, and what is the matter with them: `none`, some `missing`, some `contradicted` by another source."""
    facts, kinds = list(decks.deck(random)), []
    if random.random() < 0.05:
        return (), "none"
    if random.random() < 0.3:
        facts = [fact for fact in facts if random.random() < 0.8]
        kinds.append("missing")
    if facts and random.random() < 0.3:
        other = random.choice(facts)
        facts.append(msgspec.structs.replace(other, said="12345 %", value=12345, text=f"{other.name}: 12345 %", source="another sensor"))
        kinds.append("contradicted")
    return tuple(facts), " and ".join(kinds) or "whole"


class Text(NamedTuple):
    """One that was shown."""

    facts: str
    """What was the matter with them, see `world`."""
    question: str | None
    text: str
    writer: str
    invented: set[tuple[str, str]]


def texts(count: int, seed: int | str, author: Callable[[Random, Facts], Author | None]) -> Iterator[Text]:
    """What is shown of `count` random machines, in briefs and answers, by who writes of each."""
    random = Random(seed)
    for _ in range(count):
        facts, kind = world(random)
        question = random.choice((None, *_QUESTIONS))
        told = write(facts, question, author(random, facts))
        assert told.text.strip(), "where there are no facts, that is said"
        yield Text(kind, question, told.text, told.writer, invented(told.text, facts, question or ""))


class Count:
    """Of the texts that were shown."""

    def __init__(self, shown: Iterator[Text]) -> None:
        self.facts: Counter[str] = Counter()
        self.by_model = 0
        self.found: list[str] = []
        """Texts with an invented number, and which."""
        for text in shown:
            self.facts[text.facts] += 1
            self.by_model += text.writer != "template"
            if text.invented:
                self.found.append(f"{sorted(text.invented)} by {text.writer} to {text.question!r} in: {text.text}")

    @property
    def shown(self) -> int:
        return self.facts.total()
