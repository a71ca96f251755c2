"""Read a request: by rules, and by the model what the rules do not read whole.

The rules account for every word. What only the model reads is answered if it is a query, sure and
uses every number and name of the request; otherwise, and for all orders, the person is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from assistant.intents.choices import MAX_CHOICES
from assistant.intents.masks import masked
from assistant.intents.model_routes import request_of
from assistant.intents.normalize import plain
from assistant.intents.parser import LONGEST_REQUEST, Parsed, parse
from assistant.intents.spots import Known
from assistant.intents.state import State
from assistant.intents.table import SYSTEM
from assistant.intents.table import parse as parse_route
from assistant.query.request import Order, Request
from assistant.writing.author import Author, Continuation, P

SURE = 0.9
"""A query with at least this probability is answered without asking back.

Measured in tests/benchmarks/LOG.md.
"""
WAYS = 6
"""Texts of the model that are considered; some are not routes, or equal others."""


class Routed(NamedTuple):
    """Hold what a request asks for, and how sure that is."""

    parsed: Parsed
    request: Request | None
    """None if nothing was understood, or the request is refused."""
    by: str
    """Who read it: `rules` or `model NAME`."""
    choices: tuple[Request, ...] = ()
    """What the person may choose from, the likeliest first; empty if the request is clear."""


class _Meaning(NamedTuple):
    request: Request
    chance: float
    """Its probability, according to the model."""
    whole: bool
    """It uses every number and name of the request."""


def route(
    request: str, known: Known, state: State, now: float, author: Author[P] | None = None
) -> Routed:
    """Read a request. Nothing but the person's own text is read.

    Args:
        request: The request as it was typed.
        known: The names of jobs and groups.
        state: What the conversation is about.
        now: Seconds since the epoch.
        author: The model, if one is available.

    Raises:
        Cancelled: The author was cancelled.
    """
    parsed = parse(request, known, state, now)
    by_rules = Routed(parsed, parsed.request, "rules")
    whole = parsed.request is not None and not parsed.unread
    if whole or parsed.refusal or author is None or not author.compact:
        return by_rules
    if len(request) > LONGEST_REQUEST:
        return by_rules
    found = _by_model(request, known, now, author)
    if not found:
        return by_rules
    best, by = found[0], f"model {author.name}"
    if best.chance >= SURE and best.whole and not isinstance(best.request, Order):
        return Routed(parsed._replace(unread=()), best.request, by)
    if parsed.request is not None:
        return by_rules  # it says which words it leaves out
    choices = tuple(meaning.request for meaning in found[:MAX_CHOICES])
    return Routed(parsed, None, by, choices)


def _by_model(request: str, known: Known, now: float, author: Author[P]) -> list[_Meaning]:
    """Return what the request may mean, the likeliest first, each once."""
    names = [name for name in known.jobs if name.strip() and name.casefold() in request.casefold()]
    text, values = masked(request, names)
    found: list[_Meaning] = []
    for way in _ways(plain(text), author):
        with suppress(ValueError):
            line = parse_route(way.text.strip().partition("\n")[0])
            meant = request_of(line, values, now)
            if meant is not None:
                used = " ".join(line.arguments.values())
                whole = all(f"{{{slot}}}" in used for slot in values)
                found.append(_Meaning(meant, way.chance, whole))
    return _merged(found)


def _merged(found: Iterable[_Meaning]) -> list[_Meaning]:
    merged: list[_Meaning] = []
    for meaning in found:
        before = sum(other.chance for other in merged if other.request == meaning.request)
        merged = [other for other in merged if other.request != meaning.request]
        merged.append(meaning._replace(chance=before + meaning.chance))
    return sorted(merged, key=lambda meaning: -meaning.chance)


def _ways(text: str, author: Author[P]) -> Sequence[Continuation]:
    try:
        return author.continuations(author.begin(SYSTEM, text), WAYS)
    except ValueError:
        return []  # its output is not finite
