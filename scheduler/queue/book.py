"""The jobs that the queue knows, and what has to be known of them at every pass, kept up to date with each change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from scheduler.devices.model import Device
from scheduler.jobs import Cancelled, Event, Job, Queued, listed
from scheduler.messages import MAX_LISTED
from scheduler.queue.admit import bound
from scheduler.queue.depend import broken, waits_for
from scheduler.queue.expected import End, expected_end
from scheduler.queue.line import Line
from scheduler.queue.placement import Sight
from scheduler.queue.policy import Around
from scheduler.queue.retry import resting, rests
from scheduler.search import Search
from scheduler.store import Store

RECENT = 50
"""How many ended jobs a snapshot shows."""


class Book:
    """Every change goes through `_put`, which commits it before anybody hears of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._active: dict[int, Job] = {}
        self._line = Line()
        self._unbound: set[int] = set()
        """Jobs for devices of a kind that was not known when they were submitted."""
        self._resting: set[int] = set()
        """Jobs that failed and are to wait a while before they are tried again."""
        self._dependent: set[int] = set()
        """Jobs that wait for others to end."""
        self._outcomes: dict[int, str] = {}
        """How jobs ended after which others were to run."""
        self._groups = {group.name: group for group in store.groups()}
        for job in store.active():
            self._know(job)
        self._ended: list[Job] = [job for job in store.recent(RECENT + len(self._active)) if not job.active][:RECENT]

    def jobs(self) -> tuple[Job, ...]:
        """Active jobs and those that ended last, newest first, without large results."""
        return tuple(sorted((*self._active.values(), *self._ended), key=lambda j: -j.id))

    @property
    def active(self) -> list[Job]:
        """Jobs that wait or run, oldest first."""
        return sorted(self._active.values(), key=lambda j: j.id)

    def get(self, job_id: int) -> Job:
        """Raises NotFound."""
        return self._active.get(job_id) or self._store.get(job_id)

    def newest(self, limit: int, active: bool) -> tuple[Job, ...]:
        """The newest jobs first, MAX_LISTED at most, without large results."""
        if active:
            return tuple(reversed(self.active))[: max(0, min(limit, MAX_LISTED))]
        return tuple(self._active.get(job.id, job) for job in self._store.recent(max(0, min(limit, MAX_LISTED))))

    def find(self, search: Search, before: int, limit: int) -> tuple[tuple[Job, ...], int | None]:
        """See `Store.find`; MAX_LISTED jobs at most."""
        found, on = self._store.find(search, before, max(1, min(limit, MAX_LISTED)))
        return tuple(self._active.get(job.id, job) for job in found), on

    def timeline(self, job_id: int) -> tuple[Event, ...]:
        """What the job went through, oldest first. Raises NotFound."""
        return tuple(self._store.timeline(self.get(job_id).id))

    @property
    def going(self) -> list[Job]:
        """Jobs that were started and have not ended."""
        return [self._active[job_id] for job_id in sorted(self._active.keys() - self._line.ids())]

    @property
    def waits_for_devices(self) -> bool:
        """Whether a job waits whose start may depend on what is read of the devices."""
        return any(self._active[job_id].spec.gpus for job_id in self._line)

    def due(self, now: float) -> bool:
        """Whether a job that was to wait for another attempt may be started now."""
        return any(not rests(self._active[job_id], now) for job_id in self._resting)

    def _around(self, sight: Sight) -> Around:
        now = time.time()
        ends = {job.id: end for job in self.going if (end := expected_end(job, now)) is not None}
        return Around(sight, ends, now, self._kept(ends), self._groups)

    def _kept(self, ends: Mapping[int, End]) -> dict[int, str]:
        """Jobs that are not to start whatever is free, and why."""
        now = time.time()
        waits = {job_id: waits_for(self._active[job_id].spec, self._active, ends, now) for job_id in self._dependent}
        self._resting = {job_id for job_id in self._resting if job_id in self._line and rests(self._active[job_id], now)}
        rest = {job_id: resting(self._active[job_id]) for job_id in self._resting}
        return {job_id: why for job_id, why in waits.items() if why} | rest

    def _status(self, job_id: int) -> str:
        """Of a job that has ended."""
        if job_id not in self._outcomes:
            self._outcomes[job_id] = self._store.get(job_id).status
        return self._outcomes[job_id]

    def _drop_broken(self) -> None:
        """Cancel jobs that were to run after one that did not succeed, and in turn those that were to run after them."""
        for job_id in sorted(self._dependent):  # a job comes after those it names
            job = self._active[job_id]
            if why := broken(job.spec, self._active, self._status):
                now = time.time()
                self._put(msgspec.structs.replace(job, state=Cancelled(now, reason=why)), Event(now, "cancelled", why))

    def _bind(self, devices: Sequence[Device]) -> None:
        for job in [self._active[job_id] for job_id in sorted(self._unbound)]:
            if (spec := bound(job.spec, devices)).kind:
                self._put(msgspec.structs.replace(job, spec=spec))

    def _tell(self, job_id: int, reason: str) -> None:
        """Why it waits, for display: it is worked out anew after a crash, so it need not be stored."""
        job = self._active[job_id]
        if isinstance(job.state, Queued) and job.state.reason != reason:
            self._active[job_id] = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, reason=reason))

    def _put(self, job: Job, *events: Event) -> Job:
        self._store.update(job, *events)
        self._know(job)
        return job

    def _know(self, job: Job) -> None:
        """The job is as given now."""
        self._line.put(job)
        self._unbound.discard(job.id)
        self._resting.discard(job.id)
        self._dependent.discard(job.id)
        if isinstance(job.state, Queued):
            if job.state.until:
                self._resting.add(job.id)
            if job.spec.after or job.spec.after_any:
                self._dependent.add(job.id)
        if job.active:
            self._active[job.id] = job
            if job.spec.gpus and not job.spec.kind:
                self._unbound.add(job.id)
        else:
            self._active.pop(job.id, None)
            self._ended = [listed(job), *self._ended][:RECENT]
