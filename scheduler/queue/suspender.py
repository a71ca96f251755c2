"""Suspend running jobs and bring them back: the queue's side, each step stored before it is done.

Whoever moves their memory (see `gpudeck.scheduler.daemon.job_suspension`) asks here before each
step, and reports it afterwards. A suspended job holds no devices. It gets them back in its turn
among the jobs that wait, as the plan decides (see `policy`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import running
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import (
    Event,
    Job,
    Running,
    is_on_gpu_here,
    suspension_of,
)
from gpudeck.scheduler.queue import transitions
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.policy import is_due
from gpudeck.scheduler.queue.preemption import PAUSE_S
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.transitions import Change


class Suspender:
    """Decide and store how far the suspension of each job is."""

    def __init__(
        self,
        index: JobIndex,
        queries: JobQueries,
        planner: Planner,
        bring_back: Callable[[Job], None],
        preempt: Callable[[Job], None],
    ) -> None:
        """Suspend nothing yet.

        Args:
            bring_back: Called with each suspended job whose devices have room for it.
            preempt: Called with each running job that is to be suspended for another one.
        """
        self._index, self._queries, self._planner = index, queries, planner
        self._bring_back, self._preempt = bring_back, preempt

    @property
    def jobs(self) -> list[Job]:
        """Return the jobs that are suspended, or on their way."""
        return [job for job in self._index.running.values() if suspension_of(job) is not None]

    @property
    def is_any_due(self) -> bool:
        """Return whether a suspended job waits for its devices."""
        now = time.time()
        return any(is_due(job, now) for job in self._index.running.values())

    def leave(self, job_id: int, resume_at: float | None) -> Job:
        """Store that a job is to leave its devices.

        Args:
            resume_at: As in `JobSuspension`.

        Raises:
            NotFound: There is no such job.
            UserError: It cannot be suspended, or that cannot be stored.
        """
        job = self._queries.get(job_id)
        state = job.state
        if not isinstance(state, Running) or state.stopping or state.over:
            raise UserError(phrase("job {job} does not run, so it is not suspended", job=job_id))
        if state.suspension is not None or state.yielding:
            raise UserError(phrase("job {job} is suspended already", job=job_id))
        if not is_on_gpu_here(job):
            raise UserError(
                phrase(
                    "job {job} does not use a GPU of this machine, so it is not suspended",
                    job=job_id,
                )
            )
        return self._commit(transitions.leaving(job, state, resume_at, time.time()))

    def ask_to_yield(self, job_id: int, resume_at: float | None) -> Job:
        """Store that a resumable job is asked to end, and is queued again then.

        Args:
            resume_at: It does not start before that then (seconds since the epoch); None: it is put
                on hold.

        Raises UserError.
        """
        job = self._index.running.get(job_id)
        if job is None or not isinstance(job.state, Running) or job.state.stopping:
            raise UserError(phrase("job {job} does not run, so it is not suspended", job=job_id))
        return self._commit(transitions.yielding(job, job.state, resume_at, time.time()))

    def report_off(self, job_id: int, memory: int) -> None:
        """Show that a job has left its devices, which others may use from now on; store it where
        that is possible."""
        if (job := self._suspended(job_id)) is not None:
            self._show(transitions.off(job, running(job), memory, time.time()))

    def adopt_off(self, job_id: int, memory: int) -> None:
        """Show that a job is off its devices, whatever is stored of it."""
        job = self._index.running.get(job_id)
        if job is None or not isinstance(job.state, Running):
            return
        suspension, now = job.state.suspension, time.time()
        if suspension is None:
            job, _ = transitions.leaving(job, job.state, None, now)
        if suspension is None or suspension.phase == "suspending":
            self._show(transitions.off(job, running(job), memory, now))
        else:
            self._show((transitions.off_again(job, running(job)), ()))

    def ask_back(self, job_id: int, at: float) -> Job:
        """Store that a suspended job comes back at a time, once its devices have room.

        Raises:
            NotFound: There is no such job.
            UserError: It is not suspended, or that cannot be stored.
        """
        job = self._queries.get(job_id)
        if suspension_of(job) is None:
            raise UserError(phrase("job {job} is not suspended", job=job_id))
        return self._commit((transitions.with_resumption(job, running(job), at), ()))

    def come_back(self, job_id: int) -> bool:
        """Store that a job comes back, and holds its devices from now on; return whether it still
        is to. Raises UserError."""
        job = self._suspended(job_id)
        if job is None or not is_due(job, time.time()):
            return False
        self._commit(transitions.returning(job, running(job), time.time()))
        return True

    def report_on(self, job_id: int, what: str, why: Message = "") -> None:
        """Show that a job is on its devices again, and store it where that is possible.

        Args:
            what: The event of its timeline: resumed, or not suspended.
            why: Why it was not suspended.
        """
        if (job := self._suspended(job_id)) is None:
            return
        self._show(transitions.on_again(job, running(job), Event(time.time(), what, why)))

    def report_no_room(self, job_id: int) -> None:
        """Show that a job could not come back yet, and store it where that is possible."""
        if (job := self._suspended(job_id)) is not None:
            self._show((transitions.off_again(job, running(job)), ()))

    def report_lost(self, job_id: int, why: Message) -> None:
        """Show that a job can never come back, before its processes end; store it where that is
        possible."""
        if (job := self._suspended(job_id)) is not None:
            self._show((transitions.never_back(job, running(job), why), ()))

    def return_planned(self, availability: Availability) -> None:
        """Suspend the jobs that leave their devices by the latest plan, and bring those back that
        get them."""
        for number in self._planner.latest.victims:
            self._index.unmoved[number] = time.monotonic() + PAUSE_S
            self._preempt(self._index.running[number])
        for job in self._planner.latest.returns:
            if not availability.leased & set(running(job).devices):
                self._bring_back(job)

    def _suspended(self, job_id: int) -> Job | None:
        """Return a job that is suspended or on its way; None where it has ended meanwhile."""
        job = self._index.running.get(job_id)
        return None if job is None or suspension_of(job) is None else job

    def _commit(self, change: Change) -> Job:
        job, events = change
        return self._index.commit(job, *events)

    def _show(self, change: Change) -> None:
        """Show what became of a job, also where a full disk does not store it: a later daemon finds
        that out by the job's processes."""
        try:
            self._commit(change)
        except UserError:
            self._index.update(change[0])
