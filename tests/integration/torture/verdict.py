"""Judge a campaign from what the jobs themselves wrote and what the store holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ENDS = {"done", "failed", "cancelled", "lost"}
NEVER_RAN = "is called lost, and never ran"
_GOOD = {
    **dict.fromkeys(
        ("quick", "slow", "fork", "flaky", "flood", "narrow", "member", "child", "follower"), "done"
    ),
    **dict.fromkeys(("fail", "hopeless", "overtime"), "failed"),
    "stubborn": "cancelled",
}
_RUNS = {"flaky": 2, "hopeless": 3}
"""The most runs of a job of these kinds; the others run once."""
NARROW = 2
"""How many jobs of the kind narrow, which are a group, may run at once."""


class StoredJob(NamedTuple):
    """Describe a job as the store holds it in the end."""

    kind: str
    status: str
    after: tuple[int, ...] = ()
    """Jobs that must have succeeded before it runs."""
    after_any: tuple[int, ...] = ()
    """Jobs that must have ended before it runs."""


class LedgerLine(NamedTuple):
    """Describe what a job wrote about itself."""

    job: int
    attempt: str
    ends: bool = False
    """True where it is about to end by itself, and False where it begins."""


class Evidence(NamedTuple):
    """Describe all that is known after a campaign."""

    acknowledged: Mapping[int, str]
    """Kind of each job that was acknowledged."""
    excused: frozenset[int]
    """Jobs whose runner was killed, or whose record was falsified: they may end in any way."""
    store: Mapping[int, StoredJob]
    ledger: Sequence[LedgerLine]
    """Lines in the order in which they were written."""
    orphans: Iterable[str]
    """Processes of jobs that still run."""


def violations(evidence: Evidence) -> list[str]:
    """Return a line for each job that was lost or ran twice, and each process left behind."""
    begun = [line for line in evidence.ledger if not line.ends]
    ran, attempts = (
        Counter(line.job for line in begun),
        Counter((line.job, line.attempt) for line in begun),
    )
    found = [
        f"job {job} ({kind}) was acknowledged and is lost"
        for job, kind in evidence.acknowledged.items()
        if job not in evidence.store
    ]
    found += [
        f"attempt {attempt} of job {job} ran {times} times"
        for (job, attempt), times in attempts.items()
        if times > 1
    ]
    found += [
        f"job {job} ran {ran[job]} times"
        for job in ran
        if job in evidence.store and ran[job] > _RUNS.get(evidence.store[job].kind, 1)
    ]
    found += [f"job {job} ran and is not in the store" for job in ran if job not in evidence.store]
    found += [f"left behind: {process}" for process in evidence.orphans]
    found += [
        words
        for job, row in evidence.store.items()
        if (words := _end(job, row, evidence, ran[job]))
    ]
    return found + _too_early(evidence) + _too_many(evidence)


def _end(job: int, row: StoredJob, evidence: Evidence, ran: int) -> str:
    """Return what is wrong with how a job ended; empty if nothing is."""
    good = _GOOD[row.kind]
    if any(
        evidence.store[parent].status != "done" for parent in row.after if parent in evidence.store
    ):
        good = "cancelled"
    if row.status not in ENDS:
        return f"job {job} ({row.kind}) never ended: {row.status}"
    if good == "cancelled" and row.after and ran:
        return f"job {job} ({row.kind}) ran, and what it was to run after did not succeed"
    if job in evidence.excused:
        return ""
    if row.status == "lost" and not ran:
        return f"job {job} ({row.kind}) {NEVER_RAN}"
    if row.status != good:
        return f"job {job} ({row.kind}) is {row.status}, and nobody touched its runner"
    if good == "cancelled" or row.kind == "overtime":  # its time may be up before it wrote anything
        return ""
    return "" if ran else f"job {job} ({row.kind}) is {row.status} and never ran"


def _too_early(evidence: Evidence) -> list[str]:
    """Return the jobs that began before those ended that they were to run after."""
    last = {line.job: place for place, line in enumerate(evidence.ledger)}
    found = []
    for place, line in enumerate(evidence.ledger):
        row = evidence.store.get(line.job)
        for parent in () if row is None else (*row.after, *row.after_any):
            if last.get(parent, -1) > place:
                found.append(f"job {line.job} ran before job {parent} had ended")
    return found


def _too_many(evidence: Evidence) -> list[str]:
    """Return the moments at which more of the narrow group ran than its limit.

    Jobs whose runner was killed do not count, as they write no line when they end.
    """
    running: set[int] = set()
    found = []
    for line in evidence.ledger:
        row = evidence.store.get(line.job)
        if row is None or row.kind != "narrow" or line.job in evidence.excused:
            continue
        (running.discard if line.ends else running.add)(line.job)
        if len(running) > NARROW:
            found.append(
                f"{len(running)} jobs of a group with limit {NARROW} ran at once: {sorted(running)}"
            )
    return found
