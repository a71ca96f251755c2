"""From a request to a call: by the model where one is loaded and says what `assistant.intents.table` knows, else by the rules.

Where the model is not sure, the request may mean several calls, and whoever asked is asked back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from accel.workloads import catalog
from assistant.intents import doubts
from assistant.intents.choices import MOST
from assistant.intents.masks import NOUN, masked
from assistant.intents.normalize import bare, plain
from assistant.intents.parameters import parameters
from assistant.intents.roles import is_order
from assistant.intents.rules import by_rules
from assistant.intents.table import SYSTEM, Route, parse
from assistant.intents.tool_call import ToolCall, call_from_route
from assistant.writing.author import Author, P, Way

LONGEST_REQUEST = 2000
"""Characters; what is longer is no request, but a text."""
SURE = 0.9
"""Probability of a call from which on it is taken for what was meant, whatever the rules say (measured: tests/benchmarks/LOG.md)."""
WAYS = 6
"""Texts of the model that are looked at; some are no calls, or the same."""
_NUMBERED = re.compile(rf"\b(?:{NOUN})[ #]+\{{n\d+\}}", re.IGNORECASE)
_ITS = re.compile(
    r"\b(?:its|seine[mnr]?|ihre[mnr]?) (?:own )?(?:last|latest|previous|earlier|prior|former|letzt\w+|vorig\w+|vorherig\w+|fruher\w+)"
    r"|\b(?:son|sa) (?:dernier|precedent|execution precedente)|\bsu (?:ultim\w|ejecucion anterior|anterior)"
)
"""Of the thing that is compared, as `assistant.intents.normalize` leaves it."""
_NAMING = ("job", "other", "command", "workload")
"""Arguments that are words of the request as they stand there."""
_OTHER = ToolCall("answer", "other")


class Routed(NamedTuple):
    call: ToolCall | None
    """None where it asks for something to be done that no tool does."""
    by: str
    """`rules` or `model NAME`."""
    choices: tuple[ToolCall, ...] = ()
    """What else it may mean, the likeliest first and `call` among them, where that is to be asked; empty where it is clear."""
    certain: bool = True
    """The rules read it in the same way, also without the names of jobs; it has no name of a job that the call does not name, is no
    question, and has no condition, which no tool takes. Names are foreign text, which may settle what is proposed, but not that it is
    done without a card, as a permission for the session allows."""


class _Meaning(NamedTuple):
    call: ToolCall
    chance: float
    """How probable the model holds it."""


def route(request: str, names: Sequence[str] = (), author: Author[P] | None = None) -> Routed:
    """`names`: what jobs are called. Nothing but the person's own request is read. Raises Cancelled."""
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
    """The names that the request may mean: those that it has; one that reads like an order, or as a thing by its number (`job 7`), only
    where it is called a job's.

    So no job can be called in a way that makes orders unreadable, or has them meet another job.
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
    """Whether the request has the name of a job that the call takes for other words: for the number 4 in `the job called job 4`, for all
    jobs in `the job called everything`.
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
    """As whole words; both folded."""
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
    """With the parameters of a workload that the request names."""
    if found is None or not (name := found.text("workload")):
        return found
    return msgspec.structs.replace(found, params=dict(parameters(catalog.find(name), request)))


def _by_model(text: str, values: dict[str, str], author: Author[P]) -> list[_Meaning]:
    """What it may mean, the likeliest first. What is no route is left out: of no tool, or with slots that the request has not."""
    mended, typed = plain(text), bare(text)
    found = _read(mended, values, author)
    if found and found[0].call.acts and mended != typed:
        # An order that is one only since a slip was mended is none that is sure.
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
    """Of each call once, with all of its chances, the likeliest first."""
    merged: list[_Meaning] = []
    for call, chance in found:
        before = sum(other.chance for other in merged if other.call == call)
        merged = [
            *(other for other in merged if other.call != call),
            _Meaning(call, before + chance),
        ]
    return sorted(merged, key=lambda meaning: -meaning.chance)


def _in_doubt(text: str, best: _Meaning, by_hand: ToolCall | None) -> bool:
    """Whether to ask back, where the rules read something else: an order above all."""
    if best.chance < SURE or (by_hand is not None and by_hand.acts):
        return True
    return best.call.acts and (doubts.asks(text) or doubts.forbids(text))


def _ways(text: str, author: Author[P]) -> list[Way]:
    try:
        return author.ways(author.begin(SYSTEM, text), WAYS)
    except ValueError:
        return []  # it computes no numbers


def _asked(found: Sequence[_Meaning], by_hand: ToolCall | None) -> list[ToolCall]:
    """What to offer: the likeliest, and what the rules read; empty where there is nothing to choose, and no order to take back."""
    offered: list[ToolCall] = []
    for call in (
        *(meaning.call for meaning in found[: MOST - 1]),
        by_hand,
        *(meaning.call for meaning in found[MOST - 1 :]),
    ):
        if call is not None and call != _OTHER and call not in offered:
            offered.append(call)
    return (
        offered[:MOST] if len(offered) > 1 or found[0].call == _OTHER or found[0].call.acts else []
    )


def _of_different(route: Route, text: str) -> Route:
    """A thing is not compared with itself, and *its* last run is none of another: where the request names one only, the tool knows what to
    compare it with."""
    named = {key: value for key, value in route.arguments.items() if key != "other"}
    other = route.arguments.get("other")
    if other is not None and named == {"job": "last"} and _ITS.search(text):
        return route._replace(arguments={"job": other})
    return route._replace(arguments=named) if other in named.values() else route
