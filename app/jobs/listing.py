"""List, search and filter jobs: running ones first, then waiting ones in order, then ended ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import overload

import msgspec

from gpudeck.app.format.job_rows import JobRow, device_labels, job_row
from gpudeck.app.format.values import duration
from gpudeck.app.jobs.history import JobHistory, unpack
from gpudeck.app.jobs.job_keys import (
    CANCELLED,
    FAILED,
    RUNNING,
    SUCCEEDED,
    WAITING,
    FoldKey,
    JobKeys,
    keys_of,
)
from gpudeck.app.language.texts import tr, tr_count, tr_decimal, tr_noop
from gpudeck.language.numbers import amount
from gpudeck.scheduler.protocol.jobs import Job, Spec, turn
from gpudeck.scheduler.protocol.search import ENDED, REJECTED, Search, matches, parse_words
from gpudeck.scheduler.protocol.snapshot import Snapshot

EVERY = tr_noop("All states")
OUTCOMES_OF = {
    EVERY: (),
    RUNNING: ("starting", "running"),
    WAITING: ("queued",),
    SUCCEEDED: ("done",),
    FAILED: ("failed", "lost", REJECTED),
    CANCELLED: ("cancelled",),
}
TIMES = {
    tr_noop("Any time"): 0.0,
    tr_noop("Last hour"): 3600.0,
    tr_noop("Last day"): 86400.0,
    tr_noop("Last week"): 7 * 86400.0,
    tr_noop("Last 30 days"): 30 * 86400.0,
}
"""The time of each choice in seconds; 0 for all jobs."""
_CACHED = 5000
"""The number of lines of ended jobs that are kept."""


@dataclass(frozen=True)
class JobLine:
    """Hold what the table shows of one job."""

    id: int
    row: JobRow
    kind: str
    needs: str
    priority: int
    keys: JobKeys
    fold: FoldKey | None = None
    """The array or group whose row this is; None for that of a job."""


@dataclass(frozen=True, slots=True)
class _WaitingJob:
    """Hold a waiting job with its line and its place in the queue."""

    job: Job
    turn: tuple[int, float, int]
    line: JobLine


def _no_line(number: int) -> JobLine:
    raise KeyError(number)


def parse_search(text: str, kind: str, seconds: float, snapshot: Snapshot) -> Search:
    """Return the search that the user typed and chose.

    Args:
        text: Words, group:NAME and gpu:INDEX.
        kind: EVERY or one of KINDS.
        seconds: One of TIMES.
    """
    words = parse_words(text, [state.device for state in snapshot.devices])
    since = snapshot.time - seconds if seconds else 0.0
    return Search(words.text, OUTCOMES_OF[kind], words.group, words.device, since)


def history_search(search: Search) -> Search | None:
    """Return what the daemon must be asked for.

    A snapshot holds all running jobs and the next waiting ones, which suffice without a filter.
    """
    if search.outcomes == OUTCOMES_OF[RUNNING]:
        return None
    idle = (search.text, search.group, search.device) == ("", None, "")
    wanted = search.outcomes or (ENDED if idle else ("queued", *ENDED))
    return msgspec.structs.replace(search, outcomes=wanted)


class JobLines(Sequence[JobLine]):
    """Hold the lines of the table in order. JobLines of ended jobs are made when they are read."""

    def __init__(
        self,
        active: Sequence[JobLine] = (),
        ended: Sequence[int] = (),
        make: Callable[[int], JobLine] = _no_line,
        edition: int = 0,
    ) -> None:
        """Hold lines.

        Args:
            ended: Numbers of ended jobs, highest first.
            make: Makes the line of an ended job.
            edition: Differs if an ended job has changed.
        """
        self.ids = [*(line.id for line in active), *ended]
        self.active = {line.id: line for line in active}
        self.folds: dict[int, JobLine] = {}
        """The rows of arrays and groups, by their numbers below 0."""
        self.members: dict[int, tuple[int, ...]] = {}
        """The jobs of each array or group, by the number of its row."""
        self.indented: frozenset[int] = frozenset()
        """The jobs that are shown below the row of their array or group."""
        self.edition = edition
        self._make = make

    def line(self, number: int) -> JobLine:
        """Return the line of a job, or of an array or a group."""
        return self.folds.get(number) or self.active.get(number) or self._make(number)

    def place(self, number: int | None) -> int | None:
        """Return the row of a job, or None."""
        try:
            return self.ids.index(number)  # type: ignore[arg-type]  # None is in no list
        except ValueError:
            return None

    def head_of(self, number: int | None) -> int | None:
        """Return the row of the array or group that holds a job; None where none does."""
        found = (fold for fold, members in self.members.items() if number in members)
        return next(found, None)

    def ordered(self, ids: list[int]) -> JobLines:
        """Return these lines in another order. `ids` itself is kept, and may change later."""
        made = copy(self)
        made.ids = ids
        return made

    def arranged(
        self,
        ids: list[int],
        folds: dict[int, JobLine],
        members: dict[int, tuple[int, ...]],
        indented: frozenset[int],
    ) -> JobLines:
        """Return these lines with rows for arrays and groups, in this order."""
        made = self.ordered(ids)
        made.folds, made.members, made.indented = folds, members, indented
        return made

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> JobLine: ...

    @overload
    def __getitem__(self, at: slice) -> list[JobLine]: ...

    def __getitem__(self, at: int | slice) -> JobLine | list[JobLine]:
        return (
            self.line(self.ids[at])
            if isinstance(at, int)
            else [self.line(number) for number in self.ids[at]]
        )


class JobList:
    """Make the lines of all jobs, and keep them: few jobs change between two snapshots."""

    def __init__(self) -> None:
        self._running: dict[int, JobLine] = {}
        self._waiting: dict[int, _WaitingJob] = {}
        self._in_turn: list[JobLine] | None = []
        """The waiting jobs in order; None if they must be sorted again."""
        self._in_snapshot: set[int] = set()
        """The jobs of the last snapshot."""
        self._ended: dict[int, tuple[bytes, JobLine]] = {}
        """The JSON and the line of each ended job that was read."""
        self._made_for: tuple[dict[str, str], Search | None, JobHistory | None] = ({}, None, None)

    def lines(self, snapshot: Snapshot, search: Search, history: JobHistory) -> JobLines:
        """Return the jobs that match `search`.

        Args:
            history: The jobs that the daemon found, updated with the snapshot.
        """
        labels, current = device_labels(snapshot), {job.id: job for job in snapshot.jobs}
        changed = history.changed() | self._in_snapshot | current.keys()
        if self._made_for != (labels, search, history):
            self._made_for = (labels, search, history)
            self._running, self._waiting, self._ended = {}, {}, {}
            self._in_turn = None
            changed = history.active.keys() | current.keys()
        self._in_snapshot = set(current)
        for number in changed:
            job = current.get(number) or history.active.get(number)
            self._update(
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
        return JobLines([*running, *self._in_turn], history.numbers, make, history.edition)

    def _update(self, number: int, job: Job | None, labels: dict[str, str], now: float) -> None:
        """Take the newest state of a job; None if the job does not belong to the list."""
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
            self._waiting[number], self._in_turn = _WaitingJob(job, turn(job), line), None
        else:
            self._running[number] = line

    def _line_of(self, number: int, ended: Mapping[int, bytes], labels: dict[str, str]) -> JobLine:
        """Return the line of an ended job."""
        packed = ended[number]
        old = self._ended.get(number)
        if old is None or old[0] is not packed:
            if len(self._ended) >= _CACHED:
                self._ended.clear()
            old = self._ended[number] = (packed, _line(unpack(packed), labels, 0.0))
        return old[1]


def _line(job: Job, labels: dict[str, str], now: float) -> JobLine:
    made, keys = job_row(job, labels, now), keys_of(job, now)
    return JobLine(job.id, made, keys.kind, needs(job.spec), job.spec.priority, keys)


def can_swap(one: JobLine, other: JobLine) -> bool:
    """Return whether both jobs wait with the same priority, so that they can change places."""
    return one.kind == other.kind == WAITING and one.priority == other.priority


def drop_target(lines: JobLines, job: int, row: int) -> tuple[int, bool] | None:
    """Return where a waiting job goes when it is dropped before `row`.

    Returns:
        The job beside it, and whether it goes after that job; None if it cannot go there.
    """
    moved = lines.active.get(job)
    beside = (
        (lines[at], after) for at, after in ((row, False), (row - 1, True)) if 0 <= at < len(lines)
    )
    return next(
        (
            (other.id, after)
            for other, after in beside
            if moved and other is not moved and can_swap(moved, other)
        ),
        None,
    )


def needs(spec: Spec) -> str:
    """Return what a job requests, such as "2 × h100 · 20 GiB · priority 5"."""
    noun = spec.gpu_type or ("CPU" if spec.kind == "cpu" else "GPU")
    parts = [f"{spec.gpus} × {noun}" if spec.gpus > 1 else noun] if spec.gpus else []
    parts += [tr_decimal(amount(spec.memory))] if spec.memory else []
    parts += [tr("priority {n}", n=spec.priority)] if spec.priority else []
    parts += [spec.group] if spec.group else []
    return " · ".join(parts)


def stop_question(running: Sequence[Job], waiting: int, now: float) -> str:
    """Return the question that is asked before running jobs are stopped.

    Args:
        running: The jobs that run.
        waiting: The number of waiting jobs that are to be removed with them.
        now: Seconds since the epoch.
    """
    times = [now - at for job in running if (at := job.started) is not None]
    longest = duration(max(times, default=0.0))
    if len(running) == 1:
        name = running[0].spec.name[:60]
        parts = [
            tr("Stop job {job} ({name})?", job=running[0].id, name=name),
            tr("It has run for {time}, and what it has not saved is lost.", time=longest),
        ]
    else:
        total = duration(sum(times))
        parts = [
            tr("Stop {n} running jobs?", n=len(running)),
            tr(
                "They have run for {time} in all, and what they have not saved is lost.", time=total
            ),
        ]
    if waiting:
        parts.append(
            tr_count(
                "{n} queued job will be removed, too.",
                "{n} queued jobs will be removed, too.",
                waiting,
            )
        )
    return " ".join(parts)


def removed_text(jobs: Sequence[int]) -> str:
    """Return what the notice says after queued jobs were cancelled."""
    if len(jobs) == 1:
        return tr("Job {job} was removed from the queue", job=jobs[0])
    return tr("{n} queued jobs were removed from the queue", n=len(jobs))
