"""Cancel jobs, and ask those that run to end."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from gpudeck.language.text import Message, Text, phrase
from gpudeck.scheduler.attempts import Executors
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Cancelling, Job, Running
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.dependencies import failed_dependency
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.transitions import (
    cancelled_before_start,
    cancelled_for_dependency,
    cancelled_unreadable,
    stopping,
)
from gpudeck.scheduler.queue.undo import UndoBuffer
from gpudeck.scheduler.store import Store

MAX_NAMED = 100_000
"""Numbers and ranges in one request."""
BATCH = 50
"""How many jobs are asked to end in one go."""
STORED = 100
"""How many jobs are changed in one transaction."""
MAX_CHECKED = 500
"""How many jobs are checked in one go whether they can still run."""


class Canceller:
    """Cancel waiting jobs at once, and have running ones end."""

    def __init__(
        self, store: Store, index: JobIndex, queries: JobQueries, executors: Executors
    ) -> None:
        self._store, self._index, self._queries = store, index, queries
        self._executors = executors
        self.undo = UndoBuffer(store, index)
        self._to_end: deque[int] = deque()
        """Jobs whose cancellation was committed, and whose attempts were not asked to end yet."""

    @property
    def unfinished(self) -> bool:
        """Return whether jobs are left to be asked to end, or to be checked."""
        return bool(self._to_end or self._index.suspects)

    def cancel(self, job_id: int) -> None:
        """Cancel a job. Raises NotFound, UserError where it has ended."""
        job = self._queries.get(job_id)
        if not job.active:
            raise UserError(
                phrase("job {job} has ended already: {status}", job=job_id, status=Text(job.status))
            )
        self._cancel([self._index.active[job_id]])

    def cancel_many(
        self, jobs: Sequence[int], ranges: Sequence[tuple[int, int]], array: int | None, group: str
    ) -> Work[Cancelling]:
        """Cancel all jobs that are named, part by part.

        Each part is on disk before the next one, and none of the jobs starts meanwhile.

        Args:
            ranges: first and last number of each.
            array: number of any job of an array.

        Raises:
            UserError: nothing or too much is named, or the disk refuses it: those before stay
                cancelled then.
            NotFound: there is no such array.
        """
        if not jobs and not ranges and array is None and not group:
            raise UserError(phrase("name what to cancel: jobs, an array or a group"))
        _check_named(jobs, ranges)
        active = self._index.active
        wanted = within(active, ranges) | (active.keys() & set(jobs))
        if array is not None:
            wanted |= of_array(self._queries.get(array), active)
        if group:
            wanted |= {number for number, job in active.items() if job.spec.group == group}
        over = set(jobs) - wanted
        known = self._store.existing(over)
        self._index.leaving |= wanted
        try:
            for part in parts(sorted(wanted), STORED):
                self._cancel([active[number] for number in part if number in active])
                yield
        finally:
            self._index.leaving -= wanted
        ending = wanted & active.keys()
        found = (wanted - ending, ending, known, over - known)
        return Cancelling(*(tuple(sorted(numbers)) for numbers in found))

    def _cancel(self, jobs: Sequence[Job]) -> None:
        """Cancel jobs. Raises UserError where that of the waiting ones cannot be stored."""
        now = time.time()
        running = [
            stopping(job, job.state, now)
            for job in jobs
            if isinstance(job.state, Running) and not job.state.stopping and not job.state.over
        ]
        waiting = [
            cancelled_before_start(job, now) for job in jobs if not isinstance(job.state, Running)
        ]
        waiting += [
            cancelled_unreadable(job, job.state, now)
            for job in jobs
            if isinstance(job.state, Running) and job.state.over
        ]
        envs = self.undo.environments(jobs)
        problem: UserError | None = None
        try:
            self._index.commit_all([*running, *waiting])
        except UserError as e:
            # a full disk must not keep the jobs alive that fill it; if the daemon crashes before
            # they ended, it is forgotten that they were cancelled
            problem = e
            for job, _ in running:
                self._index.update(job)
        else:
            self.undo.keep(jobs, envs)
        self.end_later(job for job, _ in running)
        self.end_next()
        if problem is not None and waiting:
            raise problem

    def end_later(self, jobs: Iterable[Job]) -> None:
        """Have these attempts asked to end."""
        self._to_end.extend(job.id for job in jobs)

    def end_next(self) -> None:
        """Ask the next attempts to end.

        Not all at once: each wakes its runner, and whoever wakes thousands stalls for seconds.
        """
        for _ in range(min(BATCH, len(self._to_end))):
            job = self._index.running.get(self._to_end.popleft())
            if job is not None and isinstance(job.state, Running):
                self._executors.of(job.spec.where).end(job)

    def cancel_unable(self) -> None:
        """Cancel jobs that were to run after one that did not succeed, and those after them.

        MAX_CHECKED of them are checked, in one transaction. If the daemon ends before the next
        ones are, the next daemon checks them.
        """
        index, now = self._index, time.time()
        reasons: dict[int, Message] = {}

        def outcome(number: int) -> str | None:
            return "cancelled" if number in reasons else index.outcome(number)

        suspects = deque(sorted(index.suspects & index.waiting.ids()))
        for _ in range(MAX_CHECKED):
            if not suspects:
                break
            number = suspects.popleft()
            failed = failed_dependency(index.active[number].spec, outcome)
            if failed is not None and number not in reasons:
                reasons[number] = explain(failed, now)
                suspects.extend(sorted(index.dependents.after([number])))
        unable = [index.active[number] for number in reasons]
        envs = self.undo.environments_of_followers(unable)
        index.commit_all(
            [cancelled_for_dependency(index.active[n], why, now) for n, why in reasons.items()]
        )
        self.undo.keep_followers(unable, envs)
        index.suspects = set(suspects)


def _check_named(jobs: Sequence[int], ranges: Sequence[tuple[int, int]]) -> None:
    """Raise UserError where too much is named, or a range makes no sense."""
    if len(jobs) + len(ranges) > MAX_NAMED:
        raise UserError(
            phrase(
                "up to {limit} numbers can be named at once: name ranges, "
                "such as 9-200, an array or a group",
                limit=MAX_NAMED,
            )
        )
    for first, last in ranges:
        if last < first:
            raise UserError(
                phrase(
                    "ranges go upwards, as in {last}-{first}; got {first}-{last}",
                    last=last,
                    first=first,
                )
            )


def within(ids: Iterable[int], ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Return those of the numbers that are in one of the ranges, first and last included.

    The work grows with the numbers there are, not with the length of the ranges.
    """
    ordered, found, done = sorted(ids), set[int](), 0
    for first, last in sorted(ranges):
        start, end = max(bisect_left(ordered, first), done), bisect_right(ordered, last)
        found.update(ordered[start:end])
        done = max(done, end)
    return found


def of_array(job: Job, jobs: Mapping[int, Job]) -> set[int]:
    """Return the jobs that were submitted in one array with this one.

    Raises UserError where it belongs to none.
    """
    if job.spec.index is None:
        raise UserError(phrase("job {job} is not part of an array", job=job.id))
    whole = (job.submitted, job.spec.argv)
    return {
        number
        for number, other in jobs.items()
        if other.spec.index is not None and (other.submitted, other.spec.argv) == whole
    }
