"""Decide between the two readers of a request: the rules with the small router, and the encoder.

Where they agree, the first one's reading stands, for it reads times, numbers and names to the
letter. An order is proposed only if both read it; if one of them alone does, the person chooses.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpudeck.assistant.intents.choices import MAX_CHOICES
from gpudeck.assistant.intents.composed import Composed, Unread, compose
from gpudeck.assistant.intents.spots import Known
from gpudeck.assistant.intents.state import State
from gpudeck.assistant.intents.submission import read_submission
from gpudeck.assistant.intents.times import read_time
from gpudeck.assistant.intents.tokens import tokens
from gpudeck.assistant.query.request import Order, Query, Request
from gpudeck.assistant.reader.labels import described
from gpudeck.assistant.reader.reading import Reading

_HEADS = {
    "devices": "ask gpus", "logs": "ask log_search", "debris": "ask disk", "manual": "manual",
    "report": "order report", "help": "talk abilities",
}  # fmt: skip
_VERBS = {"hold": "pause", "release": "resume", "priority": "edit"}
_NEAR = frozenset({
    frozenset({"ask overview", "order report"}), frozenset({"ask jobs", "ask queue"}),
    frozenset({"ask processes", "ask gpus"}), frozenset({"ask users", "ask jobs"}),
    frozenset({"ask disk", "order clean"}), frozenset({"ask overview", "ask jobs"}),
    frozenset({"ask overview", "ask gpus"}), frozenset({"ask jobs", "ask log_search"}),
    frozenset({"order cancel", "order kill"}), frozenset({"order edit", "order move"}),
    frozenset({"ask gpus", "ask conversion"}), frozenset({"ask gpus", "ask capacity"}),
    frozenset({"ask settings", "manual"}),  # the rules found the setting by its name
})  # fmt: skip
"""Heads that ask for the same in other words."""


def head_of(request: Request) -> str:
    """Return the head of a request, as the encoder names it."""
    if isinstance(request, Order):
        return f"order {_VERBS.get(request.verb, request.verb)}"
    return _HEADS.get(request.subject, f"ask {request.subject}")


def agrees(found: Reading, request: Request) -> bool:
    """Return whether the encoder reads a request as well."""
    head = head_of(request)
    if head == found.head or frozenset({head, found.head}) in _NEAR:
        return True
    return isinstance(request, Query) and any(head == other for other, chance in found.heads
                                              if chance > _SHARED)  # fmt: skip


def composed(found: Reading, text: str, known: Known, state: State, now: float) -> list[Composed]:
    """Return the requests that the encoder may have read, the likeliest first."""
    read: list[Composed] = []
    if found.head == "order submit":
        job = read_submission(text, known.jobs, now)
        order = Order("submit", command=job.command, options=job.options)
        return [Composed(order)] if job.command and not job.unread else []
    if _loses(found, text, known, now):
        return [Composed(Query("manual", text=text))] if found.head == "manual" else []
    for head, chance in found.heads:
        if chance < _LEAST or head.startswith("talk"):
            continue
        if head == "manual":
            read.append(Composed(Query("manual", text=text)))
            continue
        try:
            read.append(compose(found, head, known, state, now))
        except (Unread, ValueError, KeyError):
            continue
    return read[:MAX_CHOICES]


def _loses(found: Reading, text: str, known: Known, now: float) -> bool:
    """Return whether a number, a job's name or a time of the request is in none of its parts."""
    inside = {i for first, last in found.places for i in range(first, last)}
    names = "|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in known.jobs if name)
    values = re.finditer(rf"\d|{names}" if names else r"\d", text, re.IGNORECASE)
    if any(match.start() not in inside for match in values):
        return True
    timed = any(field in _TIMES for field, _ in found.spans)
    return not timed and read_time(tokens(text), now) is not None


def before(state: State) -> str:
    """Return the last request in the encoder's words."""
    last = state.order or state.last
    if last is None:
        return ""
    kind, _, name = head_of(last).partition(" ")
    meaning: dict[str, object] = {kind: name}
    if isinstance(last, Query) and last.measure and " " not in last.measure:
        meaning["measure"] = [_MEASURES.get((last.subject, last.measure), last.measure)]
    meaning |= {"jobs": 1} if state.jobs else {}
    meaning |= {"gpus": 1} if state.devices else {}
    return described(meaning)


SURE = 0.8
"""From this probability on a question is answered as the encoder alone reads it."""
CERTAIN = 0.9
"""Below this probability an answer says what was understood."""
_SHARED = 0.15
"""From this probability on the encoder reads a request, too."""
_LEAST = 0.1
"""A head below this probability is no choice."""
LIKELY = 0.4
"""From this probability on a reading that the encoder does not share is no choice."""
ELSEWHERE = frozenset({"serve", "unserve", "download", "export", "open", "free", "unbook", "notify",
                       "message", "account", "file", "shutdown", "other"})  # fmt: skip
"""Orders that are refused with the command that does them; GPUs that are named can be freed."""

_TIMES = frozenset({"time", "time2", "ahead", "begin", "from", "until", "at", "duration"})
"""Fields whose letters name a time."""


class Vote(NamedTuple):
    """Hold what both readers together make of a request."""

    request: Request | None = None
    also: tuple[Query, ...] = ()
    resolved: tuple[str, ...] = ()
    choices: tuple[Request, ...] = ()
    refusal: str = ""
    guessed: bool = False


def decide(
    found: Reading,
    first: Request | None,
    text: str,
    known: Known,
    state: State,
    now: float,
    whole: bool = False,
) -> Vote | None:
    """Return what the encoder makes of a request, or None if the first reading stands.

    Args:
        found: The encoder's reading.
        first: The reading of the rules and the router; None if there is none.
        text: The request.
        known: The names of jobs and groups.
        state: What the conversation is about.
        now: Seconds since the epoch.
        whole: The rules gave every word of the request its place in the first reading.
    """
    if first is not None and agrees(found, first):
        return None
    kind, _, name = found.head.partition(" ")
    if whole and (found.chance < CERTAIN or (isinstance(first, Order) and kind == "order")):
        return None
    sure, likely = found.chance >= SURE, found.chance >= LIKELY
    clear = sure or (likely and first is None)
    read = composed(found, text, known, state, now)
    frees = any(isinstance(one.request, Order) and one.request.verb == "free" for one in read)
    if clear and (kind == "talk" or (kind == "order" and name in ELSEWHERE and not frees)):
        return Vote(refusal=found.head)
    if clear and kind == "manual":
        return Vote(Query("manual", text=text))
    best = read[0] if read else None
    same = best is not None and head_of(best.request) == found.head
    if sure and same and best is not None and isinstance(best.request, Query):
        return Vote(best.request, best.also, best.resolved, guessed=found.chance < CERTAIN)
    offered = [one.request for one in read]
    if first is not None and not likely:
        offered.insert(1, first)
    once = [one for i, one in enumerate(offered) if one not in offered[:i]]
    return Vote(choices=tuple(once[:MAX_CHOICES])) if once else None


_MEASURES = {
    ("devices", "temp"): "temperature", ("devices", "mem_used"): "memory_used",
    ("devices", "mem_free"): "memory_free", ("devices", "tflops"): "rate",
    ("jobs", "reason"): "why_waiting", ("jobs", "failure"): "why_failed",
    ("jobs", "estimate"): "time_left", ("jobs", "log"): "output",
}  # fmt: skip
