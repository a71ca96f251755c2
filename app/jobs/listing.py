"""The jobs as the table lists them: what runs, what waits in its turn, what has ended; searched and filtered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import overload

import msgspec

from app.format.job_rows import JobRow, device_labels, job_row
from app.format.values import plural
from app.jobs.history import JobHistory, unpack
from scheduler.protocol.jobs import Cancelled, Job, Queued, Spec, turn
from scheduler.protocol.search import ENDED, REJECTED, Search, matches
from scheduler.protocol.snapshot import Snapshot
from scheduler.protocol.units import amount

EVERY = "Every state"
RUNNING, WAITING, SUCCEEDED, FAILED, CANCELLED = KINDS = (
    "Running",
    "Waiting",
    "Succeeded",
    "Failed",
    "Cancelled",
)


OUTCOMES_OF = {
    EVERY: (),
    RUNNING: ("starting", "running"),
    WAITING: ("queued",),
    SUCCEEDED: ("done",),
    FAILED: ("failed", "lost", REJECTED),
    CANCELLED: ("cancelled",),
}
TIMES = {
    "Any time": 0.0,
    "Last hour": 3600.0,
    "Last day": 86400.0,
    "Last week": 7 * 86400.0,
    "Last 30 days": 30 * 86400.0,
}
"""Seconds back; 0: from the beginning."""
_LOOKED_AT = 5000
"""Lines of ended jobs that are kept."""


@dataclass(frozen=True)
class Line:
    """One job of the table."""

    id: int
    row: JobRow
    kind: str
    needs: str
    priority: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A job that waits, and what was made of it."""

    job: Job
    turn: tuple[int, float, int]
    line: Line


def _nothing(number: int) -> Line:
    raise KeyError(number)


def search_for(text: str, kind: str, seconds: float, snapshot: Snapshot) -> Search:
    """What was typed and chosen as a search: words, group:NAME and gpu:INDEX; `kind` is EVERY or one of KINDS, `seconds` one of TIMES."""
    words, group, device = [], None, ""
    for word in text.split():
        name, colon, value = word.partition(":")
        if colon and name.lower() == "group":
            group = value
        elif colon and value and name.lower() == "gpu":
            device = next(
                (
                    s.device.id
                    for s in snapshot.devices
                    if value in (s.device.id, str(s.device.index))
                ),
                value,
            )
        else:
            words.append(word)
    return Search(
        " ".join(words),
        OUTCOMES_OF[kind],
        group,
        device,
        snapshot.time - seconds if seconds else 0.0,
    )


def elsewhere(search: Search) -> Search | None:
    """What to ask the daemon for: a snapshot has all jobs that run, and those that are next, which are enough where all are shown."""
    if search.outcomes == OUTCOMES_OF[RUNNING]:
        return None
    idle = (search.text, search.group, search.device) == ("", None, "")
    wanted = search.outcomes or (ENDED if idle else ("queued", *ENDED))
    return msgspec.structs.replace(search, outcomes=wanted)


class Lines(Sequence[Line]):
    """The lines of the table, by their places. Those of jobs that ended are made as they are looked at: few of many ever are."""

    def __init__(
        self,
        active: Sequence[Line] = (),
        ended: Sequence[int] = (),
        make: Callable[[int], Line] = _nothing,
        edition: int = 0,
    ) -> None:
        """`ended`: numbers, the highest first, of which `make` makes lines; `edition` is another where one of these has become another."""
        self.ids = [*(line.id for line in active), *ended]
        self.active = {line.id: line for line in active}
        self.edition = edition
        self._make = make

    def line(self, number: int) -> Line:
        """That of a job."""
        return self.active.get(number) or self._make(number)

    def place(self, number: int | None) -> int | None:
        """The row of a job; None where it has none."""
        try:
            return self.ids.index(number)  # type: ignore[arg-type]  # None is in no list
        except ValueError:
            return None

    def within(self, ids: list[int]) -> Lines:
        """The same lines in other places: `ids` itself, which may go on changing."""
        made = copy(self)
        made.ids = ids
        return made

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Line: ...

    @overload
    def __getitem__(self, at: slice) -> list[Line]: ...

    def __getitem__(self, at: int | slice) -> Line | list[Line]:
        return (
            self.line(self.ids[at])
            if isinstance(at, int)
            else [self.line(number) for number in self.ids[at]]
        )


class Listing:
    """Remembers what it made of each job: of a hundred thousand, few change between two snapshots."""

    def __init__(self) -> None:
        self._running: dict[int, Line] = {}
        self._waiting: dict[int, _Known] = {}
        self._in_turn: list[Line] | None = []
        """Those that wait, the next first; None: to be put in order anew."""
        self._told: set[int] = set()
        """The jobs of the last snapshot."""
        self._ended: dict[int, tuple[bytes, Line]] = {}
        """Those that were looked at, and what they were made of."""
        self._made_for: tuple[dict[str, str], Search | None, JobHistory | None] = ({}, None, None)

    def lines(self, snapshot: Snapshot, search: Search, history: JobHistory) -> Lines:
        """Running jobs, newest first; waiting ones, the next first; then those that ended, newest first: all that `search` looks for.

        `history`: what was found of that search, and has been told of the snapshot.
        """
        labels, told = device_labels(snapshot), {job.id: job for job in snapshot.jobs}
        changed = history.changed() | self._told | told.keys()
        if self._made_for != (labels, search, history):
            self._made_for, self._running, self._waiting, self._in_turn, self._ended = (
                (labels, search, history),
                {},
                {},
                None,
                {},
            )
            changed = history.active.keys() | told.keys()
        self._told = set(told)
        for number in changed:
            job = told.get(number) or history.active.get(number)
            self._look_at(
                number,
                job if job is not None and job.active and matches(search, job) else None,
                labels,
                snapshot.time,
            )
        if self._in_turn is None:
            self._in_turn = [
                one.line for one in sorted(self._waiting.values(), key=attrgetter("turn"))
            ]
        running = sorted(self._running.values(), key=lambda line: -line.id)
        make = partial(self._line_of, ended=history.ended, labels=labels)
        return Lines([*running, *self._in_turn], history.numbers, make, history.edition)

    def _look_at(self, number: int, job: Job | None, labels: dict[str, str], now: float) -> None:
        """What became of a job; None: it does not belong to the list, or not any more."""
        before = self._waiting.get(number)
        if before is not None and job is not None and (before.job is job or before.job == job):
            return
        self._running.pop(number, None)
        if before is not None:
            del self._waiting[number]
            self._in_turn = None
        if job is None:
            return
        line = _line(job, labels, now)
        if line.kind == WAITING:
            self._waiting[number], self._in_turn = _Known(job, turn(job), line), None
        else:
            self._running[number] = line

    def _line_of(self, number: int, ended: Mapping[int, bytes], labels: dict[str, str]) -> Line:
        """Of one that ended."""
        packed = ended[number]
        old = self._ended.get(number)
        if old is None or old[0] is not packed:
            if len(self._ended) >= _LOOKED_AT:
                self._ended.clear()
            old = self._ended[number] = (packed, _line(unpack(packed), labels, 0.0))
        return old[1]


def _line(job: Job, labels: dict[str, str], now: float) -> Line:
    made = job_row(job, labels, now)
    return Line(job.id, made, _kind(job, made), needs(job.spec), job.spec.priority)


def together(one: Line, other: Line) -> bool:
    """Whether both wait, and have the same priority: a job is moved among those of its own."""
    return one.kind == other.kind == WAITING and one.priority == other.priority


def neighbour(lines: Lines, job: int, row: int) -> tuple[int, bool] | None:
    """Beside which job one that waits stands where it is put before `row`, and whether after that one; None: nowhere."""
    moved = lines.active.get(job)
    beside = (
        (lines[at], after) for at, after in ((row, False), (row - 1, True)) if 0 <= at < len(lines)
    )
    return next(
        (
            (other.id, after)
            for other, after in beside
            if moved and other is not moved and together(moved, other)
        ),
        None,
    )


def needs(spec: Spec) -> str:
    """What it asked for, in a few words: "2 × h100 · 20 GiB · priority 5"."""
    noun = spec.gpu_type or ("CPU" if spec.kind == "cpu" else "GPU")
    parts = [f"{spec.gpus} × {noun}" if spec.gpus > 1 else noun] if spec.gpus else []
    parts += [amount(spec.memory)] if spec.memory else []
    parts += [f"priority {spec.priority}"] if spec.priority else []
    parts += [spec.group] if spec.group else []
    return " · ".join(parts)


def _kind(job: Job, made: JobRow) -> str:
    if isinstance(job.state, Queued):
        return WAITING
    if job.active:
        return RUNNING
    return (
        CANCELLED
        if isinstance(job.state, Cancelled)
        else FAILED
        if made.meaning == "failed"
        else SUCCEEDED
    )


def cancel_question(waiting: int, running: int) -> str:
    """Return the question that is asked before jobs are cancelled.

    Args:
        waiting: The number of jobs that wait.
        running: The number of jobs that run.
    """
    consequences = []
    if waiting:
        consequences.append(f"{waiting} {'waits' if waiting == 1 else 'wait'} and will never run")
    if running:
        consequences.append(f"{running} {'runs' if running == 1 else 'run'} and will be ended")
    return f"Cancel {plural(waiting + running, 'job')}? {', '.join(consequences)}."
