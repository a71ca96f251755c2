"""The queue: the one place where a job changes its state. Every change is committed before anybody hears of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from scheduler.executors import base
from scheduler.executors.cluster import Cluster
from scheduler.protocol import paths
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Cancelled, Cancelling, Event, Failed, Job, Running, Starting
from scheduler.queue import selection as named
from scheduler.queue import timeline as story
from scheduler.queue.orders import UNSEEN, slots
from scheduler.queue.placement import Availability
from scheduler.queue.policy import plan
from scheduler.queue.progress_reader import Tail
from scheduler.queue.reaper import RETRY_S, Settling
from scheduler.store import Store, environments

NONE: Mapping[str, Cluster] = {}
STARTS = 8
"""How many jobs are started in one go."""


class Queue(Settling):
    """Owns the jobs. Not thread-safe: lives in the daemon's loop.

    `evict(device, words)` is called for each device that the assistant must leave, before the job is started.
    """

    def __init__(
        self,
        store: Store,
        watch: Callable[[int, int], None],
        on_end: Callable[[Job], None] = lambda job: None,
        clusters: Mapping[str, Cluster] = NONE,
        evict: Callable[[str, str], None] = lambda device, words: None,
        log_limit: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(store, watch, on_end, clusters, log_limit)
        self._evict = evict

    def cancel(self, job_id: int) -> Job:
        """A job that waits is cancelled at once; one that runs is told to end. Raises NotFound, UserError where it ended already."""
        job = self.get(job_id)
        if not job.active:
            raise UserError(f"job {job_id} has ended already: {job.status}")
        self._cancel([self._active[job_id]])
        return self.get(job_id)

    def cancel_many(
        self, jobs: Sequence[int], ranges: Sequence[tuple[int, int]], array: int | None, group: str
    ) -> Cancelling:
        """All that is named, in one transaction. Raises UserError where nothing or too much is, NotFound where the array is not there."""
        if not jobs and not ranges and array is None and not group:
            raise UserError("name what to cancel: jobs, an array or a group")
        named.refuse(jobs, ranges)
        wanted = named.within(self._active, ranges) | (self._active.keys() & set(jobs))
        if array is not None:
            wanted |= named.of_array(self.get(array), self._active)
        if group:
            wanted |= {number for number, job in self._active.items() if job.spec.group == group}
        over = set(jobs) - wanted
        there = self._store.existing(over)
        self._cancel([self._active[number] for number in sorted(wanted)])
        ending = wanted & self._active.keys()
        found = (wanted - ending, ending, there, over - there)
        return Cancelling(*(tuple(sorted(numbers)) for numbers in found))

    def _cancel(self, jobs: Sequence[Job]) -> None:
        """Those that wait have ended with this; those that run are told to end, once. Raises UserError where the former cannot be."""
        now = time.time()
        running = [
            msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, stopping=True))
            for job in jobs
            if isinstance(job.state, Running) and not job.state.stopping
        ]
        waiting = [
            msgspec.structs.replace(job, state=Cancelled(now))
            for job in jobs
            if not isinstance(job.state, Running)
        ]
        told, never = Event(now, "told to end"), Event(now, "cancelled", "before it ran")
        trouble: UserError | None = None
        try:
            self._put_all(
                [*((job, (told,)) for job in running), *((job, (never,)) for job in waiting)]
            )
        except UserError as e:  # a full disk must not keep the jobs alive that fill it; a crash before they ended forgets who ended them
            trouble = e
            for job in running:
                self._know(job)
        self._told.extend(job.id for job in running)
        self._end()
        if trouble is not None and waiting:
            raise trouble

    @property
    def unfinished(self) -> bool:
        return super().unfinished or any(
            start.job.id in self._line for start in self._plan.starts[STARTS:]
        )

    def plan(self, devices: Sequence[Device], sight: Availability = UNSEEN) -> None:
        """See what can start, and why the rest waits; nothing is started. The assistant is told at once to leave what is needed."""
        self._plan = plan(
            self.running, self._lanes(), devices, self.paused, slots(), self._around(sight)
        )
        if sight.leased:
            needed = {
                device: start.job.id for start in self._plan.starts for device in start.devices
            }
            claims = self._plan.claims()
            for device in sight.leased & {**claims, **needed}.keys():
                self._evict(
                    device,
                    f"job {needed[device]} starts"
                    if device in needed
                    else f"job {claims[device]} waits",
                )

    def _open_gates(self, devices: Sequence[Device], sight: Availability) -> None:
        """Let those jobs run whose devices the assistant has left by now."""
        for job_id in tuple(self._gates):
            job = self._active[job_id]
            assert isinstance(job.state, Running)
            if not sight.leased & set(job.state.devices):
                self._executor(job).release(job, job.state, self._gates.pop(job_id), devices)

    def step(self, devices: Sequence[Device], sight: Availability = UNSEEN) -> None:
        """Start what can start and say why the rest waits.

        A job that cannot be started waits a while and holds up nobody. Raises UserError, at the end, while there is one.
        """
        self._end()
        self._wake()
        self._bind(devices)
        self._drop_broken()
        self.plan(devices, sight)
        self._open_gates(devices, sight)
        while self._start_planned(
            devices, sight
        ):  # one of them never will: others may have its place
            self._drop_broken()
            self.plan(devices, sight)
        for _, why in self._refused.values():
            raise UserError(why)

    def _start_planned(self, devices: Sequence[Device], sight: Availability) -> bool:
        """Whether one of them turned out to be none that can be started: it has ended, or is held."""
        left = False
        for start in self._plan.starts[:STARTS]:
            try:
                self._start(start.job, start.devices, devices, sight)
                left |= start.job.id not in self._going
            except UserError as e:
                self._refused[start.job.id] = (time.monotonic() + RETRY_S, str(e))
        return left

    def _start(
        self, job: Job, held: tuple[str, ...], devices: Sequence[Device], sight: Availability
    ) -> None:
        """Commit the attempt, start its runner, commit who that is, and only then let it run. Raises UserError; the job then waits on."""
        attempt, now, executor = secrets.token_hex(16), time.time(), self._executor(job)
        try:
            env = self._store.env(job.id)
        except environments.EnvironmentLost:
            self._put(*environments.held(job, now))
            return
        self._put(msgspec.structs.replace(job, state=Starting(attempt, held, now)))
        try:
            try:
                running = executor.prepare(job, attempt, held)
            except base.FolderError as e:
                failed = Failed(now, now, str(e))
                self._put(msgspec.structs.replace(job, state=failed), story.ended(failed))
                return
            try:
                job = self._put(
                    msgspec.structs.replace(job, state=running),
                    story.started(job, held, devices, now),
                )
            except UserError:
                executor.abandon(running)
                raise
        except UserError:
            self._know(job)
            raise
        self._tails[job.id] = Tail(paths.job_folder(job.id) / base.LOG_FILE)
        if sight.leased & set(held):
            self._gates[job.id] = env
        else:
            executor.release(job, running, env, devices)

    def stand_by(self) -> None:
        """Be ready to start the next job at once. To be called when there is time."""
        self._local.stand_by()

    # What the executors of clusters need to know, and to tell

    def jobs_on(self, where: str) -> list[Job]:
        """The jobs that were started there and have not ended."""
        return [job for job in self.running if job.spec.where == where]

    def environment(self, job_id: int) -> dict[str, str]:
        """The environment it was submitted with. Raises UserError."""
        return self._store.env(job_id)

    def acknowledge(self, job_id: int) -> None:
        """Its cluster has the attempt."""
        job = self._active[job_id]
        if isinstance(job.state, Running) and not job.state.known:
            job = msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, known=True))
            try:
                self._put(job, Event(time.time(), "acknowledged", f"by {job.spec.where}"))
            except UserError:
                self._know(job)  # a full disk; the cluster will say it to the next daemon, too

    def set_note(self, job_id: int, note: str) -> None:
        """What holds it up in its cluster. For display: the next daemon hears it anew."""
        job = self._active[job_id]
        if isinstance(job.state, Running):
            self._know(
                msgspec.structs.replace(job, state=msgspec.structs.replace(job.state, note=note))
            )
