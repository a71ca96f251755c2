"""Count false numbers in texts about random machines, judged by an oracle that knows meaning.

The oracle shares nothing with `gpudeck.assistant.writing.verify`. A number is false if

- it is invented: with its sign and unit it is in no fact about the sentence's device or job, or
  about none, or a count (`3 jobs failed`, `7 times`) is in no fact that counts just that;
- it is misplaced: it is a fact of another device or job than the one named last before it, or of
  another quantity than the words beside it name, such as the highest value called the mean.

Jobs, devices and questions have names and words that no training example has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

import msgspec

from gpudeck.assistant.facts import FIELDS_SPAN, Fact, phrases
from gpudeck.assistant.workloads import random_machines
from gpudeck.assistant.writing.writer import write

Facts = tuple[Fact, ...]
Author = Any
"""An `gpudeck.assistant.writing.author.Author`."""

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
_JOBS = ("whisper-eval", "protein_fold", "crawl-x", "mixtral/sft", "lidar-seg", "copy of night run")
_DEVICES = ("NVIDIA B200", "NVIDIA L40S", "NVIDIA GH200 480GB", "Quadro P2000")
"""Names of jobs and devices that no training example has."""
_WORDS = {
    "temp": r"temperature|°C", "power": r"power|draws|there is|\bat\b",
    "power_limit": r"limit|\bof\b",
    "util": r"utilisation|\bat\b|busy|there is", "mem_used": r"\bin use|\bused?s?\b|memory used",
    "mem_free": r"free", "mem_total": r"\bof\b|memory:", "tflops": r"TFLOP/s",
    "duration": r"took|\bran\b|after|run for|ended|jobs \w+:", "running": r"running|still",
    "waiting": r"queued|wait", "left": r"left", "progress": r"through|progress|there is",
    "median": r"median|there is", "p95": r"P95|nearly all", "p99": r"P99",
    "sustained": r"sustained",
    "calls": r"calls", "code": r"status|code", "ended": r"ended|failed|lost|cancelled",
}  # fmt: skip
"""By field, the words beside its value; other fields are judged by their owner alone."""
_OVER_TIME = {"mean": r"mean|average", "max": r"highest|at most|never above|peak", "min": r"lowest"}
_CONTRADICTION = 12345
"""The value that another source reports, of whatever quantity."""
_NOTE = "\n\nWritten from the template: "
"""The note that quotes a refused text, which makes no claim."""


@lru_cache(100_000)
def numbers(text: str) -> frozenset[tuple[str, str]]:
    """Return numbers with sign and unit, except those that are part of a name."""
    return frozenset(
        ("-" * bool(sign) + number, unit)
        for sign, number, unit in _NUMBER.findall(_OWNER.sub("…", text))
    )


def invented(text: str, facts: Facts, also: str = "") -> set[tuple[str, str]]:
    """Return the numbers in `text` that no fact about the same subject has with that
    unit and noun.
    """
    known = _owners("\n".join((also, *(f"{fact.subject}\n{_told(fact)}" for fact in facts))))
    found = set()
    names = {f.said for f in facts if f.name.endswith(".name") and not f.subject.startswith("job")}
    named = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "$^")
    for sentence, owners in _sentences(text.split(_NOTE, maxsplit=1)[0]):
        shown = named.sub("…", sentence)  # the digits of a whole name are no number
        about = [
            fact
            for fact in facts
            if not owners or fact.subject in owners or not _OWNER.fullmatch(fact.subject)
        ]
        told = numbers(also).union(*(numbers(_told(fact)) | _moment(fact) for fact in about))
        found |= {(owner, "") for owner in _owners(shown) - known - {"cpu"}} | (
            numbers(shown) - told
        )
        found |= {
            (number, what)
            for number, what in _counts(shown)
            if not any(_counted(number, what, fact.text) for fact in about)
        }
    return found


def _told(fact: Fact) -> str:
    return f"{fact.text}\n{fact.said}\n{fact.source}\n{_in_seconds(fact)}"


def _in_seconds(fact: Fact) -> str:
    """Return a length in seconds, as which it may be told: 1 min 6 s are 66 s."""
    seconds = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    parts = re.findall(r"(\d+) (d|h|min|s)\b", fact.said) if fact.unit == "s" else []
    return f"{sum(int(number) * seconds[unit] for number, unit in parts)} s" if parts else ""


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


def misplaced(text: str, facts: Facts) -> set[tuple[str, str]]:
    """Return the numbers of sentences that are no fact of the owner named last before them, or of
    the quantity that the words beside them name.
    """
    found = set()
    foreign = {fact.said for fact in facts if isinstance(fact.value, str) and not _is_owner(fact)}
    hidden = re.compile("|".join(map(re.escape, sorted(foreign, key=len, reverse=True))) or "$^")
    lines = text.split(_NOTE, maxsplit=1)[0].split("\n")
    prose = [line for line in lines if not line.startswith(("|", "**The sources disagree"))]
    for sentence, owners in _sentences("\n".join(prose)):
        shown = hidden.sub("…", sentence)
        for number in _NUMBER.finditer(_OWNER.sub(lambda m: "…" * len(m[0]), shown)):
            before = list(_OWNER.finditer(shown[: number.start()]))
            owner = _owners(before[-1][0]) if before else owners
            key = ("-" * bool(number[1]) + number[2], number[3] or "")
            shared = [] if before else [f for f in facts if not _OWNER.fullmatch(f.subject)]
            mine = [fact for fact in facts if fact.subject in owner]
            about = [
                fact
                for fact in (*mine, *shared)
                if key in numbers(fact.said) | numbers(_in_seconds(fact))
            ]
            judged = number[3] and mine
            if judged and not any(_is_meant(fact, shown, number.span()) for fact in about):
                found.add((key[0], f"{key[1]} misplaced"))
    return found


def _is_owner(fact: Fact) -> bool:
    return fact.name.endswith((".label", ".called", ".state"))


def _is_meant(fact: Fact, sentence: str, at: tuple[int, int]) -> bool:
    """Return True if the words beside a number name the fact's quantity."""
    if fact.value == _CONTRADICTION:
        return True
    field, _, stat = fact.name.partition(".")[2].partition("~")[0].partition(".")
    part = re.search(r"[^,;()]*$", sentence[: at[0]])[0] + sentence[at[0] : at[1]]
    part += re.match(r"[^,;()0-9]*", sentence[at[1] :])[0]
    if not re.search(_WORDS.get(field, ""), sentence, re.IGNORECASE):
        return False
    if field in FIELDS_SPAN and not fact.subject.startswith("job"):
        named = [of for of, words in _OVER_TIME.items() if re.search(words, part, re.IGNORECASE)]
        return stat in named if stat else not named or bool(re.search(r"\bnow\b|\band\b", part))
    return True


def _renamed(facts: Facts, random: Random) -> Facts:
    """Return the facts with a name of `_DEVICES` for each device."""
    name = random.choice(_DEVICES)
    return tuple(
        msgspec.structs.replace(
            fact, value=name, said=name, text=fact.text.replace(fact.said, name)
        )
        if fact.name.endswith((".name", ".device")) and str(fact.value).startswith("NVIDIA")
        else fact
        for fact in facts
    )


def world(random: Random) -> tuple[Facts, str]:
    """Return the facts of a random machine and their flaw: `none`, `missing` or `contradicted`."""
    facts, kinds = list(_renamed(random_machines.random_facts(random, _JOBS), random)), []
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
                said=f"{_CONTRADICTION} %",
                value=_CONTRADICTION,
                text=f"{other.name}: {_CONTRADICTION} %",
                source="another sensor",
            )
        )
        kinds.append("contradicted")
    return tuple(facts), " and ".join(kinds) or "whole"


class Text(NamedTuple):
    """Hold a text that was shown."""

    facts: str
    """The flaw of its facts; see `world`."""
    text: str
    writer: str
    invented: set[tuple[str, str]]


def texts(
    count: int, seed: int | str, author: Callable[[Random, Facts], Author | None]
) -> Iterator[Text]:
    """Yield what is shown for `count` random machines, by writer."""
    random = Random(seed)
    for _ in range(count):
        facts, kind = world(random)
        told = write(facts, author(random, facts))
        assert told.text.strip(), "where there are no facts, that is said"
        false = invented(told.text, facts) | misplaced(told.text, facts)
        yield Text(kind, told.text, told.writer, false)


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
                self.found.append(f"{sorted(text.invented)} by {text.writer} in: {text.text}")

    @property
    def shown(self) -> int:
        return self.facts.total()
