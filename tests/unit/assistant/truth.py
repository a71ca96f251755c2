"""Count invented numbers in texts about random machines, judged by a checker of its own.

The checker shares nothing with `assistant.writing.verify`. Sentence by sentence, every number with
its sign and unit must be in a fact about the sentence's device or job, or about none, and a count
(`3 jobs failed`, `7 times`) in a fact that counts just that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

import msgspec

from assistant.facts import Fact, phrases
from assistant.workloads import random_machines
from assistant.writing.writer import write

Facts = tuple[Fact, ...]
Author = Any
"""An `assistant.writing.author.Author`."""

_UNIT = (
    r"%|°C|TFLOP/s|GFLOP/s|[KMGT]?i?B/s|[KMGT]?i?B|MHz|GHz|kW|mW|W"
    r"|ms|µs|us|ns|min|h|d|s|J|k?Wh"
)
_NUMBER = re.compile(rf"((?<![\w)%])[-−–])?(\d[\d.,:e+-]*\d|\d)(?:\s?({_UNIT})(?![\w/]))?")
_OWNER = re.compile(
    r"\b(?:(cpu|(?:replay )?gpu ?\d+|replay\d+)|job[ #]*\d+|jobs \d+(?:(?:, | and | to )\d+)*)\b",
    re.IGNORECASE,
)
"""The owners of numbers: a device or job by its name in texts or in facts."""
_COUNT = re.compile(
    r"(?<![\w.,:-])(\d+) (?:more |other |further "
    r")?(?:(jobs?|times|calls?|runs?|attempts?|errors?|alerts?|GPUs|devices)\b ?)?"
    r"(?:(?:that|have|has|are|is|were|was|got|been|still) "
    r")*(?:(ran|running|starting|queued|done|failed|cancelled|lost)\b)?"
)
_QUESTIONS = (
    "how hot is it?", "what is the power of GPU 0?", "memory?", "which jobs failed?",
    "how is job 7?", "what is waiting?", "is it idle?",
    "tflops of gpu 1", "what runs?", "which gpu is it", "which jobs are done",
    "were any jobs cancelled?", "hello there", "",
)  # fmt: skip
_NOTE = "\n\nWritten from the template: "
"""The note that quotes a refused text, which makes no claim."""


@lru_cache(100_000)
def numbers(text: str) -> frozenset[tuple[str, str]]:
    """Return numbers with sign and unit, except those that are part of a name."""
    return frozenset(
        ("-" * bool(sign) + number, unit)
        for sign, number, unit in _NUMBER.findall(_OWNER.sub("…", text))
    )


def invented(text: str, facts: Facts, question: str) -> set[tuple[str, str]]:
    """Return the numbers in `text` that no fact about the same subject has with that
    unit and noun.
    """
    known = _owners("\n".join((question, *(f"{fact.subject}\n{_told(fact)}" for fact in facts))))
    found = set()
    for sentence, owners in _sentences(text.split(_NOTE, maxsplit=1)[0]):
        about = [
            fact
            for fact in facts
            if not owners or fact.subject in owners or not _OWNER.fullmatch(fact.subject)
        ]
        told = numbers(question).union(*(numbers(_told(fact)) | _moment(fact) for fact in about))
        found |= {(owner, "") for owner in _owners(sentence) - known - {"cpu"}} | (
            numbers(sentence) - told
        )
        found |= {
            (number, what)
            for number, what in _counts(sentence)
            if not any(_counted(number, what, fact.text) for fact in about)
        }
    return found


def _told(fact: Fact) -> str:
    return f"{fact.text}\n{fact.said}\n{fact.source}"


@lru_cache(100_000)
def _owners(text: str) -> frozenset[str]:
    """Return the devices and jobs that `text` names."""
    found = set[str]()
    for named in _OWNER.finditer(text.lower()):
        if device := named[1]:
            found.add(device.replace("replay gpu", "replay").replace(" ", ""))
        else:
            found |= {f"job{number}" for number in re.findall(r"\d+", named[0])}
    return frozenset(found)


def _sentences(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each sentence with the devices and jobs that it is about.

    They are those it names, and with "it", or without names, those of the one before. A heading
    starts anew. A table row is about what begins it, else also about what its head or the text
    above names.
    """
    before, above = frozenset[str](), frozenset[str]()
    in_table = False
    for line in filter(None, map(str.strip, text.split("\n"))):
        if line.startswith("|"):
            above = above if in_table else _owners(line) or before
            yield line, _owners(line.split("|")[1]) or above | _owners(line)
        else:
            before = before if not line.startswith("#") else frozenset()
            for sentence in re.split(r"(?<=[.!?])\s+", line):
                named = _owners(sentence)
                before = (
                    named | before
                    if not named or re.match(r"\W*its?\b", sentence, re.IGNORECASE)
                    else named
                )
                yield sentence, before
        in_table = line.startswith("|")


def _counts(sentence: str) -> list[tuple[str, str]]:
    """Return each number with what it counts: `3`, `jobs failed`."""
    found = (
        (number, " ".join(filter(None, words)))
        for number, *words in _COUNT.findall(_OWNER.sub("…", sentence))
    )
    return [(number, what) for number, what in found if what]


def _counted(number: str, what: str, told: str) -> bool:
    """Return True if a fact has the number and the counted words, in singular or plural."""
    words = {word.rstrip("s") for word in re.findall(r"[a-z]+", _OWNER.sub("…", told).lower())}
    return (number, "") in numbers(told) and {
        word.rstrip("s") for word in what.lower().split()
    } <= words


def _moment(fact: Fact) -> frozenset[tuple[str, str]]:
    """Return a source with the time of its reading."""
    return numbers(phrases.clock(fact.time)) | numbers(phrases.moment(fact.time, fact.time))


def world(random: Random) -> tuple[Facts, str]:
    """Return the facts of a random machine and their flaw: `none`, `missing` or `contradicted`."""
    facts, kinds = list(random_machines.random_facts(random)), []
    if random.random() < 0.05:
        return (), "none"
    if random.random() < 0.3:
        facts = [fact for fact in facts if random.random() < 0.8]
        kinds.append("missing")
    if facts and random.random() < 0.3:
        other = random.choice(
            [fact for fact in facts if not fact.name.endswith((".label", ".called"))] or facts
        )
        facts.append(
            msgspec.structs.replace(
                other,
                said="12345 %",
                value=12345,
                text=f"{other.name}: 12345 %",
                source="another sensor",
            )
        )
        kinds.append("contradicted")
    return tuple(facts), " and ".join(kinds) or "whole"


class Text(NamedTuple):
    """Hold a text that was shown."""

    facts: str
    """The flaw of its facts; see `world`."""
    question: str | None
    text: str
    writer: str
    invented: set[tuple[str, str]]


def texts(
    count: int, seed: int | str, author: Callable[[Random, Facts], Author | None]
) -> Iterator[Text]:
    """Yield what is shown for `count` random machines, in briefs and answers, by writer."""
    random = Random(seed)
    for _ in range(count):
        facts, kind = world(random)
        question = random.choice((None, *_QUESTIONS))
        told = write(facts, question, author(random, facts))
        assert told.text.strip(), "where there are no facts, that is said"
        yield Text(
            kind, question, told.text, told.writer, invented(told.text, facts, question or "")
        )


class Count:
    """Count the texts that were shown."""

    def __init__(self, shown: Iterator[Text]) -> None:
        self.facts: Counter[str] = Counter()
        self.by_model = 0
        self.found: list[str] = []
        """Texts with an invented number, and the numbers."""
        for text in shown:
            self.facts[text.facts] += 1
            self.by_model += text.writer != "template"
            if text.invented:
                self.found.append(
                    f"{sorted(text.invented)} by {text.writer} to {text.question!r} in: {text.text}"
                )

    @property
    def shown(self) -> int:
        return self.facts.total()
