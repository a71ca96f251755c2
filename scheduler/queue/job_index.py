"""The jobs that the queue knows, and what has to be known of them at every pass, kept up to date with each change."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

import msgspec

from scheduler.executors.cluster import Cluster
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import NotFound
from scheduler.protocol.jobs import Cancelled, Event, Job, Queued, listed
from scheduler.protocol.search import MAX_LISTED, Search
from scheduler.queue.admission import bound
from scheduler.queue.dependencies import Dependents, broken, waits_for
from scheduler.queue.expected_end import End, expected_end
from scheduler.queue.lanes import Lanes, Requirements
from scheduler.queue.placement import Availability
from scheduler.queue.policy import NOTHING, Conditions
from scheduler.queue.retry import resting, rests
from scheduler.store import Store, environments

RECENT = 50
"""How many ended jobs a snapshot shows."""
NEXT = 200
"""How many waiting jobs a snapshot shows: those whose turn comes first."""
PIECE = 500
"""How many jobs are settled in one go where one event concerns many: the daemon answers between two."""

Change = tuple[Job, Sequence[Event]]
"""What became of a job, and what its timeline says of that."""


class Book:
    """Every change goes through `_put`, which commits it before anybody hears of it."""

    def __init__(
        self, store: Store, on_end: Callable[[Job], None], clusters: Mapping[str, Cluster]
    ) -> None:
        self._store, self._on_end, self._clusters = store, on_end, clusters
        self.paused = store.paused()
        self._active: dict[int, Job] = {}
        self._going: dict[int, Job] = {}
        self._line = Lanes()
        self._dependents = Dependents()
        self._suspects: set[int] = set()
        """Jobs that are to run after others of which one has ended: perhaps they never can. None is started before that is known."""
        self._unbound: set[int] = set()
        """Jobs for devices of a kind that was not known when they were submitted."""
        self._resting: set[int] = set()
        """Jobs that failed and are to wait a while before they are tried again."""
        self._refused: dict[int, tuple[float, str]] = {}
        """Jobs that could not be started: when to try again (monotonic seconds), and why."""
        self._plan = NOTHING
        """Of the last pass."""
        self._outcomes: dict[int, str] = {}
        """How jobs ended after which others were to run."""
        self._groups = {group.name: group for group in store.groups()}
        self._ended: list[Job] = []
        for job in store.active():
            self._know(job)
        self._suspects |= {n for n in self._line if self._active[n].spec.after}
        self._ended = [job for job in store.recent(RECENT + len(self._active)) if not job.active][
            :RECENT
        ]

    def jobs(self) -> tuple[Job, ...]:
        """Those that run, those that are next and those that ended last, as they are listed; newest first."""
        active = (
            *self._going.values(),
            *(self.shown(self._active[number]) for number in self._line.next(NEXT)),
        )
        return tuple(sorted((*map(listed, active), *self._ended), key=lambda j: -j.id))

    @property
    def running(self) -> list[Job]:
        """Jobs that were started and have not ended."""
        return list(self._going.values())

    @property
    def waiting(self) -> int:
        """How many jobs wait."""
        return len(self._line)

    @property
    def waits_for_devices(self) -> bool:
        """Whether a job waits whose start may depend on what is read of the devices."""
        return self._line.for_devices

    def get(self, job_id: int) -> Job:
        """Raises NotFound."""
        job = self._active.get(job_id)
        return self._store.get(job_id) if job is None else self.shown(job)

    def newest(self, limit: int, active: bool) -> tuple[Job, ...]:
        """The newest jobs first, MAX_LISTED at most, as they are listed."""
        limit = max(0, min(limit, MAX_LISTED))
        if active:
            return tuple(
                listed(self.shown(self._active[number])) for number in nlargest(limit, self._active)
            )
        return self._now(self._store.recent(limit))

    def find(self, search: Search, before: int, limit: int) -> tuple[tuple[Job, ...], int | None]:
        """See `Store.find`; MAX_LISTED jobs at most."""
        found, on = self._store.find(search, before, max(1, min(limit, MAX_LISTED)))
        return self._now(found), on

    def _now(self, found: Iterable[Job]) -> tuple[Job, ...]:
        """What the store found, as it is listed, told why it waits."""
        return tuple(
            listed(self.shown(self._active[job.id])) if job.id in self._active else job
            for job in found
        )

    def timeline(self, job_id: int) -> tuple[Event, ...]:
        """What the job went through, oldest first. Raises NotFound."""
        return tuple(self._store.timeline(self.get(job_id).id))

    def shown(self, job: Job) -> Job:
        """The job, told why it waits. Nothing of that is stored: after a crash it is worked out anew."""
        if not isinstance(job.state, Queued):
            return job
        return msgspec.structs.replace(job, state=Queued(self._why(job), job.state.until))

    def _why(self, job: Job) -> str:
        if job.id in self._refused:
            return self._refused[job.id][1]
        if environments.is_held(job):
            return environments.LOST
        if self.paused:
            return "the queue is paused"
        now = time.time()
        if job.id in self._dependents.ids():
            return waits_for(
                job.spec, self._active, self._ends(now, (*job.spec.after, *job.spec.after_any)), now
            )
        if job.id in self._suspects:
            return broken(job.spec, self._fate) or "not looked at yet"
        if job.id in self._resting and rests(job, now):
            return resting(job)
        return self._plan.why(job)

    def retry_is_ready(self, now: float) -> bool:
        """Whether a job that was to wait for another attempt may be started now."""
        return any(not rests(self._active[job_id], now) for job_id in self._resting)

    def _wake(self) -> None:
        """Forget what kept jobs from being started, where its time is over: they are looked at like any other."""
        now, soon = time.time(), time.monotonic()
        self._resting = {n for n in self._resting if rests(self._active[n], now)}
        self._refused = {
            n: (until, why) for n, (until, why) in self._refused.items() if soon < until
        }

    def _around(self, sight: Availability) -> Conditions:
        now = time.time()
        troubles = {where: cluster.trouble for where, cluster in self._clusters.items()}
        return Conditions(sight, self._ends(now, self._going), now, self._groups, troubles)

    def _ends(self, now: float, jobs: Iterable[int]) -> dict[int, End]:
        """When those of the jobs that run are expected to end, as far as that is known."""
        return {
            n: end
            for n in jobs
            if n in self._going and (end := expected_end(self._going[n], now)) is not None
        }

    def _lanes(self) -> dict[Requirements, Iterator[Job]]:
        """The jobs that wait and may start."""
        now, soon = time.time(), time.monotonic()
        resting = {n for n in self._resting if rests(self._active[n], now)}
        refused = {n for n, (until, _) in self._refused.items() if soon < until}
        kept = self._dependents.ids() | self._suspects | resting | refused
        return {
            key: (self._active[n] for n in lane if n not in kept)
            for key, lane in self._line.lanes().items()
        }

    def _fate(self, job_id: int) -> str:
        """How a job has ended, empty while it has not. One that is in the store no more, as a repair could not save it, is lost."""
        if job_id in self._active:
            return ""
        if job_id not in self._outcomes:
            try:
                self._outcomes[job_id] = self._store.get(job_id).status
            except NotFound:
                self._outcomes[job_id] = "lost"
        return self._outcomes[job_id]

    @property
    def unfinished(self) -> bool:
        """Whether it is still to be seen of some jobs if they can ever run."""
        return bool(self._suspects)

    def _drop_broken(self) -> None:
        """Cancel jobs that were to run after one that did not succeed, and in turn those that were to run after them.

        PIECE of them are looked at, in one transaction. Where the daemon ends before the next, the one after it suspects the rest anew.
        """
        now, gone = time.time(), dict[int, str]()
        suspects = deque(sorted(self._suspects & self._line.ids()))
        for _ in range(PIECE):
            if not suspects:
                break
            number = suspects.popleft()
            if number not in gone and (
                why := broken(
                    self._active[number].spec, lambda n: "cancelled" if n in gone else self._fate(n)
                )
            ):
                gone[number] = why
                suspects.extend(sorted(self._dependents.after([number])))
        changes = [
            (msgspec.structs.replace(self._active[n], state=Cancelled(now, reason=why)), why)
            for n, why in gone.items()
        ]
        self._put_all([(job, (Event(now, "cancelled", why),)) for job, why in changes])
        self._suspects = set(suspects)

    def _bind(self, devices: Sequence[Device]) -> None:
        jobs = [self._active[job_id] for job_id in sorted(self._unbound)]
        found = [(job, spec) for job in jobs if (spec := bound(job.spec, devices)).kind]
        self._put_all([(msgspec.structs.replace(job, spec=spec), ()) for job, spec in found])

    def _put(self, job: Job, *events: Event) -> Job:
        self._store.update(job, *events)
        self._know(job)
        return job

    def _put_all(self, changes: Sequence[Change]) -> None:
        """In one transaction."""
        if changes:
            self._store.update_all(changes)
        for job, _ in changes:
            self._know(job)

    def _know(self, job: Job) -> None:
        """The job is as given now."""
        waits = isinstance(job.state, Queued)
        self._line.put(job)
        self._unbound.discard(job.id)
        self._resting.discard(job.id)
        self._going.pop(job.id, None)
        if job.active:
            self._active[job.id] = job
            if not waits:
                self._going[job.id] = job
            if job.spec.gpus and not job.spec.kind and not job.spec.where:
                self._unbound.add(job.id)
        else:
            self._ended = [listed(job), *self._ended][:RECENT]
            if self._active.pop(job.id, None) is not None:
                self._on_end(job)
        if isinstance(job.state, Queued) and job.state.until:
            self._resting.add(job.id)
        if not waits:
            self._refused.pop(job.id, None)
        self._suspects |= self._dependents.put(job, self._active)
