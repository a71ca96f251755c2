"""The queue: the one place where a job changes its state.

Every change is committed before anybody learns of it. The work is done by collaborators around an
index of jobs; this class combines them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

from gpudeck.language.text import Message, Text, join_texts, joined, phrase
from gpudeck.scheduler.attempts import Executors, attempt_of
from gpudeck.scheduler.protocol.devices import Device, Reading
from gpudeck.scheduler.protocol.errors import NotFound, UserError, no_job
from gpudeck.scheduler.protocol.jobs import (
    Event,
    Job,
    Progress,
    Running,
    listed,
)
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.units import list_jobs
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable, StartFailed
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.cancellation import STORED, Canceller
from gpudeck.scheduler.queue.editing import JobEditor
from gpudeck.scheduler.queue.fair_share import FairShare
from gpudeck.scheduler.queue.idle_jobs import IdleJobs
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.launcher import Launcher
from gpudeck.scheduler.queue.placement import ALL_FREE, Availability
from gpudeck.scheduler.queue.planner import GroupLimits, Planner
from gpudeck.scheduler.queue.progress_reader import ProgressFollower
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.reaper import Reaper
from gpudeck.scheduler.queue.recovery import Recovery
from gpudeck.scheduler.queue.submission import Submission
from gpudeck.scheduler.queue.suspender import Suspender
from gpudeck.scheduler.queue.transitions import acknowledged, with_note
from gpudeck.scheduler.queue.usage import UsageCollector
from gpudeck.scheduler.queue.user_limits import LimitsOf, WeeklyUse
from gpudeck.scheduler.store import Store

NAMED = 5
"""Jobs that a notice names."""


class Queue:
    """Own the jobs. Not thread-safe: it lives in the daemon's loop."""

    def __init__(
        self,
        store: Store,
        executors: Executors,
        on_end: Callable[[Job], None] = lambda job: None,
        evict: Callable[[str, Message], None] = lambda device, why: None,
        half_life: Callable[[], float] = lambda: 0.0,
        bring_back: Callable[[Job], None] = lambda job: None,
        preempt: Callable[[Job], None] = lambda job: None,
        limits_of: LimitsOf = lambda user: None,
        turns: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """Read the jobs from the store; start nothing yet.

        Args:
            on_end: called with each job that ends.
            evict: called with each device that the assistant must leave before a job starts on
                it, and why.
            half_life: returns the seconds after which GPU-hours of a user count half; 0 where users
                are not told apart.
            bring_back: called with each suspended job whose devices have room for it.
            preempt: called with each running job that is to be suspended for another one.
            limits_of: returns the limits of a user; None where there are none.
            turns: returns the seconds after which preemptible jobs of the same priority leave their
                GPUs to each other; infinity where they do not.
        """
        self._store, self._executors = store, executors
        shares = FairShare(half_life, store.ended_since)
        weekly = WeeklyUse(limits_of, store.ended_since)

        def ended(job: Job) -> None:
            shares.add(job)
            weekly.add(job)
            on_end(job)

        self._index = JobIndex(store, ended)
        self.groups = GroupLimits(store, self._index)
        self._planner = Planner(self._index, self.groups, executors, shares, weekly, turns)
        self.queries = JobQueries(store, self._index, self._planner)
        self.suspender = Suspender(self._index, self.queries, self._planner, bring_back, preempt)
        self.editor = JobEditor(store, self._index, self.queries, self._planner)
        self.submission = Submission(store, self._index, self.queries, self._planner, executors)
        self._progress = ProgressFollower(self._index)
        self._usage = UsageCollector()
        self.idle_jobs = IdleJobs(self._index, executors)

        def vacate(device: str, why: Message) -> None:
            evict(device, why)
            self.idle_jobs.leave(device, why)

        self._launcher = Launcher(
            store, self._index, self._planner, executors, self._progress, vacate
        )
        self.canceller = Canceller(store, self._index, self.queries, executors)
        self._reaper = Reaper(self._index, executors, self._launcher, self._progress, self._usage)
        self._recovery = Recovery(
            self._index, executors, self._reaper, self.canceller, self._progress
        )

    # The jobs

    @property
    def running(self) -> list[Job]:
        """Return the jobs that were started and have not ended."""
        return list(self._index.running.values())

    @property
    def waiting(self) -> int:
        """Return how many jobs wait."""
        return len(self._index.waiting)

    @property
    def waits_for_devices(self) -> bool:
        """Return whether a job waits whose start may depend on readings of the devices."""
        return self._index.waiting.need_devices or self.suspender.is_any_due

    @property
    def waits_for_idle_devices(self) -> bool:
        """Return whether a job waits for devices to be idle."""
        return self._index.waiting.need_idle_devices

    @property
    def idle_devices(self) -> frozenset[str]:
        """Return the devices of jobs that run only while these are idle."""
        return self._index.idle_devices

    @property
    def waits_for_others_devices(self) -> bool:
        """Return whether a job waits that others must leave a device to."""
        return self._index.waiting.need_others_devices or self.suspender.is_any_due

    def get(self, job_id: int) -> Job:
        """Return a job. Raises NotFound."""
        return self.queries.get(job_id)

    def listed(self, jobs: Sequence[int]) -> Work[list[Job]]:
        """Return jobs in the short form of a list, part by part. Raises NotFound."""
        found: list[Job] = []
        for part in parts(jobs):
            found += [listed(self.get(number)) for number in part]
            yield
        return found

    def add_event(self, job_id: int, what: str, text: Message) -> Job:
        """Add an event to the timeline of a job in any state. Raises NotFound, UserError."""
        return self._store.update(self.get(job_id), Event(time.time(), what, text))

    def add_events(self, jobs: Sequence[int], what: str, text: Message) -> Work[None]:
        """Add an event to the timelines of jobs in any state, part by part.

        Raises NotFound where one of them does not exist, and adds nothing then; UserError.
        """
        if missing := set(jobs) - self._store.existing(jobs):
            raise NotFound(no_job(min(missing)))
        for part in parts(jobs, STORED):
            event = Event(time.time(), what, text)
            self._store.update_all([(self.get(number), (event,)) for number in part])
            yield

    # What the daemon does by and by

    def recover(self) -> None:
        """Decide what becomes of the jobs that the last daemon left; see `Recovery.recover`."""
        self._recovery.recover()

    def checkpoint(self) -> None:
        """Make sure that no change can get lost with the write-ahead log of the store.

        Then the evidence about attempts that are over is discarded. Raises UserError.
        """
        if self._recovery.finished and self._store.checkpoint():
            active = [attempt_of(job).attempt for job in self._index.running.values()]
            self._executors.of("").forget_all_but(active)

    def store_problem(self) -> Text | None:
        """Return what the store has lost, and which waiting jobs it damaged; None where nothing."""
        texts = [self._store.loss] if self._store.loss else []
        if damaged := sorted(self._index.damaged)[:NAMED]:
            texts.append(
                phrase(
                    "the command or options of {jobs} were changed or damaged in the store, and "
                    "nothing of that is started. For details: gpudeck jobs {first}",
                    jobs=list_jobs(damaged),
                    first=damaged[0],
                )
            )
        return join_texts(texts) if texts else None

    @property
    def store_is_replaced(self) -> bool:
        """Return whether the files of the store were deleted or replaced: nothing is kept then."""
        return self._store.replaced

    @property
    def holds_back_jobs(self) -> bool:
        """Return whether jobs wait that may have run, as their folders cannot be read."""
        return bool(self._index.unknown)

    def check_folders(self) -> Text | None:
        """Look again at folders that could not be read, and return which still cannot.

        Raises UserError where what was found cannot be stored.
        """
        if self._index.unknown:
            self._recovery.recover()
        self._reaper.recheck()
        running = self._index.running.values()
        states = ((job.id, job.state) for job in running)
        unread = {n for n, state in states if isinstance(state, Running) and state.unreadable}
        if not (unread := unread | self._index.unknown.keys()):
            return None
        some = sorted(unread)[:NAMED]
        jobs = list_jobs(some)
        if (more := len(unread) - NAMED) > 0:
            jobs = phrase("jobs {numbers} and {n} more", numbers=joined(some), n=more)
        return phrase(
            "the folder of {jobs} cannot be read; it is checked again every few seconds. "
            "For details: gpudeck jobs {first}",
            jobs=jobs,
            first=some[0],
        )

    def reap(self, job_ids: Iterable[int]) -> None:
        """Take over how the attempts of these jobs ended; see `Reaper.reap`."""
        self._reaper.reap(job_ids)

    def plan(self, devices: Sequence[Device], availability: Availability = ALL_FREE) -> None:
        """Decide what can start, and why the rest waits; nothing is started.

        The assistant, and jobs that run only while GPUs are idle, have to leave at once what is
        needed.
        """
        self._planner.plan(devices, availability)
        self._launcher.vacate(availability)

    def step(self, devices: Sequence[Device], availability: Availability = ALL_FREE) -> None:
        """Start what can start.

        Raises UserError, at the end, while there is a job that could not be started.
        """
        self.canceller.end_next()
        self.canceller.undo.forget()
        self._planner.end_delays()
        self.submission.bind(devices)
        self.canceller.cancel_unable()
        self.plan(devices, availability)
        self._launcher.release(devices, availability)
        self.suspender.return_planned(availability)
        while self._launcher.start_planned(devices, availability):
            self.canceller.cancel_unable()
            self.plan(devices, availability)
        for number, (_, reason) in self._index.not_started.items():
            if isinstance(reason, StartFailed):
                raise UserError(reason.problem)
            if isinstance(reason, FolderUnreadable):
                raise UserError(
                    phrase("job {job}: {why}", job=number, why=explain(reason, time.time()))
                )

    @property
    def awaits_reading(self) -> bool:
        """Return whether jobs start as soon as their GPUs have been read once more."""
        return self._launcher.awaits_reading

    @property
    def unfinished(self) -> bool:
        """Return whether the next step has to go on with what this one began."""
        parts = (self.canceller, self._launcher, self.submission)
        return any(part.unfinished for part in parts)

    def retry_is_ready(self, now: float) -> bool:
        """Return whether the delay of a job that failed is over."""
        return self._planner.retry_is_ready(now)

    def add_readings(self, readings: Sequence[Reading]) -> None:
        """Add up what running jobs use."""
        self._usage.add(readings, self._index.running.values())

    def read_progress(self, now: float) -> dict[int, list[Progress]]:
        """Return what the running jobs reported since the last read, by job."""
        return self._progress.read(now)

    # What the executors of clusters need; see `executors.cluster.Hub`

    def jobs_on(self, where: str) -> list[Job]:
        """Return the jobs that were started there and have not ended."""
        return [job for job in self._index.running.values() if job.spec.where == where]

    def environment(self, job_id: int) -> dict[str, str]:
        """Return the environment the job was submitted with. Raises UserError."""
        return self._store.env(job_id)

    def acknowledge(self, job_id: int) -> None:
        """Commit that its cluster has the job's attempt."""
        job = self._index.active[job_id]
        if isinstance(job.state, Running) and not job.state.known:
            job, events = acknowledged(job, job.state, time.time())
            try:
                self._index.commit(job, *events)
            except UserError:
                self._index.update(job)  # a full disk; the cluster will tell the next daemon, too

    def set_note(self, job_id: int, note: Message) -> bool:
        """Show what holds the job up, which is not stored. Return whether that is new."""
        job = self._index.active[job_id]
        if not isinstance(job.state, Running) or job.state.note == note:
            return False
        self._index.update(with_note(job, job.state, note))
        return True
