"""The index of jobs: what every pass over the queue must know of them, kept up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.errors import NotFound, no_job
from gpudeck.scheduler.protocol.jobs import Event, Job, Queued, Starting, held_devices, listed, over
from gpudeck.scheduler.protocol.schedule import expected_end
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.wait_reasons import End, FolderUnreadable, WaitReason
from gpudeck.scheduler.queue.dependencies import Dependents
from gpudeck.scheduler.queue.lanes import Lanes
from gpudeck.scheduler.queue.transitions import Change
from gpudeck.scheduler.store import Store

RECENT = 50
"""How many ended jobs a snapshot shows."""
RETRY_S = 2.0
"""A job that could not be started is tried again after this long."""


class JobIndex:
    """Keep the jobs that have not ended. Every change is committed before it is visible here."""

    def __init__(self, store: Store, on_end: Callable[[Job], None]) -> None:
        """Read the jobs from the store.

        Args:
            on_end: called with each job that ends.
        """
        self._store, self._on_end = store, on_end
        self.active: dict[int, Job] = {}
        """Jobs that have not ended."""
        self.running: dict[int, Job] = {}
        """Jobs that were started and have not ended."""
        self.waiting = Lanes()
        self.dependents = Dependents()
        self.suspects: set[int] = set()
        """Jobs that run after others of which one has ended: perhaps they never can. None of them
        is started before that is known."""
        self.leaving: set[int] = set()
        """Jobs that wait and are being cancelled: none of them is started."""
        self.damaged: set[int] = set()
        """Jobs that wait and do not match their checksums: none of them is started."""
        self.unbound: set[int] = set()
        """Jobs for devices of a kind that was not known when they were submitted."""
        self.delayed: set[int] = set()
        """Jobs that failed and wait a while before their next attempt."""
        self.scheduled: set[int] = set()
        """Jobs that wait and do not start before a time of their user's choice."""
        self.not_started: dict[int, tuple[float, WaitReason]] = {}
        """Jobs that could not be started: when to try again (monotonic seconds), and why."""
        self.unmoved: dict[int, float] = {}
        """Jobs that could not be suspended: when to try again (monotonic seconds)."""
        self.unknown: dict[int, FolderUnreadable] = {}
        """Jobs that wait, and may have run, as their folders cannot be read: none is started."""
        self.unrestored: Message | None = None
        """Why the jobs that the store lost could not be restored yet; None where they could."""
        self._unusable: dict[int, float] = {}
        """When the folders of waiting jobs were first found to be unusable."""
        self._outcomes: dict[int, str] = {}
        """How jobs ended after which others were to run."""
        self.ended: list[Job] = []
        """The jobs that ended last, as they are listed."""
        for job in store.active():
            self.update(job)
        self.suspects |= {n for n in self.waiting if self.active[n].spec.after}
        recent = store.recent(RECENT + len(self.active))
        self.ended = [job for job in recent if not job.active][:RECENT]

    def commit(self, job: Job, *events: Event) -> Job:
        """Store the job as it is now, with events for its timeline, and then show it."""
        self._store.update(job, *events)
        self.update(job)
        return job

    def commit_all(self, changes: Sequence[Change]) -> None:
        """Store what became of several jobs in one transaction, and then show it."""
        if changes:
            self._store.update_all(changes)
        for job, _ in changes:
            self.update(job)

    def restore(
        self, jobs: Collection[Job], submissions: Collection[SubmissionRecord]
    ) -> list[int]:
        """Restore those of these jobs that the store lost, with what they were submitted with.

        Returns the numbers of those that have not ended.
        """
        restored = {job.id: job for job in self._store.restore_lost(jobs, submissions)}
        self.ended = [job for job in self.ended if job.id not in restored]
        for job in restored.values():
            self.update(job)
        return [number for number, job in restored.items() if job.active]

    def update(self, job: Job) -> None:
        """Show the job as it is now."""
        waits = isinstance(job.state, Queued)
        self.waiting.update(job)
        self.unbound.discard(job.id)
        (self.damaged.add if job.damaged and waits else self.damaged.discard)(job.id)
        self.delayed.discard(job.id)
        self.scheduled.discard(job.id)
        self.running.pop(job.id, None)
        if job.active:
            self.active[job.id] = job
            if not waits:
                self.running[job.id] = job
            if job.spec.gpus and not job.spec.kind and not job.spec.where:
                self.unbound.add(job.id)
        else:
            self.ended = [listed(job), *self.ended][:RECENT]
            if self.active.pop(job.id, None) is not None:
                self._on_end(job)
        if isinstance(job.state, Queued) and job.state.until:
            self.delayed.add(job.id)
        if waits and job.spec.begin:
            self.scheduled.add(job.id)
        if not waits:
            self.not_started.pop(job.id, None)
            self.unknown.pop(job.id, None)
        if not isinstance(job.state, Queued | Starting):
            self._unusable.pop(job.id, None)
        self.suspects |= self.dependents.update(job, self.active)

    def add(self, job: Job) -> None:
        """Show a job that was stored a while ago."""
        self.update(job)
        if job.spec.after:  # one of those before it may have failed meanwhile
            self.suspects.add(job.id)

    def revive(self, job: Job) -> None:
        """Show a job that had ended and waits again, which is stored already."""
        self.ended = [one for one in self.ended if one.id != job.id]
        self._outcomes.pop(job.id, None)
        self.add(job)

    @property
    def occupying(self) -> list[Job]:
        """Return the running jobs without those whose processes are known to have ended."""
        return [job for job in self.running.values() if not over(job)]

    @property
    def idle_devices(self) -> frozenset[str]:
        """Return the devices of jobs that run only while these are idle."""
        idle = (job for job in self.running.values() if job.spec.when_idle)
        return frozenset(device for job in idle for device in held_devices(job))

    def delay_start(self, job_id: int, reason: WaitReason, tries: int = 0) -> None:
        """Try the job again later, as it could not be started now: the later, the more tries."""
        self.not_started[job_id] = (time.monotonic() + RETRY_S * 2**tries, reason)

    def delay_folder(self, job_id: int, problem: Message) -> None:
        """Try the job again later, as its folder could not be used now."""
        since = self._unusable.setdefault(job_id, time.time())
        found = FolderUnreadable(since, problem)
        self.not_started[job_id] = (time.monotonic() + RETRY_S, found)

    def outcome(self, job_id: int) -> str | None:
        """Return the status that a job ended with; None while it has not ended.

        A job that is not in the store any more, as a repair could not save it, is lost.
        """
        if job_id in self.active:
            return None
        if job_id not in self._outcomes:
            try:
                self._outcomes[job_id] = self._store.get(job_id).status
            except NotFound:
                self._outcomes[job_id] = "lost"
        return self._outcomes[job_id]

    def read_outcomes(self, jobs: Collection[int]) -> None:
        """Read at once how these jobs ended. Raises NotFound where one does not exist."""
        unread = set(jobs) - self.active.keys() - self._outcomes.keys()
        if unread:
            found = self._store.statuses(unread)
            if missing := unread - found.keys():
                raise NotFound(no_job(min(missing)))
            self._outcomes |= found

    def expected_ends(self, now: float, jobs: Iterable[int]) -> dict[int, End]:
        """Return when those of the jobs that run are expected to end, as far as that is known."""
        running = {number: self.running[number] for number in jobs if number in self.running}
        ends = {number: expected_end(job, now) for number, job in running.items()}
        return {number: end for number, end in ends.items() if end is not None}
