"""Get, list and find jobs, and wait for the end of one."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Event, Job
from gpudeck.scheduler.protocol.search import MAX_SEARCHED, NEWEST, OUTCOMES, Search
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

WAIT_S = 10.0
"""The longest time after which Wait is answered."""


class Page(msgspec.Struct, frozen=True):
    """Some of the jobs that match a search, newest first."""

    jobs: tuple[Job, ...]
    before: int | None
    """Where the next page begins; None on the last page."""


class GetJob(Request[Job], frozen=True, tag="job"):
    """Return one job whole: lists and snapshots abridge long commands and large results."""

    permission: ClassVar[Permission] = "everybody"

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        return daemon.queue.get(self.job)


class Wait(Request[Job], frozen=True, tag="wait"):
    """Return the job once it has ended, or as it is after `seconds` (at most WAIT_S)."""

    permission: ClassVar[Permission] = "everybody"

    job: int
    seconds: float

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        if daemon.queue.get(self.job).active:
            await daemon.job_ends.wait(self.job, max(0.0, min(self.seconds, WAIT_S)))
        return daemon.queue.get(self.job)


class GetTimeline(Request[tuple[Event, ...]], frozen=True, tag="timeline"):
    """Return the events of a job, oldest first."""

    permission: ClassVar[Permission] = "owner"

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Event, ...]:
        return daemon.queue.queries.timeline(self.job)


class ListJobs(Request[tuple[Job, ...]], frozen=True, tag="jobs"):
    """List the newest jobs, abridged (see `jobs.listed`): at most MAX_LISTED."""

    permission: ClassVar[Permission] = "everybody"

    limit: int = 100
    active: bool = False

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Job, ...]:
        return await peer.do(daemon.queue.queries.newest(self.limit, self.active))


class FindJobs(Request[Page], frozen=True, tag="find"):
    """Find the newest jobs with numbers below `before` that match: abridged, at most MAX_LISTED.

    The daemon searches for a few milliseconds only: a page may be short, or empty, although there
    are more.
    """

    permission: ClassVar[Permission] = "everybody"

    search: Search
    before: int = NEWEST
    limit: int = 100

    async def handle(self, daemon: Daemon, peer: Peer) -> Page:
        search = self.search
        if len(search.text) > MAX_SEARCHED or len(search.outcomes) > len(OUTCOMES):
            raise UserError(
                phrase(
                    "a search has up to {limit} characters, and each outcome once",
                    limit=MAX_SEARCHED,
                )
            )
        for device in daemon.monitor.devices:
            if search.device in (device.id, device.number):
                search = msgspec.structs.replace(search, device=device.id)
                break
        viewer = daemon.viewer(peer)
        return Page(*daemon.queue.queries.find(search, self.before, self.limit, viewer))
