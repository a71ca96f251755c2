"""Describe queries and orders in words, and ask which of several a request means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from gpudeck.assistant.facts import phrases
from gpudeck.assistant.query.request import COST, NEWEST, Order, Query, Request, Target
from gpudeck.assistant.query.table import AGGREGATES, SUBJECTS, VERBS
from gpudeck.language.words import Words
from gpudeck.scheduler.protocol.job_options import JOB_OPTIONS

MAX_CHOICES = 3
_LONGEST = 100
"""Characters of a choice, which may have a long command."""


class Choice(msgspec.Struct, frozen=True):
    """Offer one of the requests that a person may mean."""

    words: str
    """A line of plain text for the person."""
    request: Request | None = None
    """None in conversations that were saved by an older version."""


def distinct_choices(requests: Iterable[Request], said: Words) -> tuple[Choice, ...]:
    """Return a choice for each request whose description differs, in order."""
    described = {phrases.plain(describe(one, said), _LONGEST): one for one in requests}
    return tuple(Choice(text, request) for text, request in described.items())


def clarifying_question(choices: Sequence[Choice], said: Words) -> str:
    """Return the question which of the choices is meant, numbered, as Markdown."""
    listed = (
        f"{number}. {phrases.escaped(choice.words, 300)}"
        for number, choice in enumerate(choices, 1)
    )
    return "\n".join(
        [
            said.text("I am not sure what you mean. Did you mean:"),
            "",
            *listed,
            "",
            said.text("Choose one, or rephrase your request."),
        ]
    )


def choice_by_number(choices: Sequence[Choice], answer: str) -> Choice | None:
    """Return the choice whose number was typed, or None."""
    return next(
        (
            choice
            for number, choice in enumerate(choices, 1)
            if answer.strip().rstrip(".") == str(number)
        ),
        None,
    )


def describe(request: Request, said: Words) -> str:
    """Describe a query or an order in words, such as `Temperature, highest: GPU 3`."""
    if isinstance(request, Order):
        parts = [said.text(VERBS[request.verb].about), *_orders(request, said)]
        return ": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]
    return _query(request, said)


def _orders(order: Order, said: Words) -> list[str]:
    parts = _targets(order.jobs, said)
    parts += [said.text(state) for state in order.states]
    parts += [f"GPU {index}" for index in order.devices]
    parts += [str(one) for one in (order.group, order.place, order.command, order.workload,
                                   order.number, order.setting, order.text) if one]  # fmt: skip
    said_of = order.options | order.changes
    return parts + [_option(name, value, said) for name, value in said_of.items()]


_LABELS = {option.name: option.label for option in JOB_OPTIONS} | {"until": "Until"}
_NO_AMOUNTS = frozenset({"yes", "more", "less"})


def _option(name: str, value: str, said: Words) -> str:
    """Describe an option with its value, such as `Time limit 4h`."""
    label = said.text(_LABELS[name]) if name in _LABELS else name
    return label if value in _NO_AMOUNTS else f"{label} {value}"


def _query(query: Query, said: Words) -> str:
    subject = SUBJECTS[query.subject]
    narrowed = query.subject == "jobs" and (query.jobs or query.states)
    shown = query.measure or ("state" if narrowed else "")
    measure = subject.measures.get(shown)
    first = said.text(measure.title if measure is not None else subject.about)
    cost = COST in (query.text, query.to)
    first = said.text("Cost") if cost else first
    parts = [said.text(AGGREGATES[query.aggregate])] if query.aggregate else []
    parts += [f"GPU {index}" for index in query.devices] + _targets(query.jobs, said)
    named = bool(query.text) and not cost and query.subject != "attention"
    parts += [said.text(state) for state in query.states] + [query.text] * named
    parts += [query.model] * bool(query.model) + [query.user] * bool(query.user)
    if query.time is not None and query.time.point:
        parts.append(said.point(query.time.since))
    elif query.time is not None:
        parts.append(said.span(query.time.since, query.time.until, query.time.until))
    return f"{first}: {', '.join(parts)}" if parts else first


def _targets(jobs: Sequence[Target], said: Words) -> list[str]:
    return [said.text("the newest job") if job == NEWEST else f"job {job}" for job in jobs]
