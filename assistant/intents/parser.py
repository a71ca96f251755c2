"""Read a request by rules: into a query or an order, with each word that it does not read.

Nothing is dropped: a word is part of the request's query or order, a known filler, or unread.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from gpudeck.assistant.intents.code_requests import read_code_request
from gpudeck.assistant.intents.exact import is_exact
from gpudeck.assistant.intents.orders import OrderReading, read_command, read_order
from gpudeck.assistant.intents.queries import read_query
from gpudeck.assistant.intents.reading import QueryReader, in_unit
from gpudeck.assistant.intents.spots import Known, Spot, Spots
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.tokens import unaccented
from gpudeck.assistant.query.conversion import kind_of
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.language.languages import Language

LONGEST_REQUEST = 2000
"""Characters; a longer text is not a request."""
_TIMES = frozenset(
    {"second", "seconds", "minute", "minutes", "hour", "hours", "day", "days", "week", "weeks",
     "month", "months", "yesterday", "tomorrow", "before", "ago", "since", "until", "earlier",
     "past", "morning", "evening", "night", "noon", "minuten", "stunde", "stunden", "tag", "tage",
     "woche", "wochen", "gestern", "vorher", "seit", "morgen", "abend", "nacht", "heure", "heures",
     "jour", "jours", "semaine", "hier", "avant", "depuis", "matin", "soir", "nuit", "hora",
     "horas", "dia", "dias", "semana", "ayer", "antes", "desde", "noche", "tarde"}
)  # fmt: skip
_JOINS = re.compile(
    r"(?i)\s+(?:and|und|et|y|sowie|plus|as well as|&)\s+(?:also |auch |aussi )?|[?;.]\s+"
)
_OPENS = re.compile(
    r"(?i)(?:what|which|who|how|when|why|is|are|do|does|did|has|have|can|was|wie|welche|wer|wann"
    r"|warum|wo|ist|sind|hat|kann|lauf|läuf|laeuf|quel|combien|qui|quand|pourquoi|est|sont|comment"
    r"|y a|qu|cu[aá]nt|qu[eé]|qui[eé]n|cu[aá]ndo|por qu|c[oó]mo|est[aá]|hay)"
)
"""How a question of its own begins."""
MOST_JOINS = 4
_ENDS = frozenset({"cancel", "hold", "pause", "resume", "release", "retry", "kill", "drain"})
"""Orders that are no words of questions about a time, as `run` and `start` are."""
_GB = 1e9
_CARRIED = frozenset({"and", "und", "et", "y"})


class Parsed(NamedTuple):
    """Hold what a request means."""

    request: Request | None
    language: Language
    unread: tuple[str, ...] = ()
    """Words that were not understood."""
    refusal: OrderReading | None = None
    """Why a request with the words of an order is none."""
    resolved: tuple[str, ...] = ()
    """What the request's pronouns stand for, such as `job 7`."""
    exact: bool = False
    """The request is, word by word, an exact form of its order."""
    changes: tuple[tuple[str, str], ...] = ()
    """Words that were read as others, as typed and as read."""
    also: tuple[Query, ...] = ()
    """Questions that are asked at once with `request`."""


def parse(request: str, known: Known, state: State, now: float) -> Parsed:
    """Read a request. Nothing but the person's own text is read, and names are only names."""
    if len(request) > LONGEST_REQUEST or not request.strip():
        return Parsed(None, state.language)
    if (code := read_code_request(request)) is not None:
        return Parsed(*code)
    whole = _parse_one(request, known, state, now)
    if isinstance(whole.request, Order):
        return whole
    several = _several(request, known, state, now, whole)
    return several or whole


def _several(request: str, known: Known, state: State, now: float, whole: Parsed) -> Parsed | None:
    """Return two questions that are asked at once, or None if the request is one."""
    read = whole.request is not None and not whole.unread
    for cut in list(_JOINS.finditer(request))[:MOST_JOINS]:
        left, right = request[: cut.start()], request[cut.end() :]
        if read and not (_OPENS.match(right) or cut[0].strip() in "?;."):
            continue
        first = _parse_one(left, known, state, now)
        if not isinstance(first.request, Query) or first.unread:
            continue
        second = _parse_one(right, known, _after(first.request, state), now)
        if not isinstance(second.request, Query) or second.unread:
            continue
        one, other = _sharing(first.request, second.request)
        if one != other and "help" not in (one.subject, other.subject):
            language = whole.language
            resolved = (*first.resolved, *second.resolved)
            changes = (*first.changes, *second.changes)
            return Parsed(one, language, (), None, resolved, False, changes, (other,))
    return None


def _after(query: Query, state: State) -> State:
    """Return what `it` stands for behind a question."""
    jobs = tuple(job for job in query.jobs if isinstance(job, int) and job >= 0)
    if not jobs and not query.devices:
        return state
    about = "job" if jobs else "device"
    return State(jobs, query.devices, about=about, language=state.language)


def _sharing(first: Query, second: Query) -> tuple[Query, Query]:
    """Return two questions about the same thing with the targets that only one of them names."""
    if first.subject != second.subject:
        return first, second
    shared: dict[str, object] = {}
    for name in ("devices", "jobs", "time"):
        values = (getattr(first, name), getattr(second, name))
        if bool(values[0]) != bool(values[1]):
            shared[name] = values[0] or values[1]
    return msgspec.structs.replace(first, **shared), msgspec.structs.replace(second, **shared)


def _parse_one(request: str, known: Known, state: State, now: float) -> Parsed:
    if not request.strip():
        return Parsed(None, state.language)
    spots = Spots(request, known, now)
    language = spots.language(state.language)
    found = read_command(spots) or read_order(spots, state)
    if found is not None:
        if found.order is None:
            asked = _question(Spots(request, known, now), state)
            later = found.problem == "time" and found.verb in _ENDS and not spots.question
            if not later and asked is not None and found.problem in ("unread", "time", "pronoun"):
                return Parsed(asked, language, changes=spots.changes)  # as in "free memory"
            return Parsed(None, language, found.words, found)
        exact = is_exact(request, found.order)
        return Parsed(found.order, language, (), None, found.resolved, exact, spots.changes)
    again = Spots(request, known, now)
    if state.last is not None and (state.last.devices or state.last.jobs):
        again.drop_bare_hour()  # "y la 4?" after a question about GPU 3
    near = again.find("neighbour")
    follow_up = _beside(again, near, state) if near is not None else _next_size(again, state)
    follow_up = follow_up or (_follow_up(again, state) if near is None else None)
    if follow_up is not None and not follow_up[1]:
        return Parsed(follow_up[0], language, resolved=follow_up[2])
    reader = QueryReader(spots, state)
    query, unread = read_query(reader), tuple(spots.unread())
    if (
        query is not None
        and query.time is None
        and _TIMES & set(map(unaccented, (word.casefold() for word in unread)))
    ):
        query = None  # no reading of the present stands for a time that is not understood
    if query is None and not unread and spots.tokens:
        query = Query("help")  # "thanks", "good morning"
    if query is not None and len(unread) > len(spots.used):
        query = None  # the few words that are read do not make a question of the many others
    if query is not None and spots.decisive():
        query = None  # without its bound or superlative it would be another question
    resolved = tuple(reader.resolved)
    return Parsed(query, language, unread, resolved=resolved, changes=spots.changes)


def _question(s: Spots, state: State) -> Query | None:
    """Return the question that each word of a request is a part of, if it is one."""
    query = read_query(QueryReader(s, state))
    return query if query is not None and not s.unread() else None


def _beside(s: Spots, near: Spot, state: State) -> tuple[Query, list[str], tuple[str, ...]] | None:
    """Return the last query about the job or the GPU before or after that of the last answer."""
    last, step = state.last, int(near.value("neighbour"))
    if last is None or s.find("noun") or s.find("measure"):
        return None
    s.use(near)
    if state.about == "job" and len(state.jobs) == 1 and state.jobs[0] + step > 0:
        query = msgspec.structs.replace(last, jobs=(state.jobs[0] + step,), states=())
        return query, s.unread(), (f"job {state.jobs[0]}",)
    if state.about == "device" and len(state.devices) == 1 and state.devices[0] + step >= 0:
        query = msgspec.structs.replace(last, devices=(state.devices[0] + step,))
        return query, s.unread(), (f"GPU {state.devices[0]}",)
    return None


def _next_size(s: Spots, state: State) -> tuple[Query, list[str], tuple[str, ...]] | None:
    """Return the last question about capacity for another size, as in `same for 60`."""
    last = state.last
    if last is None or last.subject != "capacity" or not last.amount or not s.tokens:
        return None
    opens = s.tokens[0].norm in _CARRIED or s.find("pron", "same") is not None
    loose = s.loose(("number", "quantity"))
    token = s.tokens[loose[0]] if len(loose) == 1 else None
    if token is None or not opens or any(s.targets.values()) or s.find("measure"):
        return None
    if token.unit and kind_of(token.unit) != "size":
        return None
    s.used.update(loose)
    s.has("pron")
    amount = in_unit(token, "B") if token.unit else token.value * _GB
    return msgspec.structs.replace(last, amount=amount), s.unread(), ("capacity",)


def _follow_up(s: Spots, state: State) -> tuple[Query, list[str], tuple[str, ...]] | None:
    """Return the last query about something else, as in `and gpu 5?` and `same for yesterday`."""
    last = state.last
    if last is None or not s.tokens:
        return None
    opens = s.tokens[0].norm in _CARRIED or s.find("pron", "same") is not None
    new = {noun for noun, targets in s.targets.items() if targets}
    loose = s.loose(("number",))
    other = [
        spot
        for spot in s.spots
        if not spot.means("filler") and not spot.means("noun") and not spot.means("pron", "same")
    ]
    extremes = [spot for spot in other if spot.means("super") or spot.means("agg")]
    aggregate = ""
    if extremes and last.measure and s.time is not None:
        aggregate = extremes[0].meanings[0].value.rpartition(" ")[2]
        for spot in extremes:
            s.use(spot)
        other = [spot for spot in other if spot not in extremes]
    short = not other and (bool(new) or s.time is not None or (opens and bool(loose)))
    measure = ""
    if opens and len(other) == 1 and other[0].means("measure"):
        measure, short = other[0].value("measure"), True
        s.use(other[0])
    if not short or not (opens or len(s.tokens) <= 5):
        return None
    changes: dict[str, object] = {"aggregate": aggregate} if aggregate else {}
    if measure:
        changes["measure"] = measure
    if "device" in new or (loose and last.devices):
        changes["devices"] = tuple(t for t in s.targets["device"] if isinstance(t, int)) or tuple(
            int(s.tokens[i].value) for i in loose
        )
    elif "job" in new or (loose and last.jobs):
        changes["jobs"] = tuple(s.targets["job"]) or tuple(int(s.tokens[i].value) for i in loose)
        changes["states"] = ()
    elif loose:
        return None
    s.used.update(loose)
    if (time := s.use_time()) is not None:
        changes["time"] = time.span
    s.has("noun")
    s.has("pron")
    if not changes or (last.subject == "devices" and "jobs" in changes):
        return None
    if last.subject in ("jobs", "report") and "devices" in changes:
        return None
    query = msgspec.structs.replace(last, **changes)
    said = [query.measure or query.subject]
    return query, s.unread(), tuple(said)
