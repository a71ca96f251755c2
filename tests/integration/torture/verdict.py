"""What must hold after a campaign, judged from what the jobs themselves wrote and what the store says. Values in, violations out."""

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
"""How often a job of the kind runs at most; the others run once."""
NARROW = 2
"""How many jobs of the kind narrow, which are a group, may run at once."""


class Row(NamedTuple):
    """A job as the store has it in the end."""

    kind: str
    status: str
    after: tuple[int, ...] = ()
    """Jobs that must have succeeded before it runs."""
    after_any: tuple[int, ...] = ()
    """Jobs that must have ended before it runs."""


class Line(NamedTuple):
    """What a job wrote of itself."""

    job: int
    attempt: str
    ends: bool = False
    """It is about to end by itself, rather than that it was begun."""


class Evidence(NamedTuple):
    acknowledged: Mapping[int, str]
    """Kind of each job that a client was told is safe."""
    excused: frozenset[int]
    """Jobs whose runner we killed, or whose record of it we falsified: any end is right, once."""
    store: Mapping[int, Row]
    ledger: Sequence[Line]
    """In the order in which it was written."""
    orphans: Iterable[str]
    """Processes of jobs that are still there."""


def violations(seen: Evidence) -> list[str]:
    """One line each; empty where nothing was lost, nothing ran twice, and nothing was left behind."""
    begun = [line for line in seen.ledger if not line.ends]
    ran, attempts = (
        Counter(line.job for line in begun),
        Counter((line.job, line.attempt) for line in begun),
    )
    found = [
        f"job {job} ({kind}) was acknowledged and is lost"
        for job, kind in seen.acknowledged.items()
        if job not in seen.store
    ]
    found += [
        f"attempt {attempt} of job {job} ran {times} times"
        for (job, attempt), times in attempts.items()
        if times > 1
    ]
    found += [
        f"job {job} ran {ran[job]} times"
        for job in ran
        if job in seen.store and ran[job] > _RUNS.get(seen.store[job].kind, 1)
    ]
    found += [f"job {job} ran and is not in the store" for job in ran if job not in seen.store]
    found += [f"left behind: {process}" for process in seen.orphans]
    found += [words for job, row in seen.store.items() if (words := _end(job, row, seen, ran[job]))]
    return found + _too_early(seen) + _too_many(seen)


def _end(job: int, row: Row, seen: Evidence, ran: int) -> str:
    """What is wrong with the way a job ended; empty where nothing is."""
    good = _GOOD[row.kind]
    if any(seen.store[parent].status != "done" for parent in row.after if parent in seen.store):
        good = "cancelled"
    if row.status not in ENDS:
        return f"job {job} ({row.kind}) never ended: {row.status}"
    if good == "cancelled" and row.after and ran:
        return f"job {job} ({row.kind}) ran, and what it was to run after did not succeed"
    if job in seen.excused:
        return ""
    if row.status == "lost" and not ran:
        return f"job {job} ({row.kind}) {NEVER_RAN}"
    if row.status != good:
        return f"job {job} ({row.kind}) is {row.status}, and nobody touched its runner"
    if (
        good == "cancelled" or row.kind == "overtime"
    ):  # its time may be over before it has written anything
        return ""
    return "" if ran else f"job {job} ({row.kind}) is {row.status} and never ran"


def _too_early(seen: Evidence) -> list[str]:
    """Jobs that began before those ended that they were to run after."""
    last = {line.job: place for place, line in enumerate(seen.ledger)}
    found = []
    for place, line in enumerate(seen.ledger):
        row = seen.store.get(line.job)
        for parent in () if row is None else (*row.after, *row.after_any):
            if last.get(parent, -1) > place:
                found.append(f"job {line.job} ran before job {parent} had ended")
    return found


def _too_many(seen: Evidence) -> list[str]:
    """Moments at which more of the narrow group ran than its limit. Those whose runner was killed cannot say when they ended."""
    running: set[int] = set()
    found = []
    for line in seen.ledger:
        row = seen.store.get(line.job)
        if row is None or row.kind != "narrow" or line.job in seen.excused:
            continue
        (running.discard if line.ends else running.add)(line.job)
        if len(running) > NARROW:
            found.append(
                f"{len(running)} jobs of a group with limit {NARROW} ran at once: {sorted(running)}"
            )
    return found
