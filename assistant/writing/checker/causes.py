"""Check that one clause of a sentence may be given as the reason of another."""

from __future__ import annotations

import re

from gpudeck.assistant.facts import Fact
from gpudeck.assistant.writing.checker import lexicon
from gpudeck.assistant.writing.checker.clauses import (
    Clause,
    Refused,
    is_end,
    kind_of,
    last_owners,
    owners,
)
from gpudeck.assistant.writing.checker.known import Known
from gpudeck.assistant.writing.checker.quotes import is_reason

_SO = lexicon.words("so therefore thus hence")
_BLOCKING = lexicon.words("held busy running starting queued before done ended")
"""What a reason for waiting can say of the job or device that it names."""
_OVER = lexicon.words("ended done failed lost cancelled")
_MEMORY = lexicon.words("mem_used mem_free process mem_share free_share")


def check_reason(clause: Clause, of: Known) -> None:
    """Check what `because`, `since`, `as` and `so` connect. Raises Refused.

    A reason is given in the words of a fact. Or it is a claim of its own, and the fact that says
    why the job waits or failed names the same jobs, devices and numbers.
    """
    if clause.is_cause():
        effect = clause.effect or clause.before
        if not clause.quotes and (effect is None or not _explains(clause, effect, of)):
            raise Refused("it gives a reason that no fact gives")
    elif clause.opener in _SO and clause.before is not None and clause.state is not None:
        jobs = owners(clause, len(clause.tokens)).get("job", frozenset())
        told = any(t.kind in ("subject", "text") for t in clause.before.tokens)
        own = jobs and jobs == last_owners(clause.before).get("job")
        claims = jobs and not own and (told or clause.state[0] != "running")
        if claims and not _explains(clause.before, clause, of):
            raise Refused("it draws a conclusion that no fact draws")


def check_until(clause: Clause, of: Known) -> None:
    """Check `job 9 waits until job 8 is finished`: the reason why it waits names job 8.

    Raises Refused.
    """
    effect = clause.effect or clause.before
    jobs = owners(effect, len(effect.tokens)).get("job", frozenset()) if effect else frozenset()
    named = {s for token in clause.tokens for s in token.subjects}
    known = bool(named) and not any(token.kind == "value" for token in clause.tokens)
    known = known and any(is_end(text) for _, text in clause.words())
    if effect is None or not jobs - named or not known or clause.has(lexicon.NEGATIONS):
        raise Refused("it says until when something waits, but not clearly what")
    if not all(_names(of, job, named) for job in jobs - named):
        raise Refused("it says until when something waits, which no fact says")
    effect.used |= {i for i, text in effect.words() if text in ("can", "until", "start")}


def _explains(cause: Clause, effect: Clause, of: Known) -> bool:
    """Return True if facts connect what two clauses say, each of which is true."""
    jobs = last_owners(effect).get("job", frozenset())
    claimed = effect.state[0] if effect.state is not None else ""
    given = cause.state[0] if cause.state is not None else ""
    quoted = {f.subject for t in cause.tokens if t.kind == "text" for f in t.facts if is_reason(f)}
    if jobs and jobs <= quoted:
        return True
    if claimed in ("raised", "lasts", "cleared"):
        return _raised(cause, given, of)
    if claimed == "idle" and given in _OVER:
        return _is_since(cause, effect, of)
    if effect.state in (("done", True), ("succeeded", True)) and given in _OVER:
        return jobs == last_owners(cause).get("job")
    if jobs and claimed in ("queued", "started", "running"):
        named = {s for token in cause.tokens for s in token.subjects} - jobs
        if not named:
            return given == "idle" and _counts(cause, of, jobs)
        return given in _BLOCKING and all(_names(of, job, named) for job in jobs)
    if jobs and claimed in ("failed", "passed"):
        checks = [bound for bound in cause.values if bound.field in ("check", "code")]
        return bool(checks) and all(bound.fact.subject in jobs for bound in checks)
    return _of_one_device(cause, effect, claimed, given)


def _of_one_device(cause: Clause, effect: Clause, claimed: str, given: str) -> bool:
    """Return True if a device is busy by its job, or full by what is in its memory."""
    devices = _devices(cause)
    if not devices or devices != _devices(effect):
        return False
    if claimed in ("busy", "held"):
        return given in ("running", "held")
    return all(any(b.field in _MEMORY for b in at.values) for at in (cause, effect))


def _devices(clause: Clause) -> frozenset[str]:
    named = {s for token in clause.tokens for s in token.subjects if kind_of(s) == "device"}
    bound = {b.fact.subject for b in clause.values if kind_of(b.fact.subject) == "device"}
    return frozenset(named | bound)


def _raised(cause: Clause, given: str, of: Known) -> bool:
    """Return True if the text of an alert says what a clause says of a job: `Job 64 failed`."""
    said = [f"{_name(of, s)} {given}" for token in cause.tokens for s in token.subjects]
    texts = [fact for fact in of.facts if fact.name.endswith(".text")]
    quoted = any(fact in texts for t in cause.tokens if t.kind == "value" for fact in t.facts)
    return quoted or any(_says(fact, words) for fact in texts for words in said)


def _counts(cause: Clause, of: Known, jobs: frozenset[str]) -> bool:
    """Return True if a reason counts devices as the reason of every job does: `3 free`."""
    counts = [
        token.number
        for i, token in enumerate(cause.tokens)
        if token.number is not None and (not i or cause.tokens[i - 1].text != "of")
    ]
    reasons = [fact for job in jobs for fact in of.of(job, "reason")]
    return bool(counts and reasons) and all(
        _says(fact, f"{count} free") for fact in reasons for count in counts
    )


def _is_since(cause: Clause, effect: Clause, of: Known) -> bool:
    """Return True for `GPU 2 has been idle since job 30 ended`, to a minute."""
    ends = [of.value(s, "ended") for s in last_owners(cause).get("job", ())]
    begins = [of.value(s, "idle_since") for s in last_owners(effect).get("device", ())]
    known = [v for v in (*ends, *begins) if isinstance(v, int | float)]
    return len(known) == len(ends) + len(begins) > 1 and max(known) - min(known) <= 60.0


def _names(of: Known, job: str, subjects: set[str]) -> bool:
    """Return True if the reason why a job waits names all these jobs and devices."""
    reasons = of.of(job, "reason")
    names = [_name(of, subject) for subject in subjects]
    return bool(reasons) and all(_says(fact, name) for fact in reasons for name in names)


def _says(fact: Fact, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", fact.said, re.IGNORECASE) is not None


def _name(of: Known, subject: str) -> str:
    if kind_of(subject) == "job":
        return f"job {subject.removeprefix('job')}"
    return str(of.value(subject, "label") or subject)
