"""Check that what a clause names exists and is connected as it says."""

from __future__ import annotations

import re

from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import Clause, Refused, by_kind, kind_of, owners
from gpudeck.assistant.writing.checker.groups import everyone
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.tokens import Token

_JOINING = lexicon.words("than before after by for until against with beside behind ahead nor")
"""Words that tell one job from another in a clause."""
_WAITING = lexicon.words(
    "queued waiting waits wait waited pending next needs behind until for because"
)
_ABOUT = lexicon.words("about")


def check_subjects(clause: Clause, of: Known) -> None:
    named: dict[str, frozenset[str]] = {}
    for token in clause.tokens:
        if token.kind != "subject":
            continue
        if missing := token.subjects - of.subjects:
            raise Refused(f"it names {token.text!r}, which is in none of the facts: {min(missing)}")
        named |= by_kind(token.subjects)
    inherited = clause.inherited.get("job", frozenset())
    compared = clause.has({"against"})
    if (
        clause.opener == "("
        and inherited
        and not compared
        and not named.get("job", inherited) & inherited
    ):
        raise Refused("it gives a job the name of another one")
    _check_name(clause)
    if "job" in named and clause.has({"by"}) and clause.has({"held"}):
        named = {**clause.inherited, **named}
    if clause.has(_ABOUT) and clause.has({"alert"}) and "alert" not in named:
        found = {of.value(a, "about") for a in everyone(of, "alert")}
        if not all(_label(of, s) in found for kind in named.values() for s in kind):
            raise Refused("it says what an alert is about, which no fact says")
    if clause.has(_ABOUT) and "device" in named:
        labels = {str(of.value(device, "label")) for device in named["device"]}
        counts = [t.number for t in clause.tokens if t.number is not None]
        about = [a for a in everyone(of, "alert") if of.value(a, "about") in labels]
        raised = clause.has({"alert", "alerts"}) or "alert" in clause.words_before()
        if raised and "alert" not in named and counts and counts[-1] != len(about):
            raise Refused("it counts alerts about what no fact says")
        alerts = named.get("alert") or clause.inherited.get("alert", frozenset())
        for alert in alerts if "job" not in named else ():
            if {of.value(alert, "about")} != labels:
                raise Refused("it says what an alert is about, which no fact says")
    if "job" in named and "device" in named and not clause.has(set(lexicon.COMPARATIVES)):
        _check_relations(clause, named["job"], named["device"], of)


def _check_relations(
    clause: Clause, jobs: frozenset[str], devices: frozenset[str], of: Known
) -> None:
    """Check that each job is on the devices; several jobs share them. Raises Refused."""
    waits = clause.has(_WAITING)
    pairs = {(j, d) for j in jobs for d in devices if _related(of, j, d, waits)}
    shared = len(jobs) > 1 and clause.has({"held"})
    for job in jobs:
        for device in devices:
            near = {p for p in pairs if p[0] == job}, {p for p in pairs if p[1] == device}
            if not (all(near) if shared else (job, device) in pairs):
                raise Refused(f"it connects {job} with {device}, which no fact does")


def _label(of: Known, subject: str) -> str:
    return str(of.value(subject, "label") or f"Job {subject.removeprefix('job')}")


def _check_name(clause: Clause) -> None:
    """Check that a job is not called by the name of another one. Raises Refused."""
    jobs = frozenset[str]()
    joined = clause.has(_JOINING | set(lexicon.COMPARATIVES))
    for token in clause.tokens:
        here = by_kind(token.subjects).get("job", frozenset())
        if token.facts and jobs and here and not joined and not jobs & here:
            raise Refused("it gives a job the name of another one")
        jobs = here or jobs


def _related(of: Known, job: str, device: str, waits: bool) -> bool:
    """Return True if a job is on a device; with `waits` also if it waits for it."""
    label = str(of.value(device, "label") or device).lower()
    fields = ("devices", "reason") if waits else ("devices",)
    texts = [fact.said.lower() for f in fields for fact in of.of(job, f)]
    if any(re.search(rf"\b{re.escape(label)}\b", text) for text in texts):
        return True
    number = job.removeprefix("job")
    uses = [fact.said for f in ("holder", "use") for fact in of.of(device, f)]
    return any(re.search(rf"\b{number}\b", text) for text in uses)


def check_text(clause: Clause, place: int, token: Token, of: Known) -> None:
    """Check that quoted words are those of their owner."""
    who = owners(clause, place)
    labels = {str(of.value(s, "label") or f"Job {s[3:]}") for named in who.values() for s in named}
    named = by_kind(frozenset[str]().union(*(t.subjects for t in clause.tokens)))
    jobs = named.get("job", frozenset()) if "device" not in named else frozenset()
    for fact in token.facts:
        if of.value(fact.subject, "about") in labels:
            return  # an alert is about it
        kind = kind_of(fact.subject)
        if kind == "device" and not all(
            _related(of, job, fact.subject, clause.has(_WAITING)) for job in jobs
        ):
            continue
        if not kind or fact.subject in who.get(kind, frozenset()) or clause.names_nobody():
            return
    raise Refused(f"it says {token.text!r}, which no fact says of what it names")
