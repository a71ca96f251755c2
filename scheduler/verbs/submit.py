"""Submit jobs, and forecast when they would start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import msgspec

from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import check_indices
from scheduler.protocol.jobs import Forecast, Job, Spec
from scheduler.protocol.wire import Peer
from scheduler.verbs.request import Daemon, Request


def check_folders(specs: Iterable[Spec]) -> None:
    """Raise UserError where a job is to run in a folder that does not exist.

    A job in a cluster, or one that runs after another job, may find its folder only later.
    """
    local = (s.cwd for s in specs if not (s.where or s.after or s.after_any))
    for folder in dict.fromkeys(local):
        if not Path(folder).is_dir():
            raise UserError(f"there is no folder {folder} for the job to run in")


class Submit(Request[Job], frozen=True, tag="submit"):
    """Queue one job."""

    spec: Spec

    def check(self) -> None:
        check_folders([self.spec])

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        return _submit(daemon, [self.spec])[0]


class SubmitMany(Request[tuple[Job, ...]], frozen=True, tag="submit_many"):
    """Queue several jobs in one transaction, all or none. Returns them, oldest first."""

    specs: tuple[Spec, ...]
    env: dict[str, str] = msgspec.field(default_factory=dict)
    """The environment of each job that has none of its own."""

    @classmethod
    def of(cls, specs: Sequence[Spec]) -> Self:
        """Return the request for these jobs, with the environment that they share sent once."""
        check_indices(range(len(specs)))
        env = specs[0].env
        return cls(
            tuple(msgspec.structs.replace(s, env={}) if s.env == env else s for s in specs), env
        )

    @classmethod
    def array(cls, spec: Spec, indices: Iterable[int]) -> Self:
        """Return the request for one job an index."""
        return cls.of(
            [
                msgspec.structs.replace(spec, index=i, name=f"{spec.name}[{i}]")
                for i in check_indices(indices)
            ]
        )

    def check(self) -> None:
        check_folders(self.specs)

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Job, ...]:
        env = self.env
        specs = [msgspec.structs.replace(spec, env=spec.env or env) for spec in self.specs]
        return tuple(_submit(daemon, specs))


class Foresee(Request[Forecast], frozen=True, tag="foresee"):
    """Forecast where and when the job would start; submit nothing."""

    spec: Spec

    def check(self) -> None:
        check_folders([self.spec])

    async def handle(self, daemon: Daemon, peer: Peer) -> Forecast:
        return daemon.queue.forecast(self.spec, daemon.monitor.devices, daemon.availability())


class ForeseeJob(Request[Forecast], frozen=True, tag="foresee_job"):
    """Forecast where and when a waiting job will start."""

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> Forecast:
        return daemon.queue.forecast_job(self.job, daemon.monitor.devices, daemon.availability())


def _submit(daemon: Daemon, specs: list[Spec]) -> list[Job]:
    jobs = daemon.queue.submit(specs, daemon.monitor.devices, daemon.availability())
    daemon.queue_changed()
    return [daemon.queue.get(job.id) for job in jobs]
