"""The jobs as the table lists them: what runs, what waits in its turn, what has ended; searched and filtered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from app.models.job_history import JobHistory
from app.models.jobs import Row, device_labels, row
from scheduler.jobs import Cancelled, Job, Queued, Running, Spec, Starting, turn
from scheduler.search import ENDED, REJECTED, Search, matches
from scheduler.telemetry.snapshot import Snapshot
from scheduler.units import amount

EVERY = "Every state"
RUNNING, WAITING, SUCCEEDED, FAILED, CANCELLED = KINDS = ("Running", "Waiting", "Succeeded", "Failed", "Cancelled")


OUTCOMES_OF = {
    EVERY: (),
    RUNNING: ("starting", "running"),
    WAITING: ("queued",),
    SUCCEEDED: ("done",),
    FAILED: ("failed", "lost", REJECTED),
    CANCELLED: ("cancelled",),
}
TIMES = {"Any time": 0.0, "Last hour": 3600.0, "Last day": 86400.0, "Last week": 7 * 86400.0, "Last 30 days": 30 * 86400.0}
"""Seconds back; 0: from the beginning."""


@dataclass(frozen=True)
class Line:
    """One job of the table."""

    id: int
    row: Row
    kind: str
    needs: str
    priority: int


def search_for(text: str, kind: str, seconds: float, snapshot: Snapshot) -> Search:
    """What was typed and chosen as a search: words, group:NAME and gpu:INDEX; `kind` is EVERY or one of KINDS, `seconds` one of TIMES."""
    words, group, device = [], None, ""
    for word in text.split():
        name, colon, value = word.partition(":")
        if colon and name.lower() == "group":
            group = value
        elif colon and value and name.lower() == "gpu":
            device = next((s.device.id for s in snapshot.devices if value in (s.device.id, str(s.device.index))), value)
        else:
            words.append(word)
    return Search(" ".join(words), OUTCOMES_OF[kind], group, device, snapshot.time - seconds if seconds else 0.0)


def elsewhere(search: Search) -> Search | None:
    """What to ask the daemon for: a snapshot has all jobs that run, and those that are next, which are enough where all are shown."""
    if search.outcomes == OUTCOMES_OF[RUNNING]:
        return None
    idle = (search.text, search.group, search.device) == ("", None, "")
    wanted = search.outcomes or (ENDED if idle else ("queued", *ENDED))
    return msgspec.structs.replace(search, outcomes=wanted)


class Listing:
    """Remembers what it made of each job: of a hundred thousand, few change between two snapshots."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Job, Line]] = {}
        """Of jobs that wait or run."""
        self._labels: dict[str, str] = {}
        self._ended: list[Line] = []
        self._log: list[int] = []
        self._read = 0
        """How much of the history's log is in `_ended`."""

    def lines(self, snapshot: Snapshot, search: Search, history: JobHistory) -> list[Line]:
        """Running jobs, newest first; waiting ones, the next first; then those that ended, newest first: all that `search` looks for.

        `history`: what was found of that search, and has been told of the snapshot.
        """
        if (labels := device_labels(snapshot)) != self._labels or self._log is not history.log:
            self._labels, self._log = labels, history.log
            self._known, self._ended, self._read = {}, [], 0
        for job in [history.ended[number] for number in self._log[self._read :]]:
            self._put(job, snapshot.time)
        self._read = len(self._log)
        here = {job.id: job for job in snapshot.jobs}
        active = [job for job in (history.active | here).values() if job.active and matches(search, job)]
        waiting = sorted((job for job in active if isinstance(job.state, Queued)), key=turn)
        running = sorted((job for job in active if not isinstance(job.state, Queued)), key=lambda job: -job.id)
        self._known = {job.id: (job, self._line(job, snapshot.time)) for job in (*running, *waiting)}
        return [*(line for _, line in self._known.values()), *self._ended]

    def _put(self, job: Job, now: float) -> None:
        """At its place among those that ended."""
        at = bisect_left(self._ended, -job.id, key=lambda line: -line.id)
        there = at < len(self._ended) and self._ended[at].id == job.id
        self._ended[at : at + there] = [self._line(job, now)]

    def _line(self, job: Job, now: float) -> Line:
        old = self._known.get(job.id)
        if old is not None and old[0] == job and not isinstance(job.state, Starting | Running):
            return old[1]
        made = row(job, self._labels, now)
        return Line(job.id, made, _kind(job, made), needs(job.spec), job.spec.priority)


def together(one: Line, other: Line) -> bool:
    """Whether both wait, and have the same priority: a job is moved among those of its own."""
    return one.kind == other.kind == WAITING and one.priority == other.priority


def neighbour(lines: Sequence[Line], job: int, row: int) -> tuple[int, bool] | None:
    """Beside which job one that waits stands where it is put before `row`, and whether after that one; None: nowhere."""
    moved = next((line for line in lines if line.id == job), None)
    beside = ((lines[at], after) for at, after in ((row, False), (row - 1, True)) if 0 <= at < len(lines))
    return next(((other.id, after) for other, after in beside if moved and other is not moved and together(moved, other)), None)


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
