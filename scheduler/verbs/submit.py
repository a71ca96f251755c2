"""Submit jobs, and forecast when they would start."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Self

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import check_indices
from gpudeck.scheduler.protocol.jobs import Forecast, Job, Spec
from gpudeck.scheduler.protocol.submissions import check_token, indexed, new_token
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

MOST_FORESEEN = 100
"""The most equal jobs of which the start of the last is foreseen."""


def check_folders(specs: Iterable[Spec]) -> None:
    """Raise UserError where a job is to run in a folder that does not exist.

    A job in a cluster, or one that runs after another job, may find its folder only later.
    """
    local = (s.cwd for s in specs if not (s.where or s.after or s.after_any))
    for folder in dict.fromkeys(local):
        try:
            exists = Path(folder).is_dir()
        except OSError as e:
            raise UserError(
                phrase(
                    "the job cannot run in the folder {folder}: {error}",
                    folder=folder,
                    error=str(e.strerror),
                )
            ) from e
        if not exists:
            raise UserError(
                phrase("there is no folder {folder} for the job to run in", folder=folder)
            )
        if not os.access(folder, os.X_OK, effective_ids=True):
            raise UserError(
                phrase(
                    "the job cannot run in the folder {folder}: Permission denied", folder=folder
                )
            )


class Submit(Request[Job], frozen=True, tag="submit"):
    """Queue one job. With a token that was used before, return the job of that submission."""

    permission: ClassVar[Permission] = "everybody"

    spec: Spec
    token: str = msgspec.field(default_factory=new_token)

    def check(self) -> None:
        check_token(self.token)
        check_folders([self.spec])

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        (job,) = await _submit(daemon, peer, [self.spec], {}, self.token)
        return daemon.queue.get(job.id)


class SubmitMany(Request[tuple[Job, ...]], frozen=True, tag="submit_many"):
    """Queue several jobs, all or none. Returns them abridged (see `jobs.listed`), oldest first.

    With a token that was used before, return the jobs of that submission.
    """

    permission: ClassVar[Permission] = "everybody"

    specs: tuple[Spec, ...]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """The environment of each job that has none of its own."""
    token: str = msgspec.field(default_factory=new_token)

    @classmethod
    def of(cls, specs: Sequence[Spec], token: str | None = None) -> Self:
        """Return the request for these jobs, with the environment that they share sent once."""
        check_indices(range(len(specs)))
        env = specs[0].env
        return cls(
            tuple(msgspec.structs.replace(s, env={}) if s.env == env else s for s in specs),
            env,
            token or new_token(),
        )

    @classmethod
    def array(cls, spec: Spec, indices: Iterable[int], token: str | None = None) -> Self:
        """Return the request for one job an index."""
        return cls.of(indexed(spec, indices), token)

    def check(self) -> None:
        check_token(self.token)
        check_folders(self.specs)

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Job, ...]:
        return tuple(await _submit(daemon, peer, self.specs, self.env, self.token))


class RawSubmission(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="submit_many"
):
    """A SubmitMany whose jobs are not decoded yet."""

    specs: tuple[msgspec.Raw, ...]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    token: str = msgspec.field(default_factory=new_token)


class GetSubmission(Request[tuple[Job, ...]], frozen=True, tag="submission"):
    """Return the jobs that were submitted with a token, oldest first."""

    permission: ClassVar[Permission] = "everybody"

    token: str

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Job, ...]:
        jobs = await peer.do(daemon.queue.submission.submitted(_own(daemon, peer, self.token)))
        return tuple(await peer.do(daemon.queue.listed([job.id for job in jobs])))


class Foresee(Request[Forecast], frozen=True, tag="foresee"):
    """Forecast where and when the job would start; submit nothing."""

    permission: ClassVar[Permission] = "everybody"

    spec: Spec
    count: int = 1
    """So many jobs like it; the forecast is that of the last."""

    def check(self) -> None:
        if not 1 <= self.count <= MOST_FORESEEN:
            raise UserError(
                phrase(
                    "a forecast is for 1 to {limit} equal jobs; got {count}",
                    limit=MOST_FORESEEN,
                    count=self.count,
                )
            )
        check_folders([self.spec])

    async def handle(self, daemon: Daemon, peer: Peer) -> Forecast:
        user = daemon.owner(peer)
        preempts = daemon.preempts(user)(self.spec)
        spec = msgspec.structs.replace(self.spec, user=user, preemptible=preempts)
        devices, availability = daemon.monitor.devices, daemon.availability(spec.when_idle)
        forecast = daemon.queue.submission.forecast(spec, devices, availability, self.count)
        return await peer.do(forecast)


class ForeseeJob(Request[Forecast], frozen=True, tag="foresee_job"):
    """Forecast where and when a waiting job will start."""

    permission: ClassVar[Permission] = "everybody"

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> Forecast:
        devices, availability = daemon.monitor.devices, daemon.availability()
        return await peer.do(daemon.queue.submission.forecast_job(self.job, devices, availability))


def _own(daemon: Daemon, peer: Peer, token: str) -> str:
    """Return a token as it is stored: users of a shared daemon have tokens of their own."""
    user = daemon.owner(peer)
    return token if user is None or not token else f"user {user} {token}"


async def _submit(
    daemon: Daemon, peer: Peer, specs: Sequence[Spec], env: dict[str, str], token: str
) -> list[Job]:
    if peer.gone:  # it gave up, perhaps while this process was stopped, and may submit again
        raise ConnectionAbortedError("the client is gone")
    check_token(token)
    specs = await peer.do(_own_specs(daemon, daemon.owner(peer), specs, env))
    if names := {name for s in specs for name in s.notify}:
        daemon.notifier.check_names(daemon.owner(peer), names)
    token = _own(daemon, peer, token)
    devices, availability = daemon.monitor.devices, daemon.availability()
    jobs = await peer.do(daemon.queue.submission.submit(specs, devices, availability, token))
    daemon.queue_changed()
    return await peer.do(daemon.queue.listed([job.id for job in jobs]))


def _own_specs(
    daemon: Daemon, user: int | None, specs: Sequence[Spec], env: dict[str, str]
) -> Work[list[Spec]]:
    """Return the jobs with their environments, whose they are, as no request chooses that, and
    whether they are preemptible by default."""
    found: list[Spec] = []
    preempts = daemon.preempts(user)
    for part in parts(specs):
        found += [
            msgspec.structs.replace(
                s, env=s.env or env, user=user, preemptible=preempts(s), spared=0
            )
            for s in part
        ]
        yield
    return found
