"""The executor of a cluster, as the daemon sees it: what was committed here, held against what its agent sees there.

An attempt is committed with the session of the cluster it is meant for, before the cluster is asked for it. Whatever is not known of it
is asked, never guessed: while the cluster does not answer, the attempt stays as it is. Where the cluster answers and does not know it,
it is asked for again only if it was never acknowledged, and the cluster has forgotten nothing since; else it is lost, not run twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from scheduler.executors import agent_protocol as e
from scheduler.executors.base import (
    ATTEMPT_FILE,
    Exit,
    Lost,
    Unstarted,
    attempt_of,
    exit_record,
    identity,
    next_folder,
)
from scheduler.protocol import paths
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, Running
from scheduler.protocol.units import clock

GONE = "{} was taken out of the settings while it ran there"
STARTED_ANEW = "the cluster was started anew, and knows it no more"


class Hub(Protocol):
    """What an executor of a cluster needs of the daemon."""

    def jobs_on(self, where: str) -> list[Job]:
        """The jobs that were started there and have not ended."""

    def environment(self, job_id: int) -> dict[str, str]:
        """The environment it was submitted with. Raises UserError."""

    def acknowledge(self, job_id: int) -> None:
        """The cluster has its attempt: to be committed."""

    def set_note(self, job_id: int, note: str) -> None:
        """What holds it up there, for display."""

    def attempt_ended(self, job_id: int) -> None:
        """Its attempt is over."""

    def cluster_changed(self, where: str, trouble: str) -> None:
        """The cluster came (no trouble) or went."""


class Cluster:
    """`send` passes a command on to the agent, and does nothing while there is none: all is said again once it reports."""

    def __init__(self, where: str, hub: Hub, send: Callable[[e.Command], None]) -> None:
        self.where, self._hub, self._send = where, hub, send
        self._session: str | None = None
        """None while the cluster does not answer."""
        self._since, self._trouble = time.time(), "it was not heard of yet"
        self._fates: dict[str, Unstarted | Lost] = {}
        """Attempts that are over without an exit record."""

    @property
    def trouble(self) -> str:
        """Why nothing can be started there; empty where it can."""
        if self._session is not None:
            return ""
        return f"{self.where} unreachable since {clock(self._since, time.time())}: {self._trouble}"

    # An executor

    def prepare(self, job: Job, attempt: str, devices: tuple[str, ...]) -> Running:
        if self._session is None:
            raise UserError(self.trouble)
        next_folder(job)
        return Running(
            attempt,
            devices,
            time.time(),
            0,
            0,
            self._session,
            note=f"is being submitted to {self.where}",
        )

    def abandon(self, running: Running) -> None:
        pass  # nobody was asked for anything

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        folder = paths.job_folder(job.id)
        try:
            (folder / ATTEMPT_FILE).write_text(
                running.attempt
            )  # by this a machine that shares our file system knows its folder
        except OSError:
            pass  # a full disk: the result comes home with the output all the same
        self._submit(job, running, env)

    def adopt(self, job: Job) -> None:
        pass  # followed as soon as the agent reports

    def alive(self, running: Running) -> bool:
        return running.attempt not in self._fates

    def end(self, job: Job) -> None:
        self._send(e.Halt(attempt_of(job).attempt))

    def kill(self, jobs: Sequence[Job]) -> None:
        pass  # the cluster ends whole trees itself

    def outcome(self, job: Job) -> Exit | Unstarted | Lost:
        attempt = attempt_of(job).attempt
        return (
            exit_record(job.id, attempt)
            or self._fates.get(attempt)
            or Lost("nobody says how it ended")
        )

    # What the agent reports

    def hear(self, report: e.Report) -> None:
        match report:
            case e.Here():
                self._here(report)
            case e.Away(why):
                self.away(why)
            case e.Known(job_id, attempt) if self._job(job_id, attempt):
                self._hub.acknowledge(job_id)
            case e.Doing(job_id, attempt, note) if self._job(job_id, attempt):
                self._hub.set_note(job_id, f"{self.where}: {note}" if note else "")
            case e.Ended(job_id, attempt) if self._job(job_id, attempt):
                self._hub.attempt_ended(job_id)
            case e.Unsent(job_id, attempt, why) if self._job(job_id, attempt):
                self._over(job_id, attempt, Unstarted(f"{self.where}: {why}"))
            case e.Missing() if job := self._job(report.job, report.attempt):
                self._missing(job, report)

    def away(self, why: str) -> None:
        """The cluster, or its agent, does not answer."""
        if self._session is not None:
            self._since = time.time()
        elif why == self._trouble:
            return
        self._session, self._trouble = None, why
        for job in self._hub.jobs_on(self.where):
            self._hub.set_note(job.id, self.trouble)
        self._hub.cluster_changed(self.where, self.trouble)

    def removed(self) -> None:
        """It is a cluster of ours no more: nobody will ever know how what runs there ends."""
        for job in self._hub.jobs_on(self.where):
            self._over(job.id, attempt_of(job).attempt, Lost(GONE.format(self.where)))
        self._hub.cluster_changed(self.where, "")

    def _here(self, report: e.Here) -> None:
        came = self._session is None
        self._session = report.session
        jobs = self._hub.jobs_on(self.where)
        if came:
            for job in jobs:
                self._hub.set_note(job.id, "")
                self._send(e.Follow(job.id, attempt_of(job).attempt))
                if isinstance(job.state, Running) and job.state.stopping:
                    self.end(job)
            self._hub.cluster_changed(self.where, "")
        ours = {attempt_of(job).attempt for job in jobs}
        self._fates = {attempt: fate for attempt, fate in self._fates.items() if attempt in ours}
        for orphan in set(report.ours or ()) - ours:
            self._send(e.Halt(orphan))

    def _missing(self, job: Job, report: e.Missing) -> None:
        assert isinstance(job.state, Running)
        verdict = judge(job.state, report.session)
        if isinstance(verdict, Lost):
            self._over(job.id, report.attempt, verdict)
            return
        try:
            self._submit(job, job.state, self._hub.environment(job.id), again=True)
        except UserError as trouble:  # of the store: asked for again at the next look
            self._hub.set_note(job.id, str(trouble))
            self._send(e.Follow(job.id, report.attempt))

    def _over(self, job_id: int, attempt: str, fate: Unstarted | Lost) -> None:
        self._fates[attempt] = fate
        self._hub.attempt_ended(job_id)

    def _job(self, job_id: int, attempt: str) -> Job | None:
        """The job, where this attempt is the one it is at."""
        return next(
            (
                job
                for job in self._hub.jobs_on(self.where)
                if job.id == job_id and attempt_of(job).attempt == attempt
            ),
            None,
        )

    def _submit(self, job: Job, running: Running, env: dict[str, str], again: bool = False) -> None:
        spec, folder = job.spec, paths.job_folder(job.id)
        unseen = (
            {} if spec.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        )  # a job without GPUs must not touch one held by another
        given = {**env, **unseen, **identity(job, running.attempt)}
        self._send(
            e.Submit(
                job.id,
                running.attempt,
                running.boot,
                spec.name,
                spec.argv,
                spec.cwd,
                given,
                spec.gpus,
                spec.timeout,
                str(folder),
                again,
            )
        )


def judge(running: Running, session: str) -> Lost | Literal["submit"]:
    """What to do of an attempt that a cluster which answers does not know. Pure."""
    if running.boot != session:
        return Lost(STARTED_ANEW)
    if running.known:
        return Lost("the cluster knows it no more: somebody deleted it there")
    if running.stopping:
        return Lost("it was cancelled before the cluster had it")
    return "submit"
