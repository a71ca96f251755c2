"""What becomes of jobs that were active when the last daemon ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from scheduler.attempts import (
    Executors,
    Exit,
    NeverRan,
    Outcome,
    attempt_of,
    log_file,
    result_record,
    running,
)
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Ended, Job, Lost, Queued, Running, Starting
from scheduler.queue import transitions
from scheduler.queue.cancellation import Canceller
from scheduler.queue.job_index import JobIndex
from scheduler.queue.progress_reader import ProgressFollower, last_line
from scheduler.queue.reaper import Reaper
from scheduler.queue.transitions import Change, with_state


class Recovery:
    """Adopt what still runs, take over what ended, and queue again what never ran."""

    def __init__(
        self,
        index: JobIndex,
        executors: Executors,
        reaper: Reaper,
        canceller: Canceller,
        progress: ProgressFollower,
    ) -> None:
        self._index, self._executors, self._reaper = index, executors, reaper
        self._canceller, self._progress = canceller, progress
        self._inherited = set(index.active)
        """Jobs of the last daemon whose fate is not decided yet."""

    def recover(self) -> None:
        """Decide what becomes of the jobs that the last daemon left.

        Raises UserError where some of them cannot be watched or stored now, so that it must be
        called again: those jobs stay as they were, and keep their devices.
        """
        adopted: list[Job] = []
        unrecorded: list[Job] = []
        over: list[tuple[Job, Outcome, Ended | Queued]] = []
        problem: UserError | None = None
        for number in sorted(self._inherited & self._index.active.keys()):
            job = self._index.active[number]
            executor = self._executors.of(job.spec.where)
            if (attempt := executor.unrecorded_attempt(job)) is not None:
                unrecorded.append(self._reopened(job, attempt))
                continue
            if isinstance(job.state, Queued):
                self._inherited.discard(job.id)
                continue
            state = attempt_of(job)
            alive = isinstance(state, Running) and executor.alive(state)
            outcome = executor.outcome(job)  # after `alive`: a runner that is gone wrote its record
            result, line = result_record(job.id), last_line(log_file(job))
            decision = decide(state, outcome, alive, result, line, time.time())
            if decision is not None:
                over.append((job, outcome, decision))
                continue
            try:
                executor.adopt(job)
                adopted.append(job)
            except UserError as e:
                problem = e
        self._adopt(adopted)
        ended = [*unrecorded, *(job for job, _, _ in over)]
        self._reaper.kill(ended)
        changes = [*map(self._unrecorded_end, unrecorded), *(self._end(*found) for found in over)]
        self._index.commit_all(changes)
        self._inherited.difference_update(job.id for job in ended)
        if problem is not None:
            raise problem

    def _adopt(self, jobs: Sequence[Job]) -> None:
        """Follow jobs that run on."""
        self._progress.follow(jobs)
        self._inherited.difference_update(job.id for job in jobs)
        now = time.time()
        try:
            self._index.commit_all([transitions.adopted(job, now) for job in jobs])
        except UserError:
            pass  # a full disk must not keep the daemon from following them
        self._canceller.end_later(job for job in jobs if running(job).stopping)

    def _end(self, job: Job, outcome: Outcome, decision: Ended | Queued) -> Change:
        if isinstance(decision, Queued):
            return transitions.never_released(job, time.time())
        return self._reaper.conclude(job, decision, outcome)

    def _reopened(self, job: Job, attempt: str) -> Job:
        """Return the job at an attempt that ran and that the store lost, as after a repair.

        It waits no more, even if its end cannot be stored yet, so that nothing runs twice.
        """
        job = with_state(job, Starting(attempt, (), job.submitted))
        self._index.update(job)
        return job

    def _unrecorded_end(self, job: Job) -> Change:
        """Return how such an attempt ended, of which nothing runs any more."""
        outcome = self._executors.of(job.spec.where).outcome(job)
        if isinstance(outcome, Exit):
            return self._reaper.conclude(job, self._reaper.end_state(job, outcome), outcome)
        why = "it was started, and the store lost the record of it"
        return self._reaper.conclude(job, Lost(job.submitted, time.time(), why), outcome)


def decide(
    state: Starting | Running,
    outcome: Outcome,
    alive: bool,
    result: msgspec.Raw,
    last_line: str,
    now: float,
) -> Ended | Queued | None:
    """Return the new state of a job that was started; None where its attempt runs on.

    The runner's record decides first, then an attempt that runs on, then one that never ran; any
    other is lost. An attempt that was committed without its runner was never released, so that the
    job waits again.
    """
    if isinstance(outcome, Exit):
        return transitions.ended(state, outcome, result, last_line)
    if isinstance(state, Starting):
        return Queued()
    if alive:
        return None
    if isinstance(outcome, NeverRan) and not state.stopping:
        return Queued()
    return transitions.vanished(state, outcome.why, now)
