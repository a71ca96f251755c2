"""What must hold after a campaign, judged from what the jobs themselves wrote and what the store says. Values in, violations out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

ENDS = {"done", "failed", "cancelled", "lost"}
NEVER_RAN = "is called lost, and never ran"
_GOOD = {"quick": "done", "slow": "done", "fork": "done", "flaky": "done", "flood": "done", "fail": "failed", "stubborn": "cancelled"}


class Row(NamedTuple):
    """A job as the store has it in the end."""

    kind: str
    status: str


class Evidence(NamedTuple):
    acknowledged: Mapping[int, str]
    """Kind of each job that a client was told is safe."""
    excused: frozenset[int]
    """Jobs whose runner we killed, or whose record of it we falsified: any end is right, once."""
    store: Mapping[int, Row]
    ledger: Sequence[tuple[int, str]]
    """Job and attempt of each line that a job appended. A flaky job fails once, and is tried once more; the others run once."""
    orphans: Iterable[str]
    """Processes of jobs that are still there."""


def violations(seen: Evidence) -> list[str]:
    """One line each; empty where nothing was lost, nothing ran twice, and nothing was left behind."""
    ran, attempts = Counter(job for job, _ in seen.ledger), Counter(seen.ledger)
    found = [f"job {job} ({kind}) was acknowledged and is lost" for job, kind in seen.acknowledged.items() if job not in seen.store]
    found += [f"attempt {attempt} of job {job} ran {times} times" for (job, attempt), times in attempts.items() if times > 1]
    found += [
        f"job {job} ran {ran[job]} times" for job in ran if job in seen.store and ran[job] > (2 if seen.store[job].kind == "flaky" else 1)
    ]
    found += [f"job {job} ran and is not in the store" for job in ran if job not in seen.store]
    found += [f"left behind: {process}" for process in seen.orphans]
    for job, row in seen.store.items():
        if row.status not in ENDS:
            found.append(f"job {job} ({row.kind}) never ended: {row.status}")
        elif job not in seen.excused and row.status == "lost" and not ran[job]:
            found.append(f"job {job} ({row.kind}) {NEVER_RAN}")
        elif job not in seen.excused and row.status != _GOOD[row.kind]:
            found.append(f"job {job} ({row.kind}) is {row.status}, and nobody touched its runner")
        elif job not in seen.excused and row.kind != "stubborn" and not ran[job]:
            found.append(f"job {job} ({row.kind}) is {row.status} and never ran")
    return found
