"""Decide whether a claimed state is true of a device, a job or an alert."""

from __future__ import annotations

from gpudeck.assistant.facts.devices import IDLE, UNUSED
from gpudeck.assistant.writing.checker.clauses import kind_of
from gpudeck.assistant.writing.checker.known import Known

_JOB_STATES = {
    "done": {"done"},
    "succeeded": {"done"},
    "cancelled": {"cancelled"},
    "lost": {"lost"},
    "running": {"running"},
    "starting": {"starting"},
    "stopping": {"stopping"},
    "queued": {"queued"},
    "ended": {"done", "failed", "lost", "cancelled"},
}


def holds(of: Known, subject: str, claim: str) -> bool | None:
    """Return whether a claim is true of a device, job or alert; None if no fact decides it."""
    kind = kind_of(subject)
    if kind == "job":
        return _job(of, subject, claim)
    if kind == "device":
        use, holder = of.value(subject, "use"), of.value(subject, "holder")
        free = str(use).startswith((IDLE, UNUSED))  # as in the answers of queries
        return {
            "idle": None if use is None else free,
            "busy": None if use is None else not free,
            "held": None if use is None else holder is not None,
        }.get(claim)
    cleared = of.value(subject, "cleared")
    if cleared is None:
        return None
    return {"raised": True, "cleared": cleared != "lasts", "lasts": cleared == "lasts"}.get(claim)


def _job(of: Known, job: str, claim: str) -> bool | None:
    state, verdict = of.value(job, "state"), of.value(job, "verdict")
    if state is None:
        return None
    failed = isinstance(verdict, str) and verdict.startswith("fail")
    match claim:
        case "passed":
            return None if verdict is None and state == "done" else verdict == "pass"
        case "failed":
            return state == "failed" or failed
        case "succeeded":
            return state == "done" and not failed
        case "ran":
            ran = any(of.of(job, field) for field in ("duration", "running"))
            return ran or (None if state == "done" else False)
        case "started":
            return state != "queued"
    return state in _JOB_STATES[claim] if claim in _JOB_STATES else None
