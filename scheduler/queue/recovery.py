"""What becomes of jobs that were active when the last daemon ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import (
    Ending,
    Executor,
    Executors,
    Exit,
    NeverRan,
    Outcome,
    Unreadable,
    attempt_of,
    log_file,
    running,
)
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Ended, Event, Job, Lost, Queued, Running, Starting, over
from gpudeck.scheduler.protocol.wait_reasons import FolderUnreadable
from gpudeck.scheduler.queue import transitions
from gpudeck.scheduler.queue.cancellation import Canceller
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.progress_reader import ProgressFollower, last_line
from gpudeck.scheduler.queue.reaper import Reaper
from gpudeck.scheduler.queue.transitions import Change, with_state


class _Findings(NamedTuple):
    """Collect what became of the jobs that the last daemon left."""

    adopted: list[Job]
    unrecorded: list[Job]
    """Jobs at attempts that ran, and of which nothing but their names is known."""
    recovered: list[Job]
    """Jobs as they were after attempts whose ends the store lost."""
    unreadable: list[tuple[Job, str]]
    """Jobs whose processes ended, and why how they ended cannot be read now."""
    over: list[tuple[Job, Ending, Ended | NeverRan]]
    problems: list[UserError]


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
        self._restored = False
        """The jobs are restored that the store lost altogether."""

    @property
    def finished(self) -> bool:
        """Return whether the fate of all jobs of the last daemon is decided and stored."""
        return self._restored and not self._inherited

    def recover(self) -> None:
        """Decide what becomes of the jobs that the last daemon left.

        Raises UserError where some of them cannot be watched or stored now, so that it must be
        called again: those jobs stay as they were, and keep their devices.
        """
        found = _Findings([], [], [], [], [], [])
        self._restore(found.problems)
        for number in sorted(self._inherited & self._index.active.keys()):
            self._examine(self._index.active[number], found)
        self._take(found.recovered)
        self._adopt(found.adopted)
        unread = [job for job, _ in found.unreadable]
        ended = [*found.unrecorded, *(job for job, _, _ in found.over)]
        self._reaper.kill([*ended, *(job for job in unread if not over(job))])
        changes = [self._reaper.unreadable(job, why) for job, why in found.unreadable]
        changes += [self._unrecorded_end(job) for job in found.unrecorded]
        changes += [self._end(*end) for end in found.over]
        known = [change for change in changes if change is not None]
        self._index.commit_all(known)
        settled = [job for job in ended if job.id not in self._index.unknown]
        decided = (job.id for job in (*ended, *unread) if job.id not in self._index.unknown)
        self._inherited.difference_update(decided)
        self._reaper.forget(settled, known)
        if found.problems:
            raise found.problems[0]

    def _restore(self, problems: list[UserError]) -> None:
        """Restore the jobs whose attempts began, and which the store lost altogether."""
        if self._restored:
            return
        try:
            begun = self._executors.of("").begun()
            jobs = [_without_environment(job) for job in begun.jobs]
            self._inherited.update(self._index.restore(jobs, begun.submissions))
            self._restored, self._index.unrestored = True, None
        except OSError as e:
            problem = phrase(
                "which attempts began cannot be read: {error} ({file})",
                error=str(e.strerror),
                file=str(e.filename),
            )
            problems.append(UserError(problem))
        except UserError as e:
            problems.append(e)
        if problems:
            self._index.unrestored = problems[-1].message

    def _examine(self, job: Job, found: _Findings) -> None:
        """Find what became of a job, and add it to the findings."""
        executor = self._executors.of(job.spec.where)
        newer = executor.unrecorded(job)
        if isinstance(newer, Unreadable):
            self._hold_back(job, newer.why)
            return
        if newer is not None and not isinstance(newer.state, Starting | Running):
            found.recovered.append(newer)
            return
        if newer is not None:
            # it waits no more, even if its end cannot be stored yet, so that nothing runs twice
            self._index.update(job := newer)
            if isinstance(job.state, Starting):
                found.unrecorded.append(job)
                return
        if isinstance(job.state, Queued):
            self._inherited.discard(job.id)
            self._index.unknown.pop(job.id, None)
            return
        state = attempt_of(job)
        alive = isinstance(state, Running) and executor.alive(state)
        # after `alive`: a runner that is gone wrote its record
        ending, line = self._reaper.ending(job), last_line(log_file(job))
        ran = isinstance(state, Running) and not alive and not state.stopping
        if isinstance(state, Running) and not alive and executor.leaves_container(job):
            self._leave_to_reaper(executor, job, found)
            return
        if ran and isinstance(ending.outcome, Unreadable):
            found.unreadable.append((job, ending.outcome.why))
            return
        decision = decide(state, ending.outcome, alive, ending.result, line, time.time())
        if decision is not None:
            found.over.append((job, ending, decision))
            return
        self._leave_to_reaper(executor, job, found)

    @staticmethod
    def _leave_to_reaper(executor: Executor, job: Job, found: _Findings) -> None:
        """Have a job reaped once its attempt has ended, and nothing of it is left."""
        try:
            executor.adopt(job)
            found.adopted.append(job)
        except UserError as e:
            found.problems.append(e)

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

    def _end(self, job: Job, ending: Ending, decision: Ended | NeverRan) -> Change:
        if isinstance(decision, NeverRan):
            return transitions.queued_again(job, decision, time.time())
        return self._reaper.conclude(job, decision, ending)

    def _take(self, jobs: Sequence[Job]) -> None:
        """Store jobs as they were after attempts whose ends the store lost. Raises UserError."""
        now = time.time()
        event = Event(now, "recovered", phrase("the store had lost how its last attempt ended"))
        try:
            self._index.commit_all([(job, (event,)) for job in jobs])
        except UserError as e:
            for job in jobs:
                self._hold_back(self._index.active[job.id], e.message)
            raise
        for job in jobs:
            self._inherited.discard(job.id)
            self._index.unknown.pop(job.id, None)

    def _hold_back(self, job: Job, why: Message) -> None:
        """Keep a job from starting that may have run: its folder cannot be read now."""
        last = self._index.unknown.get(job.id)
        if not isinstance(job.state, Queued):
            self._index.update(with_state(job, Queued()))
        since = last.since if last is not None else time.time()
        self._index.unknown[job.id] = FolderUnreadable(since, why)

    def _unrecorded_end(self, job: Job) -> Change | None:
        """Return how such an attempt ended, of which nothing runs any more.

        None where its record cannot be read now.
        """
        ending = self._reaper.ending(job)
        if isinstance(ending.outcome, Unreadable):
            self._hold_back(job, ending.outcome.why)
            return None
        if isinstance(ending.outcome, Exit):
            state = self._reaper.end_state(job, ending.outcome, ending.result)
            return self._reaper.conclude(job, state, ending)
        why = phrase("it was started, and the store lost the record of it")
        return self._reaper.conclude(job, Lost(job.submitted, time.time(), why), ending)


def _without_environment(job: Job) -> Job:
    """Return a job that the store lost as it can be restored: it is not tried again."""
    spec = msgspec.structs.replace(job.spec, retries=job.tries, spared=0)
    job = msgspec.structs.replace(job, spec=spec)
    if not isinstance(job.state, Queued):
        return job
    why = phrase("the store lost its environment, without which it cannot be tried again")
    return with_state(job, Lost(job.submitted, time.time(), why))


def decide(
    state: Starting | Running,
    outcome: Outcome,
    alive: bool,
    result: msgspec.Raw,
    last_line: str,
    now: float,
) -> Ended | NeverRan | None:
    """Return the new state of a job that was started; None where its attempt runs on.

    An attempt whose runner waits for processes of other users runs on. Else the runner's record
    decides, then an attempt that runs on, then one that never ran, after which the job waits again;
    any other is lost. An attempt that was committed without its runner was never released.
    """
    if isinstance(outcome, Exit):
        if alive and outcome.left:
            return None
        return transitions.ended(state, outcome, result, last_line)
    if isinstance(state, Starting):
        return NeverRan(phrase("the daemon ended before it started"))
    if alive:
        return None
    if isinstance(outcome, NeverRan) and not state.stopping:
        return outcome
    return transitions.vanished(state, outcome.why, now)
