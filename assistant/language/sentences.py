"""Translate the sentences of the scheduler: why jobs wait and failed, and what is missing.

The scheduler words them in English for all its clients. Here each is recognised by its pattern,
whose named parts are kept or translated in turn; what no pattern fits stays as it is.
"""

from __future__ import annotations

import re
from functools import cache

from gpudeck.assistant.language import result_sentences
from gpudeck.language.rendering import render
from gpudeck.language.text import Message
from gpudeck.language.words import Words

_SENTENCES = {
    "sub", "when", "problem", "refusal", "jobs", "process", "holder", "action", "kind", "shown",
    "status",
}  # fmt: skip
_LISTS = {"rest", "faults"}
_TIMES = {"time", "begin", "end"}
_NUMBERS = {"amount", "size", "less", "used", "span", "figures", "mean", "low", "high"}
"""The parts that are sentences themselves, lists of sentences, moments, and numbers."""
_DEPTH = 4
_MOST_COMMAS = 4
"""Commas within one sentence of a list."""
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def translated(text: Message, words: Words, depth: int = _DEPTH) -> str:
    """Return a sentence of the scheduler in the language of the words."""
    if not isinstance(text, str):
        return render(text, words.language)
    if words.language == "en" or not depth:
        return text
    if (found := _recognised(text, words, depth)) is not None:
        return found
    first, both, rest = text.partition("; ")
    if both and (head := _recognised(first, words, depth)) is not None:
        devices = "; " not in rest or re.match(_SHAPES["device"], rest)
        more = _list(rest, words, depth) if devices else translated(rest, words, depth)
        return words.text("{sub}; {rest}", sub=head, rest=more)
    return _list(text, words, depth) if ", " in text and "GPU" in text else text


def dated(text: str, words: Words) -> str:
    """Return a moment with the names of its day and month in the language of the words."""
    if words.language == "en":
        return text
    return re.sub(r"[A-Z][a-z]{2}", lambda name: _names(words).get(name[0], name[0]), text)


def _recognised(text: str, words: Words, depth: int) -> str | None:
    """Return a sentence that fits a pattern; None where none does."""
    for pattern, beginning in _beginnings():
        if text.startswith(beginning) and (found := _expression(pattern).fullmatch(text)):
            parts = {
                name: _part(name, value, words, depth - 1)
                for name, value in found.groupdict().items()
            }
            return words.text(pattern, **parts)
    return None


def _part(name: str, value: str, words: Words, depth: int) -> str:
    """Return what is filled in for a named part of a pattern."""
    if name in _SENTENCES:
        return translated(value, words, depth)
    if name in _LISTS:
        return _list(value, words, depth)
    if name in _NUMBERS:
        return words.numbers(value)
    if name == "tokens":
        return words.whole(int(value.replace(",", "")))
    if name == "devices":
        return words.listed(re.split(", | and ", value))
    return dated(value, words) if name in _TIMES else value


def _list(text: str, words: Words, depth: int) -> str:
    """Return a list whose items may have commas themselves: the shortest that fits is the next."""
    if "GPU" not in text and (whole := _recognised(text, words, depth)) is not None:
        return whole
    left, items = text.split(", "), []
    while left and depth:
        for length in range(1, min(_MOST_COMMAS, len(left)) + 1):
            item = _recognised(", ".join(left[:length]), words, depth)
            if item is not None:
                break
        else:
            length, item = 1, left[0]
        items.append(item)
        left = left[length:]
    return ", ".join((*items, *left))


@cache
def _names(words: Words) -> dict[str, str]:
    """Return the short names of days and months by their English ones."""
    days, months = words.short_names()
    return dict(zip((*_DAYS, *_MONTHS), (*days, *months), strict=True))


@cache
def _beginnings() -> tuple[tuple[str, str], ...]:
    """Return all patterns, each with its text before its first part: few are ever compiled."""
    return tuple((pattern, pattern.partition("{")[0]) for pattern in result_sentences.PATTERNS)


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\{\w+\})", pattern)
    whole = "".join(
        f"(?P<{part[1:-1]}>{_SHAPES.get(part[1:-1], '.+?')})"
        if part.startswith("{")
        else re.escape(part)
        for part in parts
    )
    return re.compile(whole, re.DOTALL)


_AMOUNT, _SPAN = r"[\d.]+(?: ?[\w%]+)?", r"[\d.]+ (?:s|min|h|d)"
_CLOCK = r"(?:[A-Z][a-z]{2} \d\d [A-Z][a-z]{2}, )?\d\d:\d\d(?::\d\d)?"
_SHAPES = {
    **dict.fromkeys(("job", "n", "limit", "more"), r"\d+"),
    **dict.fromkeys(("degrees", "peak", "percent"), r"-?\d+"),
    **dict.fromkeys(("less", "used"), r"[\d.e+-]+"),
    **dict.fromkeys(("amount", "size"), _AMOUNT),
    **dict.fromkeys(("rest", "faults"), ".+"),
    **dict.fromkeys(("host", "cluster", "group"), r"\S+"),
    **dict.fromkeys(("time", "begin", "end"), _CLOCK),
    "when": rf"about {_CLOCK}|{_CLOCK} at the latest",
    "span": _SPAN,
    "device": r"(?:\S+ )?(?:GPU [\d:.]+|CPU)|the CPU",
    "gpu": r"(?:GPU \d+(?:, | and )?)+",
    "numbers": r"[\d, ]+",
    "version": r"[\d.]+",
    "devices": r"[^;]+?",
    "backend": r"\w+",
    "refusal": r"(?:(?!; not \w+: it ).)+",
    "figures": r"\d[^;]*",
    "tokens": r"[\d,]+",
    "process": r"pid \d+ \(.+?\)(?: and \d+ more)?",
    "jobs": r"jobs (?:\d+, )*\d+ and \d+|job \d+",
}
