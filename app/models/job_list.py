"""The jobs as the table lists them: what runs, what waits in its turn, what has ended; searched and filtered."""

from __future__ import annotations

from dataclasses import dataclass

from app.models.jobs import Row, device_labels, row
from scheduler.jobs import Cancelled, Job, Queued, Running, Spec, Starting, turn
from scheduler.telemetry.snapshot import Snapshot
from scheduler.units import amount

EVERY = "Every state"
RUNNING, WAITING, SUCCEEDED, FAILED, CANCELLED = KINDS = ("Running", "Waiting", "Succeeded", "Failed", "Cancelled")


@dataclass(frozen=True)
class Line:
    """One job of the table; `text` is what a search looks through, in lower case."""

    id: int
    row: Row
    kind: str
    needs: str
    text: str


class Listing:
    """Remembers what it made of each job: of ten thousand, few change between two snapshots."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job, Line]] = {}
        self._labels: dict[str, str] = {}

    def lines(self, snapshot: Snapshot, search: str = "", kind: str = EVERY) -> tuple[Line, ...]:
        """Running jobs, newest first; waiting ones, the next first; then those that ended, newest first.

        Only those of `kind` (EVERY, or one of KINDS) in which every word of `search` is found.
        """
        if (labels := device_labels(snapshot)) != self._labels:
            self._labels, self._known = labels, {}
        self._known = {job.id: (job, self._line(job, snapshot.time)) for job in snapshot.jobs}
        waiting = [job for job in snapshot.jobs if isinstance(job.state, Queued)]
        others = sorted((job for job in snapshot.jobs if not isinstance(job.state, Queued)), key=lambda job: (not job.active, -job.id))
        running = sum(job.active for job in others)
        ordered = (*others[:running], *sorted(waiting, key=turn), *others[running:])
        lines = [self._known[job.id][1] for job in ordered]
        words = search.lower().split()
        return tuple(line for line in lines if kind in (EVERY, line.kind) and all(word in line.text for word in words))

    def _line(self, job: Job, now: float) -> Line:
        old = self._known.get(job.id)
        if old is not None and old[0] == job and not isinstance(job.state, Starting | Running):
            return old[1]
        made, spec = row(job, self._labels, now), job.spec
        needed = needs(spec)
        said = (job.id, made.name, made.state, made.device, made.doing, needed, *spec.argv, spec.notes, *spec.tags)
        kind = _kind(job, made)
        return Line(job.id, made, kind, needed, " ".join(map(str, (*said, *spec.params.values()))).lower())


def needs(spec: Spec) -> str:
    """What it asked for, in a few words: "2 × h100 · 20 GiB · priority 5"."""
    noun = spec.gpu_type or ("CPU" if spec.kind == "cpu" else "GPU")
    parts = [f"{spec.gpus} × {noun}" if spec.gpus > 1 else noun] if spec.gpus else []
    parts += [amount(spec.memory)] if spec.memory else []
    parts += [f"priority {spec.priority}"] if spec.priority else []
    parts += [spec.group] if spec.group else []
    return " · ".join(parts)


def _kind(job: Job, made: Row) -> str:
    if isinstance(job.state, Queued):
        return WAITING
    if job.active:
        return RUNNING
    return CANCELLED if isinstance(job.state, Cancelled) else FAILED if made.meaning == "failed" else SUCCEEDED
