"""Check the states that a clause claims of devices, jobs, alerts and the queue."""

from __future__ import annotations

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.amounts import KINDS, check_amount, having, require
from gpudeck.assistant.writing.checker.clauses import Clause, by_kind, kind_of, owners
from gpudeck.assistant.writing.checker.holdings import (
    check_holder,
    check_holding,
    check_listed,
    check_work,
    queue_is,
)
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.orders import check_order, check_rank
from gpudeck.assistant.writing.checker.states import holds

_BUSY_PERCENT, _IDLE_PERCENT = 50.0, 3.0
"""The mean utilisation of a device that was busy, and the highest of one that was idle."""
_ENDS = lexicon.words("finished finish done complete completed end")
_PERFECT = lexicon.words("was were had has have")
_ELLIPSIS = lexicon.words("did does do is are was were has")


def check_states(clause: Clause, of: Known) -> None:
    """Check every state that a clause claims. Raises Refused."""
    work = check_work(clause, of)
    check_order(clause, of)
    check_holding(clause, of)
    check_rank(clause, of)
    check_listed(clause, of)
    claimed = [
        (i, _claim(clause, i)) for i, _ in clause.words() if i not in work and _is_state(clause, i)
    ]
    denied = [i for i, text in clause.words() if text in lexicon.NEGATIONS]
    for place, claim in claimed:
        before = [i for i in denied if i < place]
        refused = f"it says {clause.tokens[place].text!r}, which no fact says"
        require(len(before) < 2 or clause.has({"nor"}), refused)
        clause.used |= {*before, place}
        if KINDS.get(claim) == "queue":
            require(queue_is(of, claim) is not bool(before), refused)
        elif check_amount(clause, place, claim, bool(before), of) or _check_whose(
            clause, place, claim, bool(before), of
        ):
            clause.state = (claim, bool(before))
    last = clause.before.state if clause.before else None
    more = any(t.kind == "text" or t.text in lexicon.FIELD_WORDS for t in clause.tokens)
    if not claimed and denied and last and clause.has(_ELLIPSIS) and not more:
        who = _who(clause, len(clause.tokens), last[0], of)
        require(bool(who) and all(holds(of, s, last[0]) is False for s in who), "it denies a fact")
        clause.used |= set(denied)


def _check_whose(clause: Clause, place: int, claim: str, negated: bool, of: Known) -> bool:
    """Check that a state is that of its subjects, and return True if it has some that have it now.

    Raises Refused.
    """
    said, kind = clause.tokens[place].text, KINDS.get(claim, "job")
    refused = f"it says {said!r}, which no fact says"
    if not _names_job(clause) and _counted_after(clause, place, claim):
        return False
    who = _who(clause, place, claim, of)
    if not who and place == 2 and clause.tokens[0].text in ("jobs", "gpus", "alerts"):
        require(not negated and bool(having(of, kind, claim)), refused)  # `jobs are waiting`
        return False
    require(bool(who), f"it says {said!r}, but not of whom")
    past = clause.has({"was", "were"}) and not clause.has({"is", "are", "has", "have"})
    lasting = clause.has({"throughout"}) and claim in ("busy", "idle")
    past = past and kind == "device" and not any(bound.field == "use" for bound in clause.values)
    if past or lasting:
        require(
            (lasting or not negated) and all(_was(of, s, claim) is not negated for s in who),
            refused,
        )
    for subject in () if past else who:
        require(holds(of, subject, claim) is (not negated), refused)
    if claim == "held" and not past:
        check_holder(clause, place, who, negated, of)
    return not past


def _was(of: Known, device: str, claim: str) -> bool:
    """Return True if a device was busy, or idle, over the span of its history."""
    name = {"busy": "util.mean", "idle": "util.max"}.get(claim, "")
    value = of.value(device, name)
    if not isinstance(value, int | float):
        return False
    return value >= _BUSY_PERCENT if claim == "busy" else value <= _IDLE_PERCENT


def _names_job(clause: Clause) -> bool:
    return any(kind_of(s) == "job" for t in clause.tokens for s in t.subjects)


def _claim(clause: Clause, place: int) -> str:
    """Return what a word claims: `was run` is about the past."""
    text = clause.tokens[place].text
    if text == "run" and any(t.text in _PERFECT for t in clause.tokens[:place]):
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
    process = any(".process" in fact.name for t in clause.tokens for fact in t.facts)
    if text in ("running", "runs") and process and not _names_job(clause):
        return False  # of a process, `subjects` checks on what device it is
    if text == "busy" and clause.tokens[place + 1 : place + 2] and beside[-1].text.endswith("%"):
        return False  # of the time
    share = text in ("done", "complete", "completed", "finished") and any(
        t.text.endswith("%") and (t in beside or any(".progress" in f.name for f in t.facts))
        for t in clause.tokens
    )
    if share or any(token.text == "time" for token in beside):
        return False
    past = ("running", "run", "waiting")
    if text in past and any(t.text == "after" for t in clause.tokens[:place]):
        return False
    if text == "wait" and clause.has({"had", "have", "did"}):
        return False  # that is about the past
    if text in _ENDS and clause.has(lexicon.FUTURE):
        # of what is still to come only the time left is known
        given = clause.values or (clause.fronted and clause.before and clause.before.values)
        require(
            bool(given) or clause.has({"soon", "shortly"}),
            f"it says {text!r} of what is to come, which no fact says",
        )
        return False
    if text == "free":  # of memory, it is a field
        are = before is not None and before.text in lexicon.words("is are still now currently")
        amounts = any(t.kind == "value" and t.number is None for t in clause.tokens)
        return are and not amounts and not clause.has({"memory"})
    if text == "over":
        return before is not None and before.text in ("is", "are")
    return True


def _who(clause: Clause, place: int, claim: str, of: Known) -> frozenset[str]:
    kind = KINDS.get(claim, "job")
    found = owners(clause, place).get(kind) or clause.inherited.get(kind, frozenset())
    named = clause.after.tokens if clause.after and clause.after.opener in (":", ",") else []
    for token in (*clause.tokens[place + 1 :], *named):
        if not found and token.kind == "subject":
            found = by_kind(token.subjects).get(kind, frozenset())
    return found
