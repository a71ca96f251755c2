"""Check the states that a clause claims of devices, jobs, alerts and the queue."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.amounts import KINDS, check_amount, having, require
from gpudeck.assistant.writing.checker.clauses import Clause, by_kind, kind_of, owners
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.states import holds

_BEFORE = lexicon.words("before ahead")
_BEHIND = lexicon.words("behind")
_BUSY_PERCENT, _IDLE_PERCENT = 50.0, 3.0
"""The mean utilisation of a device that was busy, and the highest of one that was idle."""
_ENDS = lexicon.words("finished finish done complete completed end")
_ELLIPSIS = lexicon.words("did does do is are was were has")


def check_states(clause: Clause, of: Known) -> None:
    """Check every state that a clause claims. Raises Refused."""
    work = _check_work(clause, of)
    _check_order(clause, of)
    claimed = [
        (i, _claim(clause, i)) for i, _ in clause.words() if i not in work and _is_state(clause, i)
    ]
    denied = [i for i, text in clause.words() if text in lexicon.NEGATIONS]
    for place, claim in claimed:
        refused = f"it says {clause.tokens[place].text!r}, which no fact says"
        negated = any(i < place for i in denied)
        clause.used |= set(denied) | {place}
        if KINDS.get(claim) == "queue":
            require(_queue(of, claim) is not negated, refused)
            continue
        if not check_amount(clause, place, claim, negated, of):
            named = any(kind_of(s) == "job" for t in clause.tokens for s in t.subjects)
            if not named and _counted_after(clause, place, claim):
                continue
            who = _who(clause, place, claim, of)
            require(bool(who), f"it says {clause.tokens[place].text!r}, but not of whom")
            past = clause.has({"was", "were"}) and not clause.has({"is", "are", "has", "have"})
            if past and KINDS.get(claim) == "device":
                require(not negated and all(_was(of, s, claim) for s in who), refused)
                continue
            for subject in who:
                require(holds(of, subject, claim) is (not negated), refused)
            if claim == "held":
                _check_holder(clause, place, who, negated, of)
        clause.state = (claim, negated)
    last = clause.before.state if clause.before else None
    if not claimed and denied and last and clause.has(_ELLIPSIS):
        who = _who(clause, len(clause.tokens), last[0], of)
        require(bool(who) and all(holds(of, s, last[0]) is False for s in who), "it denies a fact")
        clause.used |= set(denied)


def _was(of: Known, device: str, claim: str) -> bool:
    """Return True if a device was busy, or idle, over the span of its history."""
    name = {"busy": "util.mean", "idle": "util.max"}.get(claim, "")
    value = of.value(device, name)
    if not isinstance(value, int | float):
        return False
    return value >= _BUSY_PERCENT if claim == "busy" else value <= _IDLE_PERCENT


def _check_holder(
    clause: Clause, place: int, devices: frozenset[str], negated: bool, of: Known
) -> None:
    """Check that a job that is named after `held by` holds the devices. Raises Refused."""
    after = [s for t in clause.tokens[place:] for s in t.subjects if kind_of(s) == "job"]
    for device in devices if not negated else ():
        said = " ".join(fact.said for fact in of.of(device, "holder"))
        held = all(re.search(rf"\b{job.removeprefix('job')}\b", said) for job in after)
        require(held, "it says that a job holds a device, which no fact says")


def _check_work(clause: Clause, of: Known) -> set[int]:
    """Check `GPU 1 runs a job` and `there is nothing in the queue`; return the checked verbs.

    Raises Refused.
    """
    checked = set[int]()
    if clause.has({"nothing"}) and clause.has({"queue"}):
        require(_queue(of, "empty"), "it says that the queue is empty, which no fact says")
        clause.used |= {i for i, text in clause.words() if text in ("nothing", "queue")}
    for place, text in clause.words():
        named = [t.subjects for t in clause.tokens[:place] if t.kind == "subject"]
        following = [t.text for t in clause.tokens[place + 1 : place + 3]]
        jobs = next((i for i, t in enumerate(following) if lexicon.NOUNS.get(t) == "job"), None)
        if text not in ("run", "runs", "running") or not named or jobs is None:
            continue
        devices = by_kind(named[-1]).get("device", frozenset())
        if not devices or (jobs and following[0] not in ("a", "any", "no", "one")):
            continue
        denied = "no" in following or clause.has(lexicon.NEGATIONS)
        refused = "it says that a device runs a job, or none, which no fact says"
        require(all(holds(of, device, "held") is (not denied) for device in devices), refused)
        checked.add(place)
        clause.used |= {place, place + 1, place + 1 + jobs}
        clause.used |= {i for i, word in clause.words() if word in lexicon.NEGATIONS}
    return checked


def _check_order(clause: Clause, of: Known) -> None:
    """Check `job 45 is before job 44` and `job 44 is behind job 45`. Raises Refused."""
    for place, text in clause.words():
        if text not in _BEFORE | _BEHIND:
            continue
        left = [t.subjects for t in clause.tokens[:place] if t.kind == "subject"][-1:]
        right = [t.subjects for t in clause.tokens[place + 1 : place + 2] if t.kind == "subject"]
        pair = [by_kind(subjects).get("job", frozenset()) for subjects in (*left, *right)]
        if len(pair) < 2 or not all(pair):
            require(text not in _BEHIND, f"it says {text!r}, which cannot be checked")
            continue
        first, last = pair if text in _BEFORE else reversed(pair)
        waits = {fact.said for job in last for fact in of.of(job, "reason")}
        named = [rf"job {job.removeprefix('job')}\b" for job in first]
        found = all(any(re.search(name, said, re.IGNORECASE) for said in waits) for name in named)
        require(found, f"it says {text!r}, which no fact says")
        clause.used.add(place)


def _claim(clause: Clause, place: int) -> str:
    """Return what a word claims: `was run` is about the past."""
    text = clause.tokens[place].text
    if text == "run" and place and clause.tokens[place - 1].text in ("was", "were"):
        return "ran"
    return lexicon.STATES[text]


def _counted_after(clause: Clause, place: int, claim: str) -> bool:
    """Return True for `jobs that failed: 3`, and mark the number as checked."""
    for at in (clause, clause.after):
        for i, token in enumerate(at.tokens if at is not None else ()):
            counts = any(fact.name == f"jobs.{claim}" for fact in token.facts)
            if at is not None and counts and (at is not clause or i > place):
                at.used.add(i)
                return True
    return False


def _is_state(clause: Clause, place: int) -> bool:
    text = clause.tokens[place].text
    if text not in lexicon.STATES:
        return False
    before = clause.tokens[place - 1] if place else None
    beside = clause.tokens[max(0, place - 1) : place + 2]
    share = text in ("done", "complete", "completed", "finished") and any(
        t.text.endswith("%") for t in beside
    )
    if share or any(token.text == "time" for token in beside):
        return False
    if text in ("running", "run") and any(t.text == "after" for t in clause.tokens[:place]):
        return False
    if text == "wait" and clause.has({"had", "have", "did"}):
        return False  # that is about the past
    if text in _ENDS and clause.has({"will", "should"}):
        # of what is still to come only the time left is known
        require(bool(clause.values), f"it says {text!r} of what is to come, which no fact says")
        return False
    if text == "free":  # of memory, it is a field
        are = before is not None and before.text in lexicon.words("is are still now currently")
        amounts = any(t.kind == "value" and t.number is None for t in clause.tokens)
        return are and not amounts and not clause.has({"memory"})
    if text == "over":
        return before is not None and before.text in ("is", "are")
    return True


def _queue(of: Known, claim: str) -> bool:
    if claim == "paused":
        return bool(of.of("deck", "paused")) or any(
            "the queue is paused" in f.said for f in of.facts
        )
    return not having(of, "job", "queued") and not of.of("jobs", "queued")


def _who(clause: Clause, place: int, claim: str, of: Known) -> frozenset[str]:
    kind = KINDS.get(claim, "job")
    found = owners(clause, place).get(kind) or clause.inherited.get(kind, frozenset())
    named = clause.after.tokens if clause.after and clause.after.opener in (":", ",") else []
    for token in (*clause.tokens[place + 1 :], *named):
        if not found and token.kind == "subject":
            found = by_kind(token.subjects).get(kind, frozenset())
    return found
