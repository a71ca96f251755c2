"""Attempts that are over: kill what is left of them, and decide what becomes of their jobs.

However many they are, that takes one scan of the machine's processes and one transaction.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from itertools import groupby
from time import time as now

import msgspec

from gpudeck.scheduler.attempts import (
    Ending,
    Executors,
    Exit,
    NeverRan,
    Unreadable,
    attempt_of,
    log_file,
    result_record,
    running,
)
from gpudeck.scheduler.protocol.jobs import NO_RESULT, Ended, Failed, Job, Lost, Running, over
from gpudeck.scheduler.protocol.wait_reasons import StartFailed
from gpudeck.scheduler.queue import transitions
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.launcher import Launcher
from gpudeck.scheduler.queue.progress_reader import ProgressFollower, last_line, last_text
from gpudeck.scheduler.queue.retry import next_attempt
from gpudeck.scheduler.queue.transitions import Change, with_state
from gpudeck.scheduler.queue.usage import UsageCollector

OOM_TAIL = 16 * 2**10
"""Bytes of a log's end that are searched for what CUDA prints when its memory is full."""


class Reaper:
    """Take over how attempts ended."""

    def __init__(
        self,
        index: JobIndex,
        executors: Executors,
        launcher: Launcher,
        progress: ProgressFollower,
        usage: UsageCollector,
    ) -> None:
        self._index, self._executors, self._launcher = index, executors, launcher
        self._progress, self._usage = progress, usage

    def reap(self, job_ids: Iterable[int]) -> None:
        """Take over how the attempts of these jobs ended. May be called again for the same jobs.

        Raises UserError where that cannot be stored, so that it must be called again.
        """
        found = [self._index.running.get(job_id) for job_id in job_ids]
        # others were discarded at their gates
        jobs = [job for job in found if job is not None and isinstance(job.state, Running)]
        for job in jobs:
            self._launcher.abandon(job)
        self.kill(jobs)
        self._progress.read(now())
        self._commit([self._index.active[job.id] for job in jobs])

    def recheck(self) -> None:
        """Look again at the folders of jobs that ended and left no readable record.

        Raises UserError where that cannot be stored.
        """
        self._commit([job for job in self._index.running.values() if over(job)])

    def _commit(self, jobs: Sequence[Job]) -> None:
        changes = [change for job in jobs if (change := self._reaped(job)) is not None]
        self._index.commit_all(changes)
        self.forget([job for job in jobs if job.id not in self._index.running], changes)

    def forget(self, jobs: Iterable[Job], changes: Sequence[Change]) -> None:
        """Discard what was kept for the attempts of these jobs, whose ends are stored.

        Args:
            jobs: the jobs at these attempts.
            changes: the jobs as they are stored now.
        """
        now = {job.id: job for job, _ in changes}
        for job in jobs:
            self._executors.of(job.spec.where).forget(attempt_of(job).attempt, now[job.id])

    def kill(self, jobs: Iterable[Job]) -> None:
        """Kill what the attempts of these jobs left behind."""
        ordered = sorted(jobs, key=lambda job: job.spec.where)
        for where, group in groupby(ordered, key=lambda job: job.spec.where):
            self._executors.of(where).kill(list(group))

    def _reaped(self, job: Job) -> Change | None:
        """Return the job after its attempt; None where that is as unknown as before."""
        state, ending = running(job), self.ending(job)
        outcome = ending.outcome
        if isinstance(outcome, Unreadable) and not state.stopping:
            return self.unreadable(job, outcome.why)
        if isinstance(outcome, NeverRan) and not state.stopping:
            self._index.delay_start(job.id, StartFailed(outcome.why), state.unbegun)
            return transitions.queued_again(job, outcome, now())
        if isinstance(outcome, Exit):
            return self.conclude(job, self.end_state(job, outcome, ending.result), ending)
        return self.conclude(job, transitions.vanished(state, outcome.why, now()), ending)

    def unreadable(self, job: Job, why: str) -> Change | None:
        """Return the job as over while its end is unreadable; None where it is that already."""
        state = running(job)
        return None if state.over else transitions.unreadable(job, state, why, now())

    def ending(self, job: Job) -> Ending:
        """Return how the attempt ended, with its Result.

        A Result on a disk that fails now makes the end unreadable. One that the job protected from
        us is given up.
        """
        outcome = self._executors.of(job.spec.where).outcome(job)
        result = result_record(job) if isinstance(outcome, Exit) else NO_RESULT
        if not isinstance(result, Unreadable):
            return Ending(outcome, result)
        return Ending(outcome, result_problem=result.why) if result.forbidden else Ending(result)

    def end_state(self, job: Job, record: Exit, result: msgspec.Raw) -> Ended:
        """Return the state of the job after its runner's record."""
        return transitions.ended(attempt_of(job), record, result, last_line(log_file(job)))

    def conclude(self, job: Job, state: Ended, ending: Ending) -> Change:
        """Return the job as it ended with its attempt, or as it waits for another one."""
        job = msgspec.structs.replace(job, usage=self._usage.take(job, state.at))
        self._index.update(job)  # it keeps what it used, until its end can be stored
        events = (*transitions.record_events(ending), transitions.end_event(state))
        attempt, outcome = attempt_of(job), ending.outcome
        asked = isinstance(attempt, Running) and attempt.yielding and not attempt.stopping
        # without a signal of its own, a job is killed; any other end is one that it came to itself
        if (
            asked
            and isinstance(outcome, Exit)
            and not outcome.over
            and (job.spec.resumable or outcome.code == -signal.SIGKILL)
        ):
            waits, more = transitions.yielded(job, running(job), now())
            return waits, (*events, *more)
        if isinstance(state, Failed | Lost):
            log, largest = last_text(log_file(job), OOM_TAIL), self._usage.largest_memory
            again = next_attempt(job, state, log, largest, now())
            executor = self._executors.of(job.spec.where)
            # without a record, a later daemon would take a lost attempt for an unknown one
            if again is not None and (
                isinstance(state, Failed) or executor.record_lost(job, state)
            ):
                return again[0], (*events, *again[1])
        return with_state(job, state), events
