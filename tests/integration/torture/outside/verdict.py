"""Judge a campaign from the outside: from what commands answered and what the jobs wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

ENDS = {"done", "failed", "cancelled", "lost"}
GOOD = {
    **dict.fromkeys(("quick", "slow", "fork", "flaky", "array", "ask"), ("done",)),
    **dict.fromkeys(("fail", "hopeless", "overtime"), ("failed",)),
    "stubborn": ("cancelled",),
    "cancelled": ("cancelled", "done"),
}
"""How a job of these kinds may end when nothing touches it; one that attacks may end in any way."""
LOST, DOUBLED, LOOP, FALSE, DOWN, LEFT, CRASH = (
    "jobs lost",
    "jobs doubled",
    "jobs in a loop",
    "jobs with a false end",
    "daemon down",
    "processes left behind",
    "crashes",
)
AGAIN = "jobs run again after their store or disk was damaged"
CLASSES = (LOST, DOUBLED, LOOP, AGAIN, FALSE, DOWN, LEFT, CRASH)


class Acknowledged(NamedTuple):
    """Describe a job whose submission ended with status 0."""

    job: int
    kind: str
    runs: int = 1
    """How often it may run: once, and once more for each retry."""


class Listed(NamedTuple):
    """Describe a job as `gpudeck jobs --json` lists it."""

    job: int
    status: str
    why: str = ""


class LedgerLine(NamedTuple):
    """Describe what a job wrote about itself."""

    token: str
    attempt: int
    code: int | None = None
    """Its exit status, where it is about to end by itself; None where it begins."""


class Evidence(NamedTuple):
    """Describe all that is known after a campaign. Jobs are named by their tokens."""

    acknowledged: Mapping[str, Acknowledged]
    unclear: Mapping[str, int]
    """Jobs whose submission failed, and how often they may run: it may have been too late."""
    listed: Mapping[str, Sequence[Listed]]
    ledger: Sequence[LedgerLine]
    excused: Collection[str] = ()
    """Jobs whose runner, folder or disk a fault hit: they may end in any way, but must end."""
    at_risk: Collection[str] = ()
    """Jobs that were acknowledged shortly before the store was damaged: they may vanish."""
    damaged: Collection[str] = ()
    """Jobs whose store was damaged after they were submitted; their runs are counted apart."""
    down: Sequence[str] = ()
    """Faults after which the daemon did not answer."""
    left: Sequence[str] = ()
    """Processes of jobs that still run."""
    crashes: Sequence[str] = ()


class Violation(NamedTuple):
    """Describe one thing that must not happen, by its class and in one line."""

    what: str
    line: str


def violations(evidence: Evidence) -> list[Violation]:
    """Return what must not have happened, and did."""
    return [
        *_runs(evidence),
        *(found for token in evidence.acknowledged for found in _end(token, evidence)),
        *_duplicates(evidence),
        *(Violation(DOWN, line) for line in evidence.down),
        *(Violation(LEFT, line) for line in evidence.left),
        *(Violation(CRASH, line) for line in evidence.crashes),
    ]


def vanished(evidence: Evidence) -> list[str]:
    """Return the acknowledged jobs that went with a damaged store."""
    return [
        token
        for token in evidence.acknowledged
        if token in evidence.at_risk and not evidence.listed.get(token)
    ]


def _runs(evidence: Evidence) -> Iterator[Violation]:
    """Yield the jobs that ran too often, by the ledger alone."""
    begun = [line for line in evidence.ledger if line.code is None]
    attempts = Counter((line.token, line.attempt) for line in begun)
    for (token, attempt), times in attempts.items():
        if times > 1:
            what = AGAIN if token in evidence.damaged else DOUBLED
            yield Violation(
                what, f"attempt {attempt} of {_name(token, evidence)} ran {times} times"
            )
    for token, times in Counter(line.token for line in begun).items():
        if token in evidence.acknowledged:
            allowed = evidence.acknowledged[token].runs
        elif token in evidence.unclear:
            allowed = evidence.unclear[token]
        else:
            yield Violation(DOUBLED, f"the job {token} ran, and nobody submitted it")
            continue
        if times > allowed:
            yield Violation(
                AGAIN if token in evidence.damaged else LOOP if allowed > 1 else DOUBLED,
                f"{_name(token, evidence)} ran {times} times, and {allowed} were allowed",
            )


def _end(token: str, evidence: Evidence) -> Iterator[Violation]:
    """Yield what is wrong with how an acknowledged job ended."""
    job, name = evidence.acknowledged[token], _name(token, evidence)
    found = evidence.listed.get(token, ())
    lines = [line for line in evidence.ledger if line.token == token]
    if not found:
        if token not in evidence.at_risk:
            yield Violation(LOST, f"{name} was acknowledged and is not listed")
        return
    status, why = found[0].status, found[0].why
    if status not in ENDS:
        what = LOOP if lines or status != "queued" else LOST
        yield Violation(what, f"{name} never ended: {status} {why}".rstrip())
        return
    if status == "done" and not any(line.code == 0 for line in lines):
        yield Violation(FALSE, f"{name} is done, and did not end by itself with status 0")
    if token in evidence.excused or job.kind not in GOOD:
        return
    if status not in GOOD[job.kind]:
        yield Violation(
            FALSE, f"{name} is {status}, and nothing had touched its runner: {why}".rstrip(": ")
        )
    elif status == "failed" and job.kind != "overtime" and not lines:
        yield Violation(FALSE, f"{name} is failed, and never ran: {why}".rstrip(": "))


def _duplicates(evidence: Evidence) -> Iterator[Violation]:
    for token, found in evidence.listed.items():
        if len(found) > 1:
            numbers = ", ".join(str(listed.job) for listed in found)
            yield Violation(DOUBLED, f"{_name(token, evidence)} is listed as jobs {numbers}")


def _name(token: str, evidence: Evidence) -> str:
    job = evidence.acknowledged.get(token)
    return f"job {job.job} ({job.kind}, {token})" if job else f"the job {token}"
