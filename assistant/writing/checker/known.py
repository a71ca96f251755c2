"""Index facts by what a sentence may quote of them: values, words, names and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker.derived import derived
from gpudeck.assistant.writing.checker.lengths import in_base_unit, is_within, step_of

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"


_UNITS = (
    r"%|°C|TFLOP/s|GFLOP/s|FLOP/s|[KMGT]iB/s|[KMGT]iB|[KMGT]B/s|[KMGT]B|B/s|MHz|GHz|kWh|Wh|kW|mW|W"
    r"|ms|µs|us|ns|min|h|d|s|J|lanes|B"
)


VALUE = re.compile(
    rf"(?P<date>\d{{1,2}} (?:{_MONTHS}) \d{{4}})"
    r"|(?P<clock>\b\d\d:\d\d(?::\d\d)?\b)"
    r"|(?P<length>(?<![\w.-])\d+ (?:d|h|min) \d+ (?:h|min|s)\b)"
    r"|(?P<minus>(?<![\w)\]%])(?:[-\u2010-\u2015\ufe63\uff0d]|\u2212\s?))?"
    r"(?<![^\W_])(?P<number>\d+(?:[.,:-]\d+)*(?:e[+-]?\d+)?)"
    rf"(?:\s*(?P<unit>{_UNITS})(?![\w/]))?"
)


_AMOUNT = rf"(?!\d[\d.]*\s*(?:{_UNITS})(?![\w/]))"
_LIST = rf"\d{{1,18}}(?:(?:,? and |, | to | or ){_AMOUNT}\d{{1,18}})*"


NAMED = re.compile(
    rf"\b(?:(?P<replay>REPLAY )?GPUs? ?(?P<gpu>{_LIST})|(?P<cpu>CPU)"
    rf"|jobs? ?#?{_AMOUNT}(?P<job>{_LIST})|alerts? (?P<alert>{_LIST}))(?![\w.-]*\d)\b",
    re.IGNORECASE,
)


_TEXTS = re.compile(
    r"\.(?:name|reason|workload|backend|verdict|doing|note|source|paused|notice\d+|device|choice"
    r"|inputs|result|rule|text|about|process\d+|versions)$"
)


class Known(NamedTuple):
    """Hold facts by what a sentence may quote of them."""

    facts: tuple[Fact, ...]
    by_name: dict[str, list[Fact]]
    subjects: frozenset[str]
    numbers: dict[str, list[Fact]]
    phrases: dict[str, list[Fact]]
    pattern: re.Pattern[str] | None
    shared: frozenset[str]
    """The names that several jobs have."""
    words: str
    """What all facts say, in lower case."""
    amounts: tuple[tuple[float, str, Fact], ...]
    """The values with a unit, in the unit of facts, each with a field of that unit."""

    def of(self, subject: str, field: str) -> list[Fact]:
        """Return the facts of a name, from every source."""
        return self.by_name.get(f"{subject}.{field}", [])

    def within(self, key: str, bound: str = "=") -> tuple[Fact, ...]:
        """Return the facts that a value with a bound describes, in whatever unit: `> 60 s`.

        Args:
            key: The value as it is written.
            bound: One of `lengths.BOUNDS`.
        """
        given = in_base_unit(key)
        step = step_of(key) if given and given[1] == "duration" else 0.0
        return tuple(
            fact
            for amount, field, fact in self.amounts
            if given is not None and field == given[1] and is_within(amount, *given, bound, step)
        )

    def value(self, subject: str, field: str) -> float | str | None:
        """Return a value, if there is one and the sources agree on it."""
        values = {fact.value for fact in self.of(subject, field)}
        return values.pop() if len(values) == 1 else None


@lru_cache(64)
def known(facts: tuple[Fact, ...]) -> Known:
    """Return the facts by what a sentence may quote of them."""
    by_name: dict[str, list[Fact]] = {}
    numbers: dict[str, list[Fact]] = {}
    phrases: dict[str, list[Fact]] = {}
    for fact in (*facts, *derived(facts)):
        by_name.setdefault(fact.name, []).append(fact)
        said = plain(fact.said)
        for key in dict.fromkeys(value_key(m) for m in VALUE.finditer(said)):
            numbers.setdefault(key, []).append(fact)
        words = said.lower().rstrip(".")
        if fact.value is None or _TEXTS.search(fact.name):
            models = (
                _models(words) if re.fullmatch(r"(?:gpu|cpu|replay)\d*\.name", fact.name) else ()
            )
            for phrase in (*_phrases(words), *models):
                if NAMED.fullmatch(phrase):
                    continue
                phrases.setdefault(phrase, []).append(fact)
    names = Counter(
        plain(f.said) for f in facts if f.name.endswith(".name") and f.subject[:3] == "job"
    )
    ordered = sorted(phrases, key=len, reverse=True)
    pattern = "|".join(rf"(?<!\w){re.escape(phrase)}(?!\w)" for phrase in ordered)
    subjects = frozenset(fact.subject for fact in facts)
    return Known(
        facts,
        by_name,
        subjects,
        numbers,
        phrases,
        re.compile(pattern, re.IGNORECASE) if pattern else None,
        frozenset(name for name, count in names.items() if count > 1),
        "\n".join(plain(fact.text).lower() for fact in facts),
        (*_shares(by_name), *_amounts(numbers)),
    )


def _shares(by_name: dict[str, list[Fact]]) -> Iterator[tuple[float, str, Fact]]:
    """Yield the values in percent, which are not rounded, with their field and fact."""
    for fact in (fact for facts in by_name.values() for fact in facts):
        if fact.unit == "%" and isinstance(fact.value, int | float):
            yield float(fact.value), "util", fact


def _amounts(numbers: dict[str, list[Fact]]) -> Iterator[tuple[float, str, Fact]]:
    """Yield the other values that facts say with a unit."""
    for key, facts in numbers.items():
        given = in_base_unit(key)
        for fact in facts if given is not None else ():
            if given is not None and fact.unit != "%":
                yield *given, fact


def _phrases(words: str) -> Iterable[str]:
    """Return the words of a fact, and without `N/A (...)` or the brackets at their end."""
    yield words
    if found := re.fullmatch(r"n/a \((.*)\)", words):
        yield found[1]
        yield found[1].removesuffix(" in this time")
    elif found := re.fullmatch(r"(.+?) \((?:pid|.*, ).*\)", words):
        yield found[1]


def _models(name: str) -> Iterable[str]:
    """Return the ends of the name of a device by which people call it: rtx 4090 and 4090."""
    words = name.split()
    return tuple(
        " ".join(words[i:])
        for i in range(1, len(words))
        if re.search(r"[a-z].*\d|\d{3}", " ".join(words[i:]))
    ) + tuple(word for word in words[1:-1] if re.fullmatch(r"[a-z]+\d+", word))


def plain(text: str) -> str:
    """Return Markdown without emphasis and escapes."""
    return re.sub(r"\\(?=\W|_)", "", re.sub(r"(?<!\\)[*`]|^#+ ", "", text)).strip()


def value_key(found: re.Match[str]) -> str:
    """Return a value in the form by which it is looked up: `71 °C`."""
    if found["number"] is None:
        return found[0]
    sign = "-" if found["minus"] else ""
    return f"{sign}{found['number']} {found['unit'] or ''}".strip()
