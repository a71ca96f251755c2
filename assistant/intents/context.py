"""Fit a reading to the conversation, and refuse what it would make of words that it lost.

It judges what both the rules and the router read, so that neither takes `the job that it waits
for` for the job itself, nor `all but the oom` behind a list for all jobs of the queue.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

import msgspec

from gpudeck.assistant.intents.orders import OrderReading, read_new_job
from gpudeck.assistant.intents.spots import JOINS, Spots
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import unaccented, unit_of
from gpudeck.assistant.language.guides import guide_of
from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.query.request import COST, Order, Query, Request
from gpudeck.assistant.query.table import SUBJECTS, VERBS

_END = r"(?:,? (?:please|now|then|instead|too|bitte|auch|dann|stp|por favor))?[\s.!?]*$"
_AWAITED = re.compile(
    r"(?:\b(?:the (?:one|job|task|run)|what|whatever) (?:that |which )?"
    r"(?!(?:that|which|who)\b)(?P<en>[\w.-]+)(?: is waiting| waits|'s waiting| depends| is blocked)"
    r" (?:for|on|by)"
    r"|\b(?:auf (?:den|die|das|welchen|welche|welches)|worauf) (?P<de>[\w.-]+)(?: \w+)? wartet"
    r"|\bvon (?:dem|der|welchem) (?P<de2>[\w.-]+) abhangt"
    r"|\b(?:celui|celle|job|tache|ce) (?:qu'|que )(?P<fr>[\w.-]+) attend"
    r"|\bdont (?P<fr2>[\w.-]+) depend"
    r"|\b(?:al|por el|por la|a la|del|de la) que (?P<es>el |ella |ese )?(?:esta )?"
    r"(?:espera|esperando|depende))" + _END
)
"""A job is described as that for which another one waits."""
_PRONOUNS = frozenset({"it", "he", "she", "this", "that", "er", "sie", "es", "der", "die", "das",
                       "dieser", "il", "elle", "celui-ci", "el", "ella", "ese", ""})  # fmt: skip
_AS_ROOT = re.compile(r"(?<![\w.-])(?:sudo|doas|pkexec|su)(?!\w)")
_COST = re.compile(
    r"\b(?:costs?|costing|kostet|kosten|stromkosten|coutent?|coute|couts?|cuestan?|costado|bill)\b"
)
_PRICE = re.compile(
    r"(\d+(?:[.,]\d+)?)\s?(ct|cents?|centimes?|centimos?)?\s?(?:€|eur|euros?|dollars?|\$)?\s?"
    r"(?:a|an|per|/|pro|je|le|par|por|el|each|for each)?\s?kwh"
)
"""The price of a kWh, in units of the currency or hundredths of it."""
_PAIR = 2
MOST_NAMED = 3
"""Jobs among which a person is asked to choose."""
_INTO = frozenset({"in", "into", "as", "en", "als"})
_FIRST = frozenset({"first", "ersten", "premiers", "premieres", "primeros", "primeras"})
_LAST = frozenset({"last", "letzten", "derniers", "dernieres", "ultimos", "ultimas"})


class Fitted(NamedTuple):
    """Hold what a request asks for, or why it asks for nothing."""

    request: Request | None
    refusal: str = ""
    """`cannot` or `unclear`."""
    problem: OrderReading | None = None
    resolved: tuple[str, ...] | None = None
    """What its pronouns stand for, if that is something else than was read."""


def fitted(asked: Request, spots: Spots, state: State) -> Fitted:
    """Return a request as the conversation and its own words make it."""
    if isinstance(asked, Query) and asked.subject == "manual":
        return Fitted(_about(asked, spots))
    if isinstance(asked, Query) and asked.subject == "capacity":
        return Fitted(_for_jobs(_times_that(asked, spots, state), spots))
    if isinstance(asked, Query):
        return _in_unit(_of_devices(_with_cost(asked, spots), spots, state), spots)
    text = unaccented(spots.request.casefold().replace("’", "'"))
    if asked.then is not None:
        plain = "submit" not in (asked.verb, asked.then.verb) and not _AWAITED.search(text)
        return Fitted(asked) if plain else Fitted(None, "unclear")
    if asked.verb == "submit":
        return _new_job(asked, spots, text)
    awaited = _AWAITED.search(text)
    if awaited is not None and asked.verb in VERBS:
        return _awaited(asked, spots, state, awaited)
    if listed := _rest_of_list(asked, spots, state):
        return listed
    return _several(asked, spots, state) or Fitted(asked)


def _about(asked: Query, spots: Spots) -> Query:
    """Return a question to the manual with its guide, or with its words to search for."""
    if asked.measure or asked.text:
        return asked
    name = guide_of(frozenset(unaccented(token.norm) for token in spots.tokens))
    measure = f"how {name}" if name else ""
    return msgspec.structs.replace(asked, measure=measure, text=spots.request.strip())


def _times_that(asked: Query, spots: Spots, state: State) -> Query:
    """Return a question of capacity for several of what was asked about: `and two of them?`."""
    numbers = [token.value for token in spots.tokens if token.kind == "number"]
    last = state.last
    if last is None or last.subject != "capacity" or not last.amount or len(numbers) != 1:
        return asked
    if spots.find("pron", "them") is None or asked.amount != numbers[0] * 1e9:
        return asked
    return msgspec.structs.replace(asked, amount=numbers[0] * last.amount)


def _for_jobs(asked: Query, spots: Spots) -> Query:
    """Return a question of capacity for as many jobs as it counts: `room for two 20 GB jobs`."""
    jobs = next((spot for spot in spots.spots if spot.means("noun", "job")), None)
    if jobs is None:
        return asked
    before = spots.tokens[max(jobs.first - 2, 0) : jobs.first]
    while before and before[-1].kind == "quantity":
        before = before[:-1]
    counted = before[-1] if before and before[-1].kind == "number" else None
    if counted is None or counted.value < _PAIR or counted.value != int(counted.value):
        return asked
    count = int(counted.value)
    gpus = spots.counts.get("device", 0) if asked.gpus == count else asked.gpus
    return msgspec.structs.replace(asked, limit=count, gpus=gpus)


def _of_devices(asked: Query, spots: Spots, state: State) -> Fitted:
    """Return a question about the devices that it is about, if it names none itself."""
    if asked.other is not None and len(asked.devices) == _PAIR and asked.subject == "devices":
        first, second = asked.devices  # "what about 1 and 6?" after a comparison of two others
        other = msgspec.structs.replace(asked.other, devices=(second,))
        return Fitted(msgspec.structs.replace(asked, devices=(first,), other=other))
    last, named = state.last, any(token.kind in ("number", "range") for token in spots.tokens)
    if asked.subject != "devices" or last is None or named or asked.devices != state.devices:
        return Fitted(asked)
    best = asked.extreme or (last.extreme and asked.aggregate in ("max", "min"))
    if best and not last.devices and asked.time is None:  # "and the highest?" is about all again
        return Fitted(msgspec.structs.replace(asked, devices=(), extreme=True), resolved=())
    sums = asked.aggregate in ("sum", "mean") and asked.time is None
    if sums and len(asked.devices) == 1 and state.earlier:
        both = (*state.earlier, *asked.devices)
        changed = msgspec.structs.replace(asked, devices=both)
        return Fitted(changed, resolved=tuple(f"GPU {index}" for index in both))
    return Fitted(asked)


def _with_cost(asked: Query, spots: Spots) -> Query:
    """Return a question about energy or power as one about its cost, if that is asked for."""
    text = unaccented(spots.request.casefold())
    if asked.subject != "devices" or asked.measure not in ("energy", "power"):
        return asked
    if asked.text != COST and _COST.search(text) is None:
        return asked
    price = _PRICE.search(text)
    amount = float(price[1].replace(",", ".")) if price is not None else 0.0
    amount /= 100 if price is not None and price[2] else 1
    return msgspec.structs.replace(
        asked, measure="energy", text=COST, amount=amount, aggregate=asked.aggregate or "sum"
    )


def _in_unit(fit: Fitted, spots: Spots) -> Fitted:
    """Return a question about a measure of devices with the unit that is asked for."""
    asked = fit.request
    if not isinstance(asked, Query) or asked.subject != "devices" or asked.to:
        return fit
    field = SUBJECTS["devices"].measures.get(asked.measure)
    for before, token in itertools.pairwise(spots.tokens):
        unit = unit_of(unaccented(token.norm)) if token.kind == "word" else ""
        fits = field is not None and unit and kind_of(unit) == kind_of(field.unit)
        if field is not None and fits and unit != field.unit and before.norm in _INTO:
            return fit._replace(request=msgspec.structs.replace(asked, to=unit))
    return fit


def other_units(asked: Query, spots: Spots) -> tuple[Query, ...]:
    """Return the same question in the second unit of `in MiB and in GB`."""
    field = SUBJECTS["devices"].measures.get(asked.measure)
    if not asked.to or field is None or asked.subject != "devices":
        return ()
    named: list[str] = []
    for before, token in itertools.pairwise(spots.tokens):
        unit = unit_of(unaccented(token.norm)) if token.kind == "word" else ""
        if kind_of(unit) == kind_of(field.unit) and (before.norm in _INTO or (
            named and before.norm in JOINS
        )):  # fmt: skip
            named.append(unit)
    others = [unit for unit in dict.fromkeys(named) if unit != asked.to]
    return tuple(msgspec.structs.replace(asked, to=unit) for unit in others)


def _new_job(asked: Order, spots: Spots, text: str) -> Fitted:
    """Refuse a command as root, and an order with a word that has no place in it."""
    if _AS_ROOT.search(text):
        return Fitted(None, "cannot")
    if not (asked.command or asked.workload):
        return Fitted(asked)
    found = read_new_job(spots, asked.command.split(maxsplit=1)[0] if asked.command else "")
    if isinstance(found, OrderReading):
        return Fitted(None, problem=found)
    return Fitted(found)


def _awaited(asked: Order, spots: Spots, state: State, found: re.Match[str]) -> Fitted:
    """Return the order for the jobs that its job waits for."""
    waiter = next((word.strip() for word in found.groups() if word), "")
    named = waiter not in _PRONOUNS
    spoken = state.jobs if state.about == "job" and len(state.jobs) == 1 and not named else ()
    jobs = asked.jobs or spoken
    if not jobs or (bool(spots.targets["job"]) and not named):
        return Fitted(None, "unclear")  # "job 9, for which it waits": which of both is meant?
    return Fitted(msgspec.structs.replace(asked, jobs=jobs, states=(), one=False, awaited=True))


def which_of(asked: Request, spots: Spots, state: State) -> tuple[Request, ...]:
    """Return an order for each job that `it` may stand for, if several were spoken of."""
    several = isinstance(asked, Order) and state.about == "job" and len(state.jobs) > 1
    if not several or spots.find("pron", "it") is None or spots.find("pron", "them") is not None:
        return ()
    if spots.targets["job"] or spots.find("ordinal") or not set(asked.jobs) & set(state.jobs):
        return ()
    return tuple(msgspec.structs.replace(asked, jobs=(job,)) for job in state.jobs[:MOST_NAMED])


def _rest_of_list(asked: Order, spots: Spots, state: State) -> Fitted | None:
    """Read `all but the oom` behind a list of jobs as the others of this list."""
    whole = not asked.jobs and not asked.group and asked.exclude and not asked.take
    says_which = spots.find("noun") is not None or spots.find("state") is not None
    if not whole or says_which or len(state.jobs) < 2 or state.about != "job":
        return None
    others = tuple(job for job in state.jobs if job not in asked.exclude)
    order = msgspec.structs.replace(asked, jobs=others, states=())
    return Fitted(order, resolved=tuple(f"job {job}" for job in others))


def _several(asked: Order, spots: Spots, state: State) -> Fitted | None:
    """Read `the first two` behind a list of jobs as two jobs of it."""
    count = _ordinal_count(spots)
    if not count or spots.find("noun") is not None or spots.targets["job"]:
        return None
    if asked.group or asked.states or asked.take or asked.leave or state.about != "job":
        return None
    if abs(count) > len(state.jobs):
        return Fitted(None, "unclear")
    jobs = state.jobs[:count] if count > 0 else state.jobs[count:]
    named = tuple(f"job {job}" for job in jobs)
    return Fitted(msgspec.structs.replace(asked, jobs=jobs, one=False), resolved=named)


def _ordinal_count(spots: Spots) -> int:
    """Return 2 for `the first two` and `les deux premiers`, -2 for the last two; else 0."""
    tokens = spots.tokens
    for i, token in enumerate(tokens):
        said = {token.norm, unaccented(token.text.casefold())}
        sign = 1 if said & _FIRST else -1 if said & _LAST else 0
        near = [tokens[n] for n in (i - 1, i + 1) if 0 <= n < len(tokens)]
        value = next((one.value for one in near if one.kind == "number"), 0.0)
        if sign and value >= 2:
            return sign * int(value)
    return 0
