"""Check which job holds which device, what runs on one, and what a clause lists."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.amounts import KINDS, having, is_count, require
from gpudeck.assistant.writing.checker.clauses import Clause, by_kind, kind_of, last_owners
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.states import holds
from gpudeck.assistant.writing.checker.tokens import Token

_HOLDS = lexicon.words(
    "holds hold held holding uses use used using occupies occupied occupying "
    "has takes took blocks blocked blocking keeps"
)

_HELD = lexicon.words("held used occupied took blocked")


def check_listed(clause: Clause, of: Known) -> None:
    """Check the subjects of `Two GPUs are idle: GPU 5 and GPU 6`. Raises Refused."""
    before = clause.before
    listed = all(t.kind == "subject" or t.text in ("and", "the", "namely") for t in clause.tokens)
    if not listed or before is None or clause.opener not in (",", ":", "("):
        return
    named = frozenset[str]().union(*(t.subjects for t in clause.tokens))
    claim, denied = before.state or ("", False)
    kinds = {kind_of(subject) for subject in named}
    same = bool(claim) and kinds == {KINDS.get(claim, "job")}
    if same and not any(t.kind == "subject" for t in before.tokens):
        refused = "it lists what no fact says is so"
        require(all(holds(of, s, claim) is not denied for s in named), refused)
        counts = [i for i, token in enumerate(before.tokens) if is_count(before, i)]
        counted = before.tokens[counts[0]].number if counts else len(named)
        require(clause.opener == "(" or counted == len(named), refused)
    if kinds == {"device"} and (jobs := last_owners(before).get("job")):
        said = [fact.said for job in jobs for fact in of.of(job, "devices")]
        labels = [str(of.value(device, "label")) for device in named]
        waits = claim == "queued" or not said
        require(
            waits or all(re.search(rf"{label}\b", s) for s in said for label in labels),
            "it lists devices that the job is not on",
        )


def check_holder(
    clause: Clause, place: int, devices: frozenset[str], negated: bool, of: Known
) -> None:
    """Check that a job that is named after `held by` holds the devices. Raises Refused."""
    after = [s for t in clause.tokens[place:] for s in t.subjects if kind_of(s) == "job"]
    for device in devices if not negated else ():
        said = " ".join(fact.said for fact in of.of(device, "holder"))
        held = [re.search(rf"\b{job.removeprefix('job')}\b", said) for job in after]
        require(
            all(held[:1]) if len(held) < 2 else any(held),
            "it says that a job holds a device, which no fact says",
        )


def check_work(clause: Clause, of: Known) -> set[int]:
    """Check `GPU 1 runs a job` and `there is nothing in the queue`; return the checked verbs.

    Raises Refused.
    """
    checked = set[int]()
    if clause.has({"nothing"}) and clause.has({"queue"}):
        require(queue_is(of, "empty"), "it says that the queue is empty, which no fact says")
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


def check_holding(clause: Clause, of: Known) -> None:
    """Check `job 8 holds GPU 0`. Raises Refused."""
    for place, text in clause.words():
        jobs = [t.subjects for t in clause.tokens[:place] if t.kind == "subject"][-1:]
        rest = [t for t in clause.tokens[place + 1 : place + 3] if t.text not in ("the", "all")]
        following = [t for t in rest[:1] if t.kind == "subject"]
        if not following and clause.opener == "which" and clause.before is not None:
            devices = last_owners(clause.before).get("device", frozenset())
            following = [Token("subject", "", subjects=devices)]
        devices = frozenset[str]().union(*(t.subjects for t in following))
        pair = [by_kind(s) for s in (*jobs, devices)]
        if text not in _HOLDS or len(pair) < 2 or set(pair[0]) != {"job"} or not devices:
            continue
        denied = {i for i, word in clause.words() if word in lexicon.NEGATIONS and i < place}
        if text in _HELD and not clause.has({"has", "have", "is", "are"}):
            continue  # of the past, `subjects` checks on what devices the job was
        for device in devices:
            said = " ".join(fact.said for fact in of.of(device, "holder"))
            held = all(re.search(rf"\b{job.removeprefix('job')}\b", said) for job in pair[0]["job"])
            require(held is not bool(denied), f"it says {text!r}, which no fact says")
        clause.used |= denied | {place}
        clause.state = ("held", bool(denied))


def queue_is(of: Known, claim: str) -> bool:
    if claim == "paused":
        return bool(of.of("deck", "paused")) or any(
            "the queue is paused" in f.said for f in of.facts
        )
    return not having(of, "job", "queued") and not of.of("jobs", "queued")
