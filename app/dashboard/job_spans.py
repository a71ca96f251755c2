"""What ran when: the jobs that held a device, as stretches of the charts' time axis."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from app.format.job_rows import device_labels, ended, meaning, started, state_word
from app.format.values import clock, duration
from app.strip.tile_model import Meaning
from scheduler.protocol.jobs import Queued
from scheduler.protocol.snapshot import Snapshot


@dataclass(frozen=True)
class Span:
    """A job from its start to its end, or to now; seconds since the epoch."""

    job: int
    label: str
    tooltip: str
    start: float
    end: float
    meaning: Meaning
    device: str
    """The first device it held."""
    lane: int
    """Spans of one lane do not overlap."""


def spans(
    snapshot: Snapshot, devices: Collection[str], start: float, end: float
) -> tuple[Span, ...]:
    """Of the jobs that held one of `devices` between `start` and `end`, the first to start first, in as few lanes as possible."""
    found: list[Span] = []
    labels = device_labels(snapshot)
    for job in sorted(snapshot.jobs, key=lambda j: (started(j) or 0.0, j.id)):
        held = (
            () if isinstance(job.state, Queued) else [d for d in job.state.devices if d in devices]
        )
        began, until = started(job), ended(job) or snapshot.time
        if not held or began is None or until < start or began > end:
            continue
        where = ", ".join(labels[d] for d in held)
        words = f"job {job.id} · {job.spec.name}, {state_word(job)}\n{where}, {clock(began, snapshot.time)}, {duration(until - began)}"
        found.append(
            Span(
                job.id, f"{job.id} · {job.spec.name}", words, began, until, meaning(job), held[0], 0
            )
        )
    return tuple(
        replace(span, lane=lane)
        for span, lane in zip(found, lanes([(s.start, s.end) for s in found]), strict=True)
    )


def lanes(stretches: Iterable[tuple[float, float]]) -> list[int]:
    """For each of the stretches, first to start first, the lowest lane in which it overlaps no other one."""
    free: list[float] = []
    found = []
    for start, end in stretches:
        lane = next((i for i, time in enumerate(free) if time <= start), len(free))
        free[lane:] = [end, *free[lane + 1 :]]
        found.append(lane)
    return found
