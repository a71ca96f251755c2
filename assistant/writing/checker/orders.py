"""Check the order of jobs in the queue and of events in time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.amounts import require
from gpudeck.assistant.writing.checker.clauses import Clause, by_kind, last_owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.lengths import in_base_unit, is_within
from gpudeck.assistant.writing.checker.states import holds

_BEFORE = lexicon.words("before ahead")
_BEHIND = lexicon.words("behind after")
_ACTING = lexicon.words("ran run running took lasted waited waiting waits")
_STARTS = lexicon.words("started ran run running")
_ENDINGS = {
    w for w, s in lexicon.STATES.items() if s in ("done", "succeeded", "failed", "ended", "lost")
}
_EVENTS = {
    **dict.fromkeys(("done", "succeeded", "failed", "ended", "cancelled", "lost"), "ended"),
    **dict.fromkeys(("started", "running", "ran"), "began"),
}
"""The field of the moment at which a claimed state began."""
_WAITS = lexicon.words("waiting waits wait")
_FIRST, _RANKS = lexicon.words("first earliest"), lexicon.words("first earliest last latest")


def check_order(clause: Clause, of: Known) -> None:
    """Check `job 45 is before job 44` and `job 44 failed after job 45`. Raises Refused."""
    for place, text in clause.words():
        if text not in _BEFORE | _BEHIND and not _waits_for(clause, place):
            continue
        refused = f"it says {text!r}, which no fact says"
        pair = _pair(clause, place)
        if len(pair) < 2 or not all(pair):
            require(text != "behind", f"it says {text!r}, which cannot be checked")
            require(_is_in_order(clause, place), refused)
            continue
        events = _events(clause, place)
        if events is not None:
            sides = zip(events, pair, strict=True)
            moments = [[of.value(job, event) for job in jobs] for event, jobs in sides]
            require(_precede(*(moments if text in _BEFORE else moments[::-1])), refused)
            _check_gap(clause, place, moments)
        else:
            first, last = pair if text in _BEFORE else pair[::-1]
            require(_goes_first(first, last, of), refused)
            clause.state = clause.state or ("before", False)
        clause.used.add(place)


def _waits_for(clause: Clause, place: int) -> bool:
    """Return True for the `for` of `is waiting for job 8`."""
    value = [t.kind for t in clause.tokens[place + 2 : place + 3]] == ["value"]
    pair = [t.text for t in clause.tokens[max(0, place - 1) : place + 1]]
    return len(pair) == 2 and pair[0] in _WAITS and pair[1] == "for" and not value


def _pair(clause: Clause, place: int) -> list[frozenset[str]]:
    """Return the jobs on both sides of a place; `it` is the one that the clause before names."""
    left = [t.subjects for t in clause.tokens[:place] if t.kind == "subject"][-1:]
    if not left and clause.before is not None and clause.before.state is not None:
        left = [last_owners(clause.before).get("job", frozenset())]
    rest = [t for t in clause.tokens[place + 1 : place + 3] if t.text != "of"][:1]
    right = [t.subjects for t in rest if t.kind == "subject"]
    at = clause.effect or clause.before
    if [t.text for t in rest] == ["it"] and at is not None:
        right = [frozenset(last_owners(at).get("job", ()))]
    return [by_kind(subjects).get("job", frozenset()) for subjects in (*left, *right)]


def _goes_first(first: frozenset[str], last: frozenset[str], of: Known) -> bool:
    """Return True if the reasons why the last jobs wait name all the first."""
    said = {fact.said for job in last for fact in of.of(job, "reason")}
    names = [rf"job {job.removeprefix('job')}\b" for job in first]
    return all(any(re.search(name, text, re.IGNORECASE) for text in said) for name in names)


def _events(clause: Clause, place: int) -> tuple[str, str] | None:
    """Return the fields of the moments on both sides of `before`; None if it is about no events."""
    states = [(i, lexicon.STATES[text]) for i, text in clause.words() if text in lexicon.STATES]
    left = [_EVENTS.get(state, "") for i, state in states if i < place][-1:]
    if not left and clause.before is not None and clause.before.state is not None:
        left = [_EVENTS.get(clause.before.state[0], "")]
    right = [_EVENTS.get(state, "") for i, state in states if i > place][:1]
    if not left or not left[0]:
        return None
    return left[0], (right[0] if right else "") or left[0]


def _check_gap(clause: Clause, place: int, moments: list[list[float | str | None]]) -> None:
    """Check the length in `11 s after job 62 was lost`. Raises Refused."""
    token = clause.tokens[place - 1]
    given = in_base_unit(token.text) if place and token.kind == "value" else None
    if given is None:
        return
    left, right = (moment for side in moments for moment in side if isinstance(moment, float | int))
    bound = "~" if token.bound == "=" and given[0] >= 60 else token.bound
    apart = abs(left - right)
    require(is_within(apart, *given, bound), f"it says {token.text!r}, which no fact says")
    clause.used.add(place - 1)


def _is_in_order(clause: Clause, place: int) -> bool:
    """Return False if a job ran after it ended, or ended before it ran."""
    left = [text for i, text in clause.words() if i < place]
    right = [text for i, text in clause.words() if i > place]
    first, last = (left, right) if clause.tokens[place].text == "before" else (right, left)
    ended = any(t in _ENDINGS for t in first)
    if clause.tokens[place].text == "before":
        return not ended
    waited = any(t in _STARTS for t in first) and any(t.startswith("wait") for t in last)
    return not waited and not (ended and any(t in _ACTING | _ENDINGS for t in last))


def _precede(first: list[float | str | None], last: list[float | str | None]) -> bool:
    """Return True if all the first moments are known and before all the last."""
    early = [moment for moment in first if isinstance(moment, int | float)]
    late = [moment for moment in last if isinstance(moment, int | float)]
    known = len(early) == len(first) and len(late) == len(last)
    return known and max(early) < min(late)


def check_rank(clause: Clause, of: Known) -> None:
    """Check `the last job to finish was job 8` and `job 8 failed first`. Raises Refused."""
    for place, text in clause.words():
        if text not in _RANKS:
            continue
        refused = f"it says {text!r}, which no fact says"
        after = clause.tokens[place + 1].text if place + 1 < len(clause.tokens) else ""
        length = [t.kind for t in clause.tokens[place + 1 : place + 2]] == ["value"]
        require(text not in _FIRST or not (length or after == "queued"), refused)
        alerts = [t.subjects for t in clause.tokens[place + 1 : place + 2] if after == "alert"]
        if alerts:
            require(sorted(alerts[0]) == _best(of, everyone(of, "alert"), "raised", text), refused)
            clause.used.add(place)
            continue
        states = [s for t in clause.tokens if (s := lexicon.STATES.get(t.text, "")) in _EVENTS]
        noun = lexicon.NOUNS.get(after) == "job" or after in ("", "to", "of", "one")
        if not noun or not (after or states):
            continue
        jobs = [s for t in clause.tokens for s in by_kind(t.subjects).get("job", ())]
        denied = clause.has(lexicon.NEGATIONS)
        require(not denied and bool(states) and jobs == _ranked(of, states[0], text), refused)
        clause.used.add(place)


def _ranked(of: Known, claim: str, rank: str) -> list[str]:
    """Return the job that a state began first or last for; none if that is not known of all."""
    reached = "ended" if claim == "done" else claim
    jobs = [job for job in everyone(of, "job") if holds(of, job, reached)]
    return _best(of, jobs, _EVENTS[claim], rank)


def _best(of: Known, subjects: Iterable[str], field: str, rank: str) -> list[str]:
    moments = {subject: of.value(subject, field) for subject in subjects}
    known = {subject: v for subject, v in moments.items() if isinstance(v, int | float)}
    if not known or len(known) < len(moments):
        return []
    best = (min if rank in _FIRST else max)(known.values())
    return [subject for subject, moment in known.items() if moment == best]
