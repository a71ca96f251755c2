"""Attempts that are over: what is left of them is killed, their runners' words are taken over, their jobs have ended or wait again.

However many they are, that is one look at the processes of the machine and one transaction.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from scheduler.executors import base, local
from scheduler.executors.base import Executor
from scheduler.executors.cluster import Cluster
from scheduler.executors.unknown import Unknown
from scheduler.protocol import paths
from scheduler.protocol.devices import Reading
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import (
    Event,
    Failed,
    Job,
    Lost,
    Progress,
    Queued,
    Running,
    Starting,
    State,
)
from scheduler.queue import recovery
from scheduler.queue import timeline as story
from scheduler.queue.job_index import Change
from scheduler.queue.orders import Orders
from scheduler.queue.progress_reader import Tail, last_line, last_text
from scheduler.queue.retry import again
from scheduler.queue.usage import Meter
from scheduler.store import Store

RETRY_S = 2.0
"""A job that could not be started is tried again after this long."""
ENDS = 50
"""How many jobs are asked to end in one go."""
OOM_TAIL = 16 * 2**10
"""Bytes of the end of a log that are searched for what CUDA says when its memory is full."""


class Settling(Orders):
    """`watch(job_id, runner_pid)` is called for each runner whose end must be reported to `reap`; it may raise UserError."""

    def __init__(
        self,
        store: Store,
        watch: Callable[[int, int], None],
        on_end: Callable[[Job], None],
        clusters: Mapping[str, Cluster],
        log_limit: Callable[[], int],
    ) -> None:
        super().__init__(store, on_end, clusters)
        self._gates: dict[int, dict[str, str]] = {}
        """Environments of the jobs that wait at their gate until the assistant has left their devices."""
        self._local = local.Local(watch, log_limit)
        self._meter = Meter()
        self._largest: float | None = None
        """Bytes of the largest device."""
        self._tails: dict[int, Tail] = {}
        self._told: deque[int] = deque()
        """Jobs that are to end, and whose processes were not asked to yet."""
        self._inherited = set(self._active)
        """Jobs of the last daemon of which it is not settled yet what became of them."""

    def _executor(self, job: Job) -> Executor:
        """Where its attempts run."""
        where = job.spec.where
        return self._clusters.get(where, Unknown(where)) if where else self._local

    def _kill(self, jobs: Iterable[Job]) -> None:
        """What their attempts left behind: a runner that was killed leaves its job."""
        for _, of in groupby(
            sorted(jobs, key=lambda job: job.spec.where), key=lambda job: job.spec.where
        ):
            there = list(of)
            self._executor(there[0]).kill(there)

    # What the last daemon left

    def recover(self) -> None:
        """Settle what the last daemon left: adopt what still runs, take over what ended, queue again what never ran.

        Raises UserError where some of that cannot be looked after or stored now: those jobs stay as they were, and keep their devices.
        To be called again then.
        """
        adopted, unknown, over = list[Job](), list[Job](), list[tuple[Job, State, base.Outcome]]()
        trouble: UserError | None = None
        for job in [
            self._active[job_id] for job_id in sorted(self._inherited & self._active.keys())
        ]:
            if attempt := local.begun(job):
                unknown.append(self._begun(job, attempt))
            elif isinstance(job.state, Starting | Running):
                outcome, verdict = self._verdict(job, job.state)
                if verdict != "adopt":
                    over.append((job, verdict, outcome))
                    continue
                try:
                    self._executor(job).adopt(job)
                    adopted.append(job)
                except UserError as e:
                    trouble = e
            else:
                self._inherited.discard(job.id)
        self._adopt(adopted)
        self._kill([*unknown, *(job for job, _, _ in over)])
        self._put_all(
            [*map(self._found_out, unknown), *(self._recovered(*found) for found in over)]
        )
        self._inherited.difference_update(
            job.id for job in [*unknown, *(job for job, _, _ in over)]
        )
        if trouble is not None:
            raise trouble

    def _verdict(
        self, job: Job, state: Starting | Running
    ) -> tuple[base.Outcome, recovery.Verdict]:
        executor = self._executor(job)
        alive = isinstance(state, Running) and executor.alive(state)
        outcome = executor.outcome(
            job
        )  # after `alive`: then a runner that is gone has said its last word
        return outcome, recovery.recover(
            job, outcome, alive, base.result_record(job.id), last_line(_log(job)), time.time()
        )

    def _adopt(self, jobs: Sequence[Job]) -> None:
        """They run on, and are looked after."""
        self._tails.update((job.id, Tail(_log(job))) for job in jobs)
        self._inherited.difference_update(job.id for job in jobs)
        told = Event(time.time(), "adopted", "by a daemon that was started anew")
        try:
            self._put_all([(job, (told,)) for job in jobs])
        except UserError:
            pass  # a full disk must not keep the daemon from looking after them
        self._told.extend(job.id for job in jobs if base.running(job).stopping)

    def _recovered(self, job: Job, verdict: State, outcome: base.Outcome) -> Change:
        if isinstance(verdict, Queued):
            told = Event(time.time(), "queued again", "the daemon ended before it started")
            return msgspec.structs.replace(job, state=verdict), (told,)
        return self._concluded(job, verdict, *story.log(outcome))

    def _begun(self, job: Job, attempt: str) -> Job:
        """An attempt ran that the store lost, as after a repair: its runner's word is taken, and nothing runs twice."""
        job = msgspec.structs.replace(job, state=Starting(attempt, (), job.submitted))
        self._know(job)  # it waits no more, also where what became of it cannot be stored yet
        return job

    def _found_out(self, job: Job) -> Change:
        """What became of such an attempt, of which nothing runs any more."""
        outcome = self._local.outcome(job)
        if isinstance(outcome, base.Exit):
            return self._concluded(job, self._ended_so(job, outcome), *story.log(outcome))
        return self._concluded(
            job,
            Lost(job.submitted, time.time(), "it was begun, and the store lost what became of it"),
        )

    # What ends now

    @property
    def unfinished(self) -> bool:
        """Whether the next step has to go on with what this one began."""
        return bool(self._told) or super().unfinished

    def _end(self) -> None:
        """Ask the next that are to end. Not all at once: each wakes its runner, and who wakes thousands does not run again for seconds."""
        for _ in range(min(ENDS, len(self._told))):
            job = self._active.get(self._told.popleft())
            if job is not None and isinstance(job.state, Running):
                self._executor(job).end(job)

    def reap(self, job_ids: Iterable[int]) -> None:
        """The attempts of these jobs are over: take over their runners' words, or conclude that there are none.

        Raises UserError where that cannot be stored; to be called again then.
        """
        jobs = [
            job
            for job_id in job_ids
            if (job := self._active.get(job_id)) is not None and isinstance(job.state, Running)
        ]
        for job in jobs:  # the others were sent away from their gates
            if self._gates.pop(job.id, None) is not None:
                self._executor(job).abandon(base.running(job))
        self._kill(jobs)
        self.read_progress(time.time())
        self._put_all([self._over(job, base.running(job)) for job in jobs])

    def _over(self, job: Job, state: Running) -> Change:
        outcome = self._executor(job).outcome(job)
        if isinstance(outcome, base.Unstarted) and not state.stopping:
            self._refused[job.id] = (time.monotonic() + RETRY_S, outcome.why)
            return msgspec.structs.replace(job, state=Queued(outcome.why)), (
                Event(time.time(), "queued again", outcome.why),
            )
        if isinstance(outcome, base.Exit):
            return self._concluded(job, self._ended_so(job, outcome), *story.log(outcome))
        return self._concluded(job, recovery.lost(state, time.time(), outcome.why))

    def _ended_so(self, job: Job, found: base.Exit) -> State:
        return recovery.ended(
            base.attempt_of(job), found, base.result_record(job.id), last_line(_log(job))
        )

    def _concluded(self, job: Job, new: State, *told: Event) -> Change:
        """An attempt has ended so: the job has ended with it, or waits for another. `told` is what else its timeline tells of it."""
        job = msgspec.structs.replace(job, usage=self._meter.take(job))
        self._know(job)  # it keeps what it used, until its end can be stored
        more = None
        if isinstance(new, Failed):
            more = again(job, new, last_text(_log(job), OOM_TAIL), self._largest, time.time())
        if more is None:
            return msgspec.structs.replace(job, state=new), (*told, story.ended(new))
        return more.job, (*told, story.ended(new), more.event)

    # What runs

    def add_readings(self, readings: Sequence[Reading]) -> None:
        """Add up what running jobs use."""
        self._meter.add(readings, self.running)
        totals = [r.values["mem_total"] for r in readings if "mem_total" in r.values]
        self._largest = max(totals, default=self._largest)

    def read_progress(self, now: float) -> dict[int, list[Progress]]:
        """What the running jobs reported since the last look, by job."""
        news: dict[int, list[Progress]] = {}
        jobs = {
            job_id: job for job_id in self._tails if (job := self._active.get(job_id)) is not None
        }
        self._tails = {
            job_id: tail
            for job_id, tail in self._tails.items()
            if job_id in jobs and isinstance(jobs[job_id].state, Running)
        }
        for job_id, tail in self._tails.items():
            state = jobs[job_id].state
            if isinstance(state, Running) and (said := tail.read(now)):
                news[job_id] = said
                # for display: read again from the log after a crash, so it need not be stored
                self._know(
                    msgspec.structs.replace(
                        jobs[job_id], state=msgspec.structs.replace(state, progress=said[-1])
                    )
                )
        return news


def _log(job: Job) -> Path:
    return paths.job_folder(job.id) / base.LOG_FILE
