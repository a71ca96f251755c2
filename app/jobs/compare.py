"""Two jobs side by side: what they were, needed, used and found."""

from __future__ import annotations

from dataclasses import dataclass

from app.format.job_rows import details, device_labels, row
from app.format.results import result_of
from scheduler.protocol.jobs import Job
from scheduler.protocol.snapshot import Snapshot


@dataclass(frozen=True)
class Pair:
    """One thing of both; empty where one has none of it."""

    caption: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


def compare(left: Job, right: Job, snapshot: Snapshot) -> tuple[Pair, ...]:
    """Everything that is known of either, in the order of a job's details; each parameter by itself."""
    one, other = _told(left, snapshot), _told(right, snapshot)
    captions = dict.fromkeys([*one, *other])
    pairs = [Pair(c, one.get(c, ""), other.get(c, "")) for c in captions]
    results = result_of(left), result_of(right)
    if results[0] is not None and results[1] is not None and results[0].tflops > 0:
        change = 100 * (results[1].tflops / results[0].tflops - 1)
        pairs = [
            Pair(p.caption, p.left, f"{p.right} ({change:+.1f} %)")
            if p.caption == "TFLOP/s" and p.differs
            else p
            for p in pairs
        ]
    return tuple(pairs)


def _told(job: Job, snapshot: Snapshot) -> dict[str, str]:
    made, shown = details(job, snapshot), row(job, device_labels(snapshot), snapshot.time)
    params = {f"  {name}": value for name, value in job.spec.params.items()}
    facts = {caption: value for caption, value in made.facts if caption != "Parameters"}
    told = {
        "Name": job.spec.name,
        "State": shown.state,
        "Ran for": shown.duration,
        **params,
        **facts,
    }
    return {caption: value for caption, value in told.items() if value}
