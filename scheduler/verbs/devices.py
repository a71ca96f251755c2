"""Read the details and the history of devices, and end processes on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, ClassVar

import msgspec

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.devices import Detail, find_process
from gpudeck.scheduler.protocol.errors import NotFound
from gpudeck.scheduler.protocol.jobs import (
    Ended,
    Event,
    Job,
    Queued,
    find_stays,
    suspended_seconds,
)
from gpudeck.scheduler.protocol.past_processes import PastProcess
from gpudeck.scheduler.protocol.search import NEWEST, Search
from gpudeck.scheduler.protocol.snapshot import Columns
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.change import Cancel
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

MAX_POINTS = 10_000
"""Buckets of history in one reply."""
MAX_SPANS = 500
"""Jobs among the annotations in one reply."""


class GetDetails(Request[tuple[Detail, ...]], frozen=True, tag="details"):
    """Read the links, parts and processes of all devices now."""

    permission: ClassVar[Permission] = "everybody"

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Detail, ...]:
        return await daemon.polling.details()


class KillProcess(Request[None], frozen=True, tag="kill"):
    """End a process that a Detail lists; a process of a job by cancelling the job.

    Pid and start time (ticks since boot, as a Detail lists them) name one process even where the
    pid is reused.
    """

    permission: ClassVar[Permission] = "administrators"

    pid: int
    ticks: int

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        details = await daemon.polling.details()
        listed = (p for d in details for p in (*d.processes, *d.cpu_processes))
        process = find_process(listed, self.pid, self.ticks)
        if process is None:
            raise NotFound(
                phrase(
                    "process {pid} has ended or does not use a GPU any more, or "
                    "is another process now. Nothing was ended. See: gpudeck "
                    "processes",
                    pid=self.pid,
                )
            )
        if process.job is not None and process.job in {job.id for job in daemon.queue.running}:
            await Cancel(process.job).handle(daemon, peer)
        else:
            await daemon.end_process(process)


class GetHistory(Request[Columns], frozen=True, tag="history"):
    """Return the readings of a device between two times, in at most `points` buckets."""

    permission: ClassVar[Permission] = "everybody"

    device: str
    fields: tuple[str, ...]
    since: float
    until: float = 1e18
    points: Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)] | None = None
    """None: every row that is stored."""

    async def handle(self, daemon: Daemon, peer: Peer) -> Columns:
        return await daemon.recorder.past(
            self.device, self.fields, self.since, self.until, self.points
        )


class GetFields(Request[tuple[str, ...]], frozen=True, tag="fields"):
    """Return the names of the fields that were read of a device between two times."""

    permission: ClassVar[Permission] = "everybody"

    device: str
    since: float
    until: float = 1e18

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[str, ...]:
        return tuple(await daemon.recorder.fields(self.device, self.since, self.until))


class GetProcesses(Request[tuple[PastProcess, ...]], frozen=True, tag="processes"):
    """Return the processes that used a device between two times, the newest first.

    `GetHistory` with the key of such a process as device returns how it used the device.
    """

    permission: ClassVar[Permission] = "everybody"

    since: float
    until: float = 1e18

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[PastProcess, ...]:
        return tuple(await daemon.recorder.processes(self.since, self.until))


class GetAnnotations(Request[tuple[Annotation, ...]], frozen=True, tag="annotations"):
    """Return the jobs, throttling, alerts and Xid events between two times, oldest first."""

    permission: ClassVar[Permission] = "everybody"

    since: float
    until: float = 1e18

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Annotation, ...]:
        during = Search(since=self.since, until=self.until)
        jobs, _ = daemon.queue.queries.find(during, NEWEST, MAX_SPANS)
        found = self._spans(jobs, daemon.queue.queries.timeline)
        found += await daemon.recorder.annotations(self.since, self.until)
        return tuple(sorted(found, key=lambda annotation: annotation.time))

    def _spans(
        self, jobs: Iterable[Job], timeline: Callable[[int], tuple[Event, ...]]
    ) -> list[Annotation]:
        """Return one annotation for each device that a job held between the two times, and for
        each of its stays there if it was suspended."""
        found: list[Annotation] = []
        for job in jobs:
            state = job.state
            if isinstance(state, Queued):
                continue
            began, ended = (
                (state.started, state.at) if isinstance(state, Ended) else (state.at, None)
            )
            if began is None or began > self.until or (ended is not None and ended < self.since):
                continue
            text = phrase(
                "job {job} ({name}): {status}",
                job=job.id,
                name=job.spec.name,
                status=Text(job.status),
            )
            was_away = suspended_seconds(job, self.until) > 0
            stays = find_stays(timeline(job.id) if was_away else (), began, ended)
            found += [
                Annotation(since, until, "job", text, device, job.id)
                for since, until in stays
                for device in state.devices
            ]
        return found
