"""Attempts that are over: kill what is left of them, and decide what becomes of their jobs.

However many they are, that takes one scan of the machine's processes and one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import groupby

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
from scheduler.protocol.jobs import Ended, Failed, Job, Running
from scheduler.queue import transitions
from scheduler.queue.job_index import JobIndex
from scheduler.queue.launcher import Launcher
from scheduler.queue.progress_reader import ProgressFollower, last_line, last_text
from scheduler.queue.retry import next_attempt
from scheduler.queue.transitions import Change, with_state
from scheduler.queue.usage import UsageCollector

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
        self._progress.read(time.time())
        self._index.commit_all([self._reaped(self._index.active[job.id]) for job in jobs])

    def kill(self, jobs: Iterable[Job]) -> None:
        """Kill what the attempts of these jobs left behind."""
        ordered = sorted(jobs, key=lambda job: job.spec.where)
        for where, group in groupby(ordered, key=lambda job: job.spec.where):
            self._executors.of(where).kill(list(group))

    def _reaped(self, job: Job) -> Change:
        state, outcome = running(job), self._executors.of(job.spec.where).outcome(job)
        if isinstance(outcome, NeverRan) and not state.stopping:
            self._index.delay_start(job.id, outcome.why)
            return transitions.not_started(job, outcome.why, time.time())
        if isinstance(outcome, Exit):
            return self.conclude(job, self.end_state(job, outcome), outcome)
        return self.conclude(job, transitions.vanished(state, outcome.why, time.time()), outcome)

    def end_state(self, job: Job, record: Exit) -> Ended:
        """Return the state of the job after its runner's record."""
        result, line = result_record(job.id), last_line(log_file(job))
        return transitions.ended(attempt_of(job), record, result, line)

    def conclude(self, job: Job, state: Ended, outcome: Outcome) -> Change:
        """Return the job as it ended with its attempt, or as it waits for another one."""
        job = msgspec.structs.replace(job, usage=self._usage.take(job))
        self._index.update(job)  # it keeps what it used, until its end can be stored
        events = (*transitions.log_events(outcome), transitions.end_event(state))
        if isinstance(state, Failed):
            log, largest = last_text(log_file(job), OOM_TAIL), self._usage.largest_memory
            again = next_attempt(job, state, log, largest, time.time())
            if again is not None:
                return again[0], (*events, *again[1])
        return with_state(job, state), events
