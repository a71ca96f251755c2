"""Read a request: by rules, and by the router model what the rules do not read whole.

The rules account for every word, so they come first. What only the model reads is answered if the
model is sure and has used every number, name and time of the request; an order is always proposed
on a card, never carried out. Otherwise the person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from gpudeck.assistant.intents.choices import MAX_CHOICES
from gpudeck.assistant.intents.context import fitted, other_units, which_of
from gpudeck.assistant.intents.corrections import corrected, taken_back
from gpudeck.assistant.intents.later import read_later
from gpudeck.assistant.intents.meanings import Meant, Unclear, described, meant
from gpudeck.assistant.intents.parser import LONGEST_REQUEST, Parsed, parse
from gpudeck.assistant.intents.slots import MOST, Slots, slotted
from gpudeck.assistant.intents.spots import Known, Spots
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import unaccented
from gpudeck.assistant.intents.vote import before, decide
from gpudeck.assistant.query.request import PREVIOUS, Order, Query, Request
from gpudeck.assistant.query.table import check
from gpudeck.assistant.reader.reading import Reader
from gpudeck.assistant.router.decode import Meaning, Router
from gpudeck.assistant.router.symbols import AND, canonical
from gpudeck.language.languages import Language
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError

SURE = 0.5
"""A reading with at least this probability is answered without asking back.

Measured in tests/benchmarks/LOG.md.
"""
SURER = 0.75
"""From this probability on it is also preferred to a reading of the rules."""
DOUBT = 0.5
"""From this probability on another reading than that of the rules makes the person choose."""
AGREED = 0.3
"""From this probability on the model confirms a whole reading of the rules that is not its best."""
ALONE = 0.4
"""From this probability on a question is answered without asking back if it can only mean that."""
CERTAIN = 0.8
"""Below this probability an answer says what was understood."""
SURE_ORDER = 0.8
"""The same for orders, whose cards a person reads before anything is done."""
_LIKELY = 0.1
"""A reading below this probability is not offered as a choice."""


_FINAL = frozenset({"time", "command"})
"""Refusals that stand: what shall be done later is no question about the past."""
_STANDS = frozenset({"notify", "forbidden", "negated", "condition"})
"""Refusals that nobody overrules: what they guard against must never be proposed."""
_SECRET = re.compile(
    r"\b(?:password|passwd|passwort|mot de passe|contrasena|ssh key|private key)s?\b"
    r"|(?<![\w.])/etc/(?:shadow|passwd)"
)
"""What is never read or told."""


class Routed(NamedTuple):
    """Hold what a request asks for, and how sure that is."""

    parsed: Parsed
    request: Request | None
    """None if nothing was understood, or the request is refused."""
    by: str
    """Who read it: `rules` or `model NAME`."""
    choices: tuple[Request, ...] = ()
    """What the person may choose from, the likeliest first; empty if the request is clear."""
    refusal: str = ""
    """Why the model reads no request in it: `negated`, `condition`, `cannot` or `unclear`."""
    plan: bool = False
    """The effect of the order is asked for; it is not to be proposed."""
    guessed: bool = False
    """The model is not quite sure, so the answer says what was understood."""


class _Reading(NamedTuple):
    meant: Meant
    chance: float
    whole: bool
    """It uses every number, name and time of the request, and no word forbids it."""


@cache
def shipped_router() -> Router:
    """Return the router model that ships with the program."""
    return Router.load(paths.router_model())


def route(
    request: str,
    known: Known,
    state: State,
    now: float,
    model: Router | None = None,
    reader: Reader | None = None,
) -> Routed:
    """Read a request. Nothing but the person's own text is read.

    Args:
        request: The request as it was typed.
        known: The names of jobs and groups.
        state: What the conversation is about.
        now: Seconds since the epoch.
        model: The router model; None for the rules alone.
        reader: The encoder with its heads; None to ask nobody else.
    """
    found = _read(request, known, state, now, model)
    refused = found.parsed.refusal
    firm = found.parsed.exact or found.plan or found.refusal in _STANDS
    firm = firm or (refused is not None and refused.problem in (*_FINAL, "forbidden", "condition"))
    if reader is None or firm or not request.strip() or len(request) > LONGEST_REQUEST:
        return found
    reading = reader.read(request, before(state))
    if refused is not None and (reading.head.startswith("order") or reading.chance < SURER):
        return found
    whole = found.by == "rules" and not found.parsed.unread and found.request is not None
    vote = decide(reading, found.request, request, known, state, now, whole)
    if vote is None:
        return found
    parsed = found.parsed._replace(
        request=vote.request, unread=(), refusal=None, resolved=vote.resolved, also=vote.also
    )
    by = "model request-reader"
    return Routed(parsed, vote.request, by, vote.choices, vote.refusal, guessed=vote.guessed)


def _read(request: str, known: Known, state: State, now: float, model: Router | None) -> Routed:
    if taken_back(request, known, state, now):
        language = parse(request, known, state, now).language
        return Routed(Parsed(None, language), None, "rules", refusal="negated")
    if (later := read_later(request, now)) is not None:
        return _of_later(later, parse(request, known, state, now).language)
    said = corrected(request, known, state, now)
    found = _routed(said, known, state, now, model)
    if said != request:
        found = found._replace(parsed=found.parsed._replace(exact=False))  # it shows its card
        request = said
    if found.plan and isinstance(found.request, Order):
        order = _supposed(found.request, Spots(request, known, now), known)
        found = found._replace(parsed=found.parsed._replace(request=order), request=order)
    if found.choices:
        fits = [fitted(one, Spots(request, known, now), state).request for one in found.choices]
        kept = tuple(one for i, one in enumerate(fits) if one is not None and one not in fits[:i])
        looked_up = next((one for one in kept if isinstance(one, Order) and one.awaited), None)
        if looked_up is None:
            return found._replace(choices=kept)
        read = found.parsed._replace(request=looked_up, unread=(), refusal=None, exact=False)
        return found._replace(parsed=read, request=looked_up, choices=())
    if found.request is None:
        return found
    fit = fitted(found.request, Spots(request, known, now), state)
    if fit.request is not None and (
        each := which_of(fit.request, Spots(request, known, now), state)
    ):
        return found._replace(request=None, choices=each)
    if isinstance(fit.request, Query) and (
        more := other_units(fit.request, Spots(request, known, now))
    ):
        found = found._replace(parsed=found.parsed._replace(also=(*found.parsed.also, *more)))
    if fit.request == found.request:
        return found
    resolved = found.parsed.resolved if fit.resolved is None else fit.resolved
    parsed = found.parsed._replace(
        request=fit.request, refusal=fit.problem, resolved=resolved, exact=False
    )
    guessed = found.guessed and not isinstance(fit.request, Order)  # the card says what it is for
    return found._replace(parsed=parsed, request=fit.request, refusal=fit.refusal, guessed=guessed)


def _of_later(later: Order | str, language: Language) -> Routed:
    """Return a booking, or the refusal to tell of something later."""
    if isinstance(later, Order):
        return Routed(Parsed(later, language), later, "rules")
    return Routed(Parsed(None, language), None, "rules", refusal="notify")


def _supposed(order: Order, spots: Spots, known: Known) -> Order:
    """Return an order that is only supposed, for the jobs behind `if`: `if i killed bench`."""
    cond = spots.find("cond")
    said = {token.norm for token in spots.tokens[cond.last + 1 :]} if cond is not None else set()
    behind = tuple(dict.fromkeys(name for name in known.jobs if name.casefold() in said))
    if not behind or not order.jobs or set(behind) & set(order.jobs):
        return order
    return replace(order, jobs=behind)


def _routed(request: str, known: Known, state: State, now: float, model: Router | None) -> Routed:
    parsed = parse(request, known, state, now)
    by_rules = Routed(parsed, parsed.request, "rules")
    later = parsed.refusal is not None and parsed.refusal.problem in _FINAL
    too_long = not request.strip() or len(request) > LONGEST_REQUEST
    if parsed.exact or model is None or later or too_long:
        return by_rules
    if _SECRET.search(unaccented(request.casefold())):
        return Routed(parsed._replace(request=None), None, "rules", refusal="forbidden")
    found = _by_model(request, known, state, now, model)
    if not found:
        return by_rules
    best, by = found[0], f"model {model.name}"
    least = SURE
    if parsed.request is not None and not parsed.unread:
        least = SURER
        if _keeps_more(parsed, best.meant):
            return by_rules
    if best.meant.requests == (by_rules.request, *parsed.also) and not best.meant.plan:
        return Routed(
            parsed._replace(unread=_owners(parsed, request, known, now)), by_rules.request, "rules"
        )
    if least == SURER and any(
        one.chance >= AGREED and one.meant.requests == (by_rules.request, *parsed.also)
        for one in found
    ):
        return by_rules
    if best.chance >= least and best.whole and (routed := _sure(parsed, best, by)) is not None:
        return routed
    if parsed.refusal is not None or (least == SURER and best.chance < DOUBT):
        return by_rules
    likely = [
        one
        for one in found
        if one.chance >= _LIKELY and one.whole and one.meant.requests and not one.meant.plan
    ]
    read = [one.meant.requests[0] for one in likely]
    if parsed.request is not None:
        read.insert(1 if parsed.unread else 0, parsed.request)
    choices = tuple(one for i, one in enumerate(read) if one not in read[:i])[:MAX_CHOICES]
    if parsed.request is not None and len(choices) == 1:
        return by_rules  # it says which words it leaves out
    alone = len(choices) == 1 and isinstance(choices[0], Query) and likely[0].chance >= ALONE
    if alone and (routed := _sure(parsed, likely[0], by)) is not None:
        return routed
    return Routed(parsed, None, by, choices)


def _owners(parsed: Parsed, request: str, known: Known, now: float) -> tuple[str, ...]:
    """Return the words that were not read and may name a user."""
    spots = Spots(request, known, now)
    owners = {spots.tokens[i].text for i in spots.person.doubtful}
    return tuple(word for word in parsed.unread if word in owners)


_LEARNT = frozenset({"devices", "jobs", "processes", "alerts", "queue", "capacity", "settings",
                     "models", "manual", "logs", "conversion", "overview", "debris", "report",
                     "help"})  # fmt: skip
"""Subjects that the model was taught."""
_NOT_LEARNT = frozenset({"user", "gpu_hours"})
"""Measures that it was not taught."""
_LOST = ("time", "where", "limit", "text", "group", "amount", "gpus", "to", "user", "by")
"""Fields of queries that the model sometimes leaves out."""


def _keeps_more(parsed: Parsed, said: Meant) -> bool:
    """Return whether a whole reading of the rules has what the model's lacks."""
    ours, theirs = parsed.request, said.requests[0] if said.requests else None
    if isinstance(ours, Order):
        named = isinstance(theirs, Order) and theirs.group and ours.jobs == (theirs.group,)
        return not (named or (parsed.resolved and isinstance(theirs, Order)))
    assert ours is not None
    if (parsed.resolved and theirs is not None) or (
        ours.other is not None and (ours.other.time or ours.other.text == PREVIOUS)
    ):
        return True  # the rules resolve pronouns, and the model compares no times and no runs
    if (
        ours.subject not in _LEARNT
        or ours.measure in _NOT_LEARNT
        or (ours.measure == "reason" and isinstance(theirs, Order))
    ):
        return True  # "de qué depende eval" is no order
    if not isinstance(theirs, Query) or ours.subject in ("manual", "logs"):
        return False
    if theirs.subject == "settings" and ours.subject == "devices":
        return True  # "is it idle?" names no setting
    return any(getattr(ours, name) and not getattr(theirs, name) for name in _LOST)


def _sure(parsed: Parsed, best: _Reading, by: str) -> Routed | None:
    """Return what a sure reading asks for; None if it is an order that is not sure enough."""
    said, (refusal, plan) = best.meant, (best.meant.refusal, best.meant.plan)
    if refusal:
        kept = parsed if parsed.refusal is not None else parsed._replace(request=None)
        return Routed(kept, None, by, refusal=refusal)
    first = said.requests[0]
    if isinstance(first, Order) and not plan and best.chance < SURE_ORDER:
        return None
    also = tuple(q for q in said.requests[1:] if isinstance(q, Query) and q != first)
    read = parsed._replace(
        request=first, unread=(), refusal=None, resolved=said.resolved, exact=False, also=also
    )
    return Routed(read, first, by, plan=plan, guessed=best.chance < CERTAIN)


def _by_model(
    request: str, known: Known, state: State, now: float, model: Router
) -> list[_Reading]:
    """Return what the request may mean, the likeliest first."""
    before_it = state.last is not None and bool(state.last.devices or state.last.jobs)
    slots = slotted(request, known, now, before_it)
    if any(int(name[1:]) > MOST for name in slots.values):
        return []
    before = described(state.order or state.last, state)
    found: list[_Reading] = []
    for meaning in model.meanings(before, slots.text, list(slots.values)):
        with suppress(ValueError, UserError):
            found.append(_reading(meaning, slots, Spots(request, known, now), state, now))
    return _summed(found)


def _summed(found: Sequence[_Reading]) -> list[_Reading]:
    """Return readings without those that mean the same as another one, the likeliest first."""
    kept: list[_Reading] = []
    for one in found:
        asked = one.meant.requests
        once = tuple(request for i, request in enumerate(asked) if request not in asked[:i])
        said = one.meant._replace(requests=once)
        same = next((i for i, other in enumerate(kept) if other.meant == said), None)
        if same is None:
            kept.append(one._replace(meant=said))
        else:
            kept[same] = kept[same]._replace(chance=kept[same].chance + one.chance)
    return sorted(kept, key=lambda one: -one.chance)


def _reading(meaning: Meaning, slots: Slots, spots: Spots, state: State, now: float) -> _Reading:
    """Return a meaning with its request. Raises ValueError and UserError for what cannot be."""
    text = _timed(meaning.text, slots)
    try:
        said = meant(text, slots.values, state, now)
    except Unclear:
        return _Reading(Meant(refusal="unclear"), meaning.chance, True)
    for one in said.requests:
        if isinstance(one, Query):
            check(one)
    if not all(_about_the_person(one, spots) for one in said.requests):
        return _Reading(said, meaning.chance, False)
    symbols = text.split()
    whole = bool(said.refusal) or said.plan or _manual(said.requests)
    if said.requests and isinstance(said.requests[0], Order) and not said.plan:
        corrected = state.order is not None and "prev" in symbols and (
            "exc:" in symbols or state.order.verb != said.requests[0].verb
        )  # fmt: skip
        whole = set(slots.values) <= set(symbols) and _allowed(symbols, spots, corrected)
    elif not whole:
        whole = set(slots.values) - slots.counts <= set(symbols)
    return _Reading(said, meaning.chance, whole)


def _about_the_person(request: Request, spots: Spots) -> bool:
    """Return whether a request is about the user who is named, and about GPU hours if asked."""
    if spots.find("measure", "gpu_hours"):
        return isinstance(request, Query) and request.measure == "gpu_hours"
    if not spots.person.name:
        return True
    return isinstance(request, Query) and request.user == spots.person.name


def _timed(meaning: str, slots: Slots) -> str:
    """Return a meaning with the time of the request, if that alone was left out."""
    symbols = meaning.split()
    left_out = set(slots.values) - slots.counts - set(symbols)
    timed = any(part in symbols for part in ("time:", "since", AND)) or "ahead=" in meaning
    if left_out != {"t1"} or timed or symbols[0] not in _OVER_TIME:
        return meaning
    return canonical(f"{meaning} time: t1")


_OVER_TIME = frozenset({"devices", "jobs", "alerts", "overview"})
"""Subjects that can be asked about for a time."""


def _manual(requests: Sequence[Request]) -> bool:
    """Return whether the manual is asked, which knows of no numbers and names."""
    return any(isinstance(one, Query) and one.subject == "manual" for one in requests)


_LATER = frozenset({
    "once", "whenever", "later", "tomorrow", "tonight", "afterwards", "spater", "morgen", "sobald",
    "demain", "manana", "luego", "despues", "apres",
})  # fmt: skip
_UNTIL_TOLD = re.compile(
    r"\b(?:until (?:i |further notice)|bis ich |bis auf weiteres|jusqu'a (?:nouvel ordre|ce que je)"
    r"|hasta (?:que yo|nuevo aviso))"
)
"""A pause lasts until it is ended."""
_LACKING = re.compile(r"\w\s+no[\s-]+\w")
"""Jobs that lack something, as in `all jobs with no GPU`, which no order can name."""
_EXCEPTING = ("exc:", "notfirst:", "notlast:", "last:", "first:", "mem:")


def _allowed(symbols: Sequence[str], spots: Spots, corrected: bool) -> bool:
    """Return whether no word of the request forbids, excepts from or delays the order.

    Args:
        symbols: The meaning.
        spots: The words of the request.
        corrected: It corrects the last order, as `no, hold it instead` does.
    """
    if spots.time is not None or _LATER & {token.norm for token in spots.tokens}:
        return False
    if spots.find("measure", "priority") is not None and "do:priority" not in symbols:
        return False  # "release it, and set its priority to 3" are two orders
    if spots.find("noun", "group") and symbols[0] in ("do:pause", "do:resume") and len(symbols) < 2:
        return False  # a group that does not exist is not the whole queue
    whole_queue = symbols in (["do:pause"], ["do:resume"])
    if whole_queue and spots.find("pron") and not (spots.find("noun") or spots.find("all")):
        return False  # "reprends-la" is for a job
    warns = symbols[0] == "do:set"  # "tell me if it gets hotter than 80 degrees"
    stops = symbols == ["do:pause"]  # "freeze the queue, nothing new should start until i say so"
    told = stops and _UNTIL_TOLD.search(unaccented(spots.request.casefold())) is not None
    if spots.find("cond") is not None and not (corrected or warns or told):
        return False
    lacking = spots.find("not") is not None or _LACKING.search(spots.request.casefold())
    if lacking and not (corrected or stops):
        return False
    return spots.find("except") is None or any(kind in symbols for kind in _EXCEPTING)
