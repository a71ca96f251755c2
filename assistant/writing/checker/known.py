"""Index facts by what a sentence may quote of them: values, words, names and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from gpudeck.assistant.facts import Fact

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


_LIST = r"\d{1,18}(?:(?:,? and |, | to | or )\d{1,18})*"


NAMED = re.compile(
    rf"\b(?:(?P<replay>REPLAY )?GPUs? ?(?P<gpu>{_LIST})|(?P<cpu>CPU)"
    rf"|jobs? ?#?(?P<job>{_LIST})|alerts? (?P<alert>{_LIST}))(?![\w.-]*\d)\b",
    re.IGNORECASE,
)


_TEXTS = re.compile(
    r"\.(?:name|reason|workload|backend|verdict|doing|note|source|paused|notice\d+|device|choice"
    r"|inputs|result|rule|text|about|process\d+|versions)$"
)


_BASE = {
    "s": (1.0, "duration"), "min": (60.0, "duration"), "h": (3600.0, "duration"),
    "d": (86400.0, "duration"), "ms": (1.0, "median"), "°C": (1.0, "temp"), "W": (1.0, "power"),
    "%": (1.0, "util"), "TFLOP/s": (1.0, "tflops"), "MiB": (2.0**20, "mem_used"),
    "GiB": (2.0**30, "mem_used"), "Wh": (3600.0, "energy"),
}  # fmt: skip
"""By unit: how many of the facts' unit it is, and a field that is measured in it."""


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

    def equal(self, key: str, tolerance: float = 1e-6) -> tuple[Fact, ...]:
        """Return the facts with this value in whatever unit: `60 s` is `1 min`.

        Args:
            key: The value as it is written.
            tolerance: How far they may differ, relative to it.
        """
        given = in_base_unit(key)
        if given is None:
            return ()
        most = tolerance * abs(given[0])
        return tuple(
            fact
            for amount, field, fact in self.amounts
            if field == given[1] and abs(amount - given[0]) <= most
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
    for fact in facts:
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
        tuple(
            (*given, fact)
            for key, of in numbers.items()
            if (given := in_base_unit(key)) is not None
            for fact in of
        ),
    )


_AMOUNT = re.compile(r"-?\d+(?:\.\d+)? \S+(?: \d+ \S+)*")


def in_base_unit(text: str) -> tuple[float, str] | None:
    """Return a value in the unit of facts, with a field of that unit; None without a known unit."""
    total, field = 0.0, ""
    if not _AMOUNT.fullmatch(text):
        return None
    for number, unit in re.findall(r"(-?[\d.]+) ([^\s\d]+)", text):
        if unit not in _BASE:
            return None
        scale, field = _BASE[unit]
        total += float(number) * scale
    return (total, field) if field else None


def step_of(text: str) -> float:
    """Return the last unit of a value in the unit of facts."""
    unit = text.rsplit(" ", 1)[-1]
    return _BASE[unit][0] if unit in _BASE else 1.0


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
    return (
        " ".join(words[i:])
        for i in range(1, len(words))
        if re.search(r"[a-z].*\d|\d{3}", " ".join(words[i:]))
    )


def plain(text: str) -> str:
    """Return Markdown without emphasis and escapes."""
    return re.sub(r"\\(?=\W|_)", "", re.sub(r"(?<!\\)[*`]|^#+ ", "", text)).strip()


def value_key(found: re.Match[str]) -> str:
    """Return a value in the form by which it is looked up: `71 °C`."""
    if found["number"] is None:
        return found[0]
    sign = "-" if found["minus"] else ""
    return f"{sign}{found['number']} {found['unit'] or ''}".strip()
