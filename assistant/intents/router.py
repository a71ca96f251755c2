"""Recognize the call that a request asks for: by the model if it names a known tool, else by rules.

If the model is not sure, the request may mean several calls, and the person is asked which.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from accel.workloads import catalog
from assistant.intents import doubts
from assistant.intents.choices import MAX_CHOICES
from assistant.intents.masks import NOUN, masked
from assistant.intents.normalize import bare, plain
from assistant.intents.roles import is_order
from assistant.intents.rules import by_rules
from assistant.intents.table import SYSTEM, Route, parse
from assistant.intents.tool_call import ToolCall, call_from_route
from assistant.writing.author import Author, Continuation, P

LONGEST_REQUEST = 2000
"""Characters; a longer text is not a request."""
SURE = 0.9
"""A call with at least this probability is accepted whatever the rules say.

Measured in tests/benchmarks/LOG.md.
"""
WAYS = 6
"""Texts of the model that are considered; some are not calls, or equal others."""
_NUMBERED = re.compile(rf"\b(?:{NOUN})[ #]+\{{n\d+\}}", re.IGNORECASE)
_ITS = re.compile(
    r"\b(?:its|seine[mnr]?|ihre[mnr]?) (?:own )?(?:last|latest|previous|earlier|prior"
    r"|former|letzt\w+|vorig\w+|vorherig\w+|fruher\w+)"
    r"|\b(?:son|sa) (?:dernier|precedent|execution precedente)|\bsu (?:ultim\w|ejecucion"
    r" anterior|anterior)"
)
"""Words for the earlier run of the compared thing, in normalized text."""
_NAMING = ("job", "other", "command", "workload")
"""Arguments whose values are words of the request."""
_OTHER = ToolCall("answer", "other")


class Routed(NamedTuple):
    """Hold the call that a request asks for, and how sure that is."""

    call: ToolCall | None
    """None if no tool does what the request asks for."""
    by: str
    """Who recognized it: `rules` or `model NAME`."""
    choices: tuple[ToolCall, ...] = ()
    """The calls to choose from, the likeliest first; empty if the request is clear."""
    certain: bool = True
    """A permission for the session is enough to carry it out.

    The rules read the request the same way, also without the names of jobs. It contains no name of
    a job that the call does not name, is not a question, and has no condition. Names are foreign
    text: they may decide what is proposed, but not that it is done without a question.
    """


class _Meaning(NamedTuple):
    call: ToolCall
    chance: float
    """Its probability, according to the model."""


def route(request: str, names: Sequence[str] = (), author: Author[P] | None = None) -> Routed:
    """Recognize what a request asks for. Nothing but the person's own text is read.

    Args:
        request: The request as it was typed.
        names: The names of jobs.
        author: The model, if one is available.

    Raises:
        Cancelled: The author was cancelled.
    """
    if len(request) > LONGEST_REQUEST:
        return Routed(_OTHER, "rules")
    masking = _masking(names, request)
    by_hand = by_rules(request, masking)
    text, values = masked(request, masking)
    certain = (
        by_hand == by_rules(request)
        and not _overlooked(names, request, by_hand)
        and not doubts.conditional(text)
        and not doubts.asks(text)
    )
    found = _by_model(text, values, author) if author is not None and author.compact else []
    if author is None or not found:
        return Routed(_completed(by_hand, request), "rules", certain=certain)
    best = found[0]
    asked = (
        _asked(found, by_hand) if best.call != by_hand and _in_doubt(text, best, by_hand) else []
    )
    choices = tuple(filter(None, (_completed(call, request) for call in asked)))
    return Routed(
        _completed(best.call, request),
        f"model {author.name}",
        choices,
        certain and best.call == by_hand,
    )


def _masking(names: Iterable[str], request: str) -> list[str]:
    """Return the names of jobs that the request may mean: those that it contains.

    A name that reads like a command or like `job 7` counts only after the word `job`, so that no
    job's name makes commands unreadable or directs them at another job.
    """
    text = request.casefold()
    found = {name for name in names if name.strip() and name.casefold() in text}
    return [
        name
        for name in found
        if f"job {name.casefold()}" in text
        or not (_orders(name) or _NUMBERED.search(masked(name)[0]))
    ]


def _overlooked(names: Iterable[str], request: str, found: ToolCall | None) -> bool:
    """Return whether the request contains a job's name that the call reads as other words.

    For example the number 4 in `the job called job 4`, or all jobs in `the job called everything`.
    """
    given = [found.arguments.get(argument) for argument in _NAMING] if found is not None else []
    named = [
        _folded(words) for words in given if isinstance(words, str) and words != "last"
    ]  # the newest, whatever it is called
    text = _folded(request)
    return any(
        _has(text, name) and not any(_has(words, name) for words in named)
        for name in map(_folded, set(names))
    )


def _has(text: str, name: str) -> bool:
    """Return whether a text contains a name as whole words; both are folded."""
    return (
        bool(name)
        and name in text
        and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
    )


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _orders(name: str) -> bool:
    read = by_rules(name)
    return is_order(name) or (read is not None and read.acts)


def _completed(found: ToolCall | None, request: str) -> ToolCall | None:
    """Add the parameters of a workload that the request names."""
    if found is None or not (name := found.text("workload")):
        return found
    return msgspec.structs.replace(
        found, params=dict(workload_parameters(catalog.find(name), request))
    )


def _by_model(text: str, values: dict[str, str], author: Author[P]) -> list[_Meaning]:
    """Return what the request may mean, the likeliest first, without invalid routes."""
    mended, typed = plain(text), bare(text)
    found = _read(mended, values, author)
    if found and found[0].call.acts and mended != typed:
        # A command that is one only because a typo was mended is not sure.
        both = (*found, *_read(typed, values, author))
        return _merged(meaning._replace(chance=meaning.chance / 2) for meaning in both)
    return found


def _read(text: str, values: dict[str, str], author: Author[P]) -> list[_Meaning]:
    found: list[_Meaning] = []
    for way in _ways(text, author):
        with suppress(ValueError):
            call = call_from_route(
                _of_different(parse(way.text.strip().partition("\n")[0]), text), values
            )
            found.append(_Meaning(call, way.chance))
    return _merged(found)


def _merged(found: Iterable[_Meaning]) -> list[_Meaning]:
    """Return each call once with the sum of its probabilities, the likeliest first."""
    merged: list[_Meaning] = []
    for call, chance in found:
        before = sum(other.chance for other in merged if other.call == call)
        merged = [
            *(other for other in merged if other.call != call),
            _Meaning(call, before + chance),
        ]
    return sorted(merged, key=lambda meaning: -meaning.chance)


def _in_doubt(text: str, best: _Meaning, by_hand: ToolCall | None) -> bool:
    """Return whether to ask what is meant if the rules read the request differently."""
    if best.chance < SURE or (by_hand is not None and by_hand.acts):
        return True
    return best.call.acts and (doubts.asks(text) or doubts.forbids(text))


def _ways(text: str, author: Author[P]) -> list[Continuation]:
    try:
        return author.continuations(author.begin(SYSTEM, text), WAYS)
    except ValueError:
        return []  # its output is not finite


def _asked(found: Sequence[_Meaning], by_hand: ToolCall | None) -> list[ToolCall]:
    """Return the likeliest calls and that of the rules; empty if there is no choice to offer."""
    offered: list[ToolCall] = []
    for call in (
        *(meaning.call for meaning in found[: MAX_CHOICES - 1]),
        by_hand,
        *(meaning.call for meaning in found[MAX_CHOICES - 1 :]),
    ):
        if call is not None and call != _OTHER and call not in offered:
            offered.append(call)
    return (
        offered[:MAX_CHOICES]
        if len(offered) > 1 or found[0].call == _OTHER or found[0].call.acts
        else []
    )


def _of_different(route: Route, text: str) -> Route:
    """Correct a comparison of a thing with itself, or with its own last run.

    If the request names one thing only, the tool chooses what to compare it with.
    """
    named = {key: value for key, value in route.arguments.items() if key != "other"}
    other = route.arguments.get("other")
    if other is not None and named == {"job": "last"} and _ITS.search(text):
        return route._replace(arguments={"job": other})
    return route._replace(arguments=named) if other in named.values() else route


_VALUE = r"(?:\s*[=:]\s*|\s+(?:of|is|to)?\s*)([\w.,-]*\w)"


def workload_parameters(workload: catalog.Workload, request: str) -> Mapping[str, str]:
    """Return the parameters that a request names, such as `gemm with size 4096, seconds=2`.

    Names and labels match in any case; values are returned as they were typed, unchecked.
    """
    found = {}
    for param in workload.params:
        spellings = {param.name, param.name.replace("_", "-"), param.label.lower()}
        names = "|".join(re.escape(name) for name in spellings)
        if match := re.search(rf"(?<![\w-])(?:{names})\b{_VALUE}", request, re.IGNORECASE):
            value = match[1].lower()
            if not any(character.isdigit() for character in value) and value not in param.choices:
                continue  # a word that only follows the name, as in: with causal attention
            found[param.name] = value
    return found
