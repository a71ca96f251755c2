"""End jobs that run only while GPUs are idle, at once when somebody else needs one of them.

Such a job waits again: nothing of it is lost but what it had not saved.
"""

from __future__ import annotations

import time

from gpudeck.language.text import Message
from gpudeck.scheduler.attempts import Executors
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Running, held_devices
from gpudeck.scheduler.queue import transitions
from gpudeck.scheduler.queue.job_index import JobIndex


class IdleJobs:
    """End the jobs that run only while GPUs are idle, and queue them again."""

    def __init__(self, index: JobIndex, executors: Executors) -> None:
        self._index, self._executors = index, executors

    def leave(self, device: str, why: Message) -> None:
        """Have the one that holds the device leave it."""
        for job in list(self._index.running.values()):
            if job.spec.when_idle and device in held_devices(job):
                self._end(job, why)

    def _end(self, job: Job, why: Message) -> None:
        """Store that the job is to be queued again, and end it, also where a full disk refuses."""
        state = job.state
        if not isinstance(state, Running) or state.yielding or state.stopping or state.over:
            return
        change = transitions.giving_way(job, state, why, time.time())
        try:
            self._index.commit_all([change])
        except UserError:
            self._index.update(change[0])
        self._executors.of(job.spec.where).ask_to_yield(change[0])
