"""The executor of a cluster: what the daemon committed, compared with what the agent reports.

An attempt is committed with the session of the cluster it is meant for, before the cluster is
asked to run it. What is unknown is asked, never guessed: while the cluster does not answer, the
attempt stays as it is. Where the cluster answers and does not have the attempt, it is asked again
only if it never acknowledged the attempt and has forgotten nothing since; otherwise the attempt is
lost, and does not run twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.attempts import Executor, NeverRan, Outcome, Untraceable, attempt_of, running
from gpudeck.scheduler.executors import agent_protocol as a
from gpudeck.scheduler.executors.attempt_folder import ATTEMPT_FILE, exit_record, next_folder
from gpudeck.scheduler.executors.launch import identity
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Running
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable
from gpudeck.scheduler.protocol.wait_texts import explain

RESTARTED = phrase("the cluster was restarted, and no longer has it")


class Hub(Protocol):
    """Describe what an executor of a cluster needs of the daemon."""

    def jobs_on(self, where: str) -> list[Job]:
        """Return the jobs that were started there and have not ended."""

    def environment(self, job_id: int) -> dict[str, str]:
        """Return the environment the job was submitted with. Raises UserError."""

    def acknowledge(self, job_id: int) -> None:
        """Commit that the cluster has the job's attempt."""

    def set_note(self, job_id: int, note: Message) -> None:
        """Show what holds the job up in its cluster; an empty note clears the last one."""

    def attempt_ended(self, job_id: int) -> None:
        """Reap the job's attempt, which is over."""

    def cluster_changed(self, where: str, unavailable: ClusterUnavailable | None) -> None:
        """Take note that the cluster became available, or stopped answering."""


class Cluster(Executor):
    """Run attempts in a cluster, by commands to its agent."""

    def __init__(self, where: str, hub: Hub, send: Callable[[a.Command], None]) -> None:
        """Wait for the agent's first report.

        Args:
            send: passes a command on to the agent, and does nothing while there is none, as all
                is sent again once an agent reports.
        """
        self.where, self._hub, self._send = where, hub, send
        self._session: str | None = None
        """None while the cluster does not answer."""
        self._since = time.time()
        self._problem: Message = phrase("its agent has not reported yet")
        self._ends: dict[str, NeverRan | Untraceable] = {}
        """Attempts that are over without an exit record."""

    @property
    def unavailable(self) -> ClusterUnavailable | None:
        """Return why nothing can be started there; None where it can."""
        if self._session is not None:
            return None
        return ClusterUnavailable(self.where, self._since, self._problem)

    # An executor

    def prepare(
        self,
        job: Job,
        attempt: str,
        devices: tuple[str, ...],
        submission: SubmissionRecord | None = None,
    ) -> Running:
        if self._session is None:
            raise UserError(self._status())
        next_folder(job)
        note = phrase("is being submitted to {cluster}", cluster=self.where)
        return Running(attempt, devices, time.time(), 0, 0, self._session, note=note)

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        try:
            # by this a machine that shares our file system recognises the job's folder
            (paths.job_folder(job.id) / ATTEMPT_FILE).write_text(running.attempt)
        except OSError:
            pass  # a full disk: the result is copied with the output all the same
        self._submit(job, running, env)

    def alive(self, running: Running) -> bool:
        return running.attempt not in self._ends

    def end(self, job: Job) -> None:
        self._send(a.Halt(attempt_of(job).attempt))

    def outcome(self, job: Job) -> Outcome:
        attempt = attempt_of(job).attempt
        unknown = Untraceable(phrase("nothing is known of how it ended"))
        return exit_record(job.id, attempt) or self._ends.get(attempt, unknown)

    # What the agent reports

    def receive(self, report: a.Report) -> None:
        """Act on what the agent reports of the cluster, or of the attempt that a job is at."""
        match report:
            case a.Available():
                self._set_available(report)
            case a.Unavailable(why):
                self.set_unavailable(why)
            case a.Acknowledged(job_id, attempt) if self._job(job_id, attempt):
                self._hub.acknowledge(job_id)
            case a.Progressing(job_id, attempt, note) if self._job(job_id, attempt):
                self._hub.set_note(job_id, self._quote(note) if note else "")
            case a.Ended(job_id, attempt) if self._job(job_id, attempt):
                self._hub.attempt_ended(job_id)
            case a.NotSubmitted(job_id, attempt, why) if self._job(job_id, attempt):
                never_ran = NeverRan(self._quote(why), passing=True)
                self._end_without_record(job_id, attempt, never_ran)
            case a.Missing(job_id, attempt) if job := self._job(job_id, attempt):
                self._resubmit_or_lose(job, report)

    def set_unavailable(self, why: Message) -> None:
        """Take note that the cluster, or its agent, does not answer."""
        if self._session is not None:
            self._since = time.time()
        elif why == self._problem:
            return
        self._session, self._problem = None, why
        for job in self._hub.jobs_on(self.where):
            self._hub.set_note(job.id, self._status())
        self._hub.cluster_changed(self.where, self.unavailable)

    def remove(self) -> None:
        """Give up the jobs that run there, as the cluster is in the settings no more."""
        for job in self._hub.jobs_on(self.where):
            removed = phrase(
                "{cluster} was removed from the settings while it ran there", cluster=self.where
            )
            end = Untraceable(removed)
            self._end_without_record(job.id, attempt_of(job).attempt, end)
        self._hub.cluster_changed(self.where, None)

    def _quote(self, note: Message) -> Message:
        return phrase("{cluster}: {note}", cluster=self.where, note=note)

    def _status(self) -> Message:
        return explain(self.unavailable, time.time()) if self.unavailable else ""

    def _set_available(self, report: a.Available) -> None:
        was_unavailable = self._session is None
        self._session = report.session
        jobs = self._hub.jobs_on(self.where)
        if was_unavailable:
            for job in jobs:
                self._hub.set_note(job.id, "")
                self._send(a.Follow(job.id, attempt_of(job).attempt))
                if isinstance(job.state, Running) and job.state.stopping:
                    self.end(job)
            self._hub.cluster_changed(self.where, None)
        ours = {attempt_of(job).attempt for job in jobs}
        self._ends = {attempt: end for attempt, end in self._ends.items() if attempt in ours}
        for orphan in set(report.attempts or ()) - ours:
            self._send(a.Halt(orphan))

    def _resubmit_or_lose(self, job: Job, report: a.Missing) -> None:
        decision = decide_missing(running(job), report.session)
        if isinstance(decision, Untraceable):
            self._end_without_record(job.id, report.attempt, decision)
            return
        try:
            self._submit(job, running(job), self._hub.environment(job.id), again=True)
        except UserError as problem:  # with the store: the agent reports it missing again
            self._hub.set_note(job.id, problem.message)
            self._send(a.Follow(job.id, report.attempt))

    def _end_without_record(self, job_id: int, attempt: str, end: NeverRan | Untraceable) -> None:
        self._ends[attempt] = end
        self._hub.attempt_ended(job_id)

    def _job(self, job_id: int, attempt: str) -> Job | None:
        """Return the job, where this attempt is the one it is at."""
        for job in self._hub.jobs_on(self.where):
            if job.id == job_id and attempt_of(job).attempt == attempt:
                return job
        return None

    def _submit(self, job: Job, running: Running, env: dict[str, str], again: bool = False) -> None:
        # a job without GPUs must not touch one that is held by another
        hidden = {} if job.spec.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        given = {**env, **hidden, **identity(job, running.attempt)}
        folder = str(paths.job_folder(job.id))
        command = a.SubmitAttempt(
            job.id, running.attempt, running.boot, job.spec, given, folder, again
        )
        self._send(command)


def decide_missing(running: Running, session: str) -> Untraceable | Literal["submit"]:
    """Decide about an attempt that a cluster which answers does not have."""
    if running.boot != session:
        return Untraceable(RESTARTED)
    if running.known:
        return Untraceable(phrase("the cluster no longer has it: somebody deleted it there"))
    if running.stopping:
        return Untraceable(phrase("it was cancelled before the cluster had it"))
    return "submit"
