"""Answer questions about jobs: single jobs, lists, searches and timelines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from heapq import nlargest

import msgspec

from gpudeck.scheduler.protocol.jobs import Event, Job, Queued, listed
from gpudeck.scheduler.protocol.search import MAX_LISTED, NEWEST, Search
from gpudeck.scheduler.protocol.turns import PART, Work, parts
from gpudeck.scheduler.protocol.wait_texts import render
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.policy import is_due
from gpudeck.scheduler.queue.transitions import with_wait
from gpudeck.scheduler.store import Store

NEXT = 200
"""The number of waiting jobs that a snapshot shows: those that are served first."""


class JobQueries:
    """Answer questions about jobs.

    The reason why a job waits is not stored but computed for each answer.
    """

    def __init__(self, store: Store, index: JobIndex, planner: Planner) -> None:
        self._store, self._index, self._planner = store, index, planner

    def get(self, job_id: int) -> Job:
        """Return a job. Raises NotFound."""
        if job_id in self._index.active:
            return self._current(job_id)
        return self._store.get(job_id)

    def owners(self, jobs: Iterable[int]) -> dict[int, int | None]:
        """Return the users of those of these jobs that exist."""
        return self._store.owners(jobs)

    def overview(self) -> tuple[Job, ...]:
        """Return the jobs that run, are served next or ended last, in the short form of a list,
        newest first."""
        ids = (*self._index.running, *self._index.waiting.next(NEXT))
        active = (listed(self._current(number)) for number in ids)
        return tuple(sorted((*active, *self._index.ended), key=lambda job: -job.id))

    def newest(self, limit: int, active: bool) -> Work[tuple[Job, ...]]:
        """Return the newest jobs, at most MAX_LISTED, in the short form of a list."""
        left, before, found = max(0, min(limit, MAX_LISTED)), NEWEST, list[Job]()
        if active:
            for part in parts(nlargest(left, self._index.active)):
                known = (self._index.active.get(number) for number in part)
                found += [listed(self._current(job.id)) for job in known if job is not None]
                yield
            return tuple(found)
        while left and (some := self._store.recent(min(PART, left), before)):
            found += self._with_reasons(some)
            before, left = some[-1].id, left - len(some)
            yield
        return tuple(found)

    def find(
        self, search: Search, before: int, limit: int, viewer: int | None = None
    ) -> tuple[tuple[Job, ...], int | None]:
        """Return at most MAX_LISTED jobs that match a search; see `Store.find`."""
        found, more = self._store.find(search, before, max(1, min(limit, MAX_LISTED)), viewer)
        return self._with_reasons(found), more

    def timeline(self, job_id: int) -> tuple[Event, ...]:
        """Return the events of a job, oldest first. Raises NotFound."""
        return tuple(self._store.timeline(self.get(job_id).id))

    def _with_reasons(self, stored: Iterable[Job]) -> tuple[Job, ...]:
        active = self._index.active
        return tuple(listed(self._current(job.id)) if job.id in active else job for job in stored)

    def _current(self, job_id: int) -> Job:
        """Return a job that has not ended, with the reason if it waits, or cannot come back yet."""
        job, now = self._index.active[job_id], time.time()
        if is_due(job, now):
            return with_wait(job, self._planner.return_reason(job))
        if not isinstance(job.state, Queued):
            return job
        reason = self._planner.reason(job, now)
        state = msgspec.structs.replace(job.state, reason=render(reason, now), wait=reason)
        return msgspec.structs.replace(job, state=state)
