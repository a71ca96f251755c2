"""Edit, move and cancel jobs."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.scheduler.protocol.jobs import Cancelling, Changes, Job
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class Edit(Request[Job], frozen=True, tag="edit"):
    """Change the options of a waiting job, or the name, notes and tags of any job."""

    permission: ClassVar[Permission] = "owner or administrators"

    job: int
    changes: Changes

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        if self.changes.notify:
            owner = daemon.queue.get(self.job).spec.user
            daemon.notifier.check_names(owner, self.changes.notify)
        devices, availability = daemon.monitor.devices, daemon.availability()
        daemon.queue.editor.edit(self.job, self.changes, devices, availability, daemon.editor(peer))
        return _changed(daemon, self.job)


class Move(Request[Job], frozen=True, tag="move"):
    """Place a waiting job right before another, or right after it, at that job's priority."""

    permission: ClassVar[Permission] = "owner or administrators"

    job: int
    beside: int
    after: bool = False

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        daemon.queue.editor.move(self.job, self.beside, self.after, daemon.mover(peer))
        return _changed(daemon, self.job)


class GetSchedule(Request[tuple[Landing, ...]], frozen=True, tag="schedule"):
    """Return where and when jobs are expected to start that wait, or would after a move."""

    permission: ClassVar[Permission] = "everybody"

    move: Moved | None = None

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Landing, ...]:
        devices, availability = daemon.monitor.devices, daemon.availability()
        mover = daemon.mover(peer)
        schedule = daemon.queue.editor.schedule(devices, availability, self.move, mover)
        return await peer.do(schedule)


class Cancel(Request[Job], frozen=True, tag="cancel"):
    """Cancel a waiting job, or end all processes of a running one."""

    permission: ClassVar[Permission] = "owner or administrators"

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        daemon.queue.canceller.cancel(self.job)
        return _changed(daemon, self.job)


class CancelMany(Request[Cancelling], frozen=True, tag="cancel_many"):
    """Cancel all of the named jobs that have not ended.

    The reply says what was done, also where that is nothing.
    """

    permission: ClassVar[Permission] = "owners or administrators"

    jobs: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    """The first and the last job of each range."""
    array: int | None = None
    """The number of any job of the array."""
    group: str = ""

    async def handle(self, daemon: Daemon, peer: Peer) -> Cancelling:
        work = daemon.queue.canceller.cancel_many(self.jobs, self.ranges, self.array, self.group)
        try:
            return await peer.do(work)
        finally:
            daemon.queue_changed()


class Restore(Request[tuple[Job, ...]], frozen=True, tag="restore"):
    """Undo the cancellation of jobs that waited, within UNDO_S: they go back to their places.

    Returns them, with the jobs that were cancelled because of them and wait again.
    """

    permission: ClassVar[Permission] = "owners or administrators"

    jobs: tuple[int, ...]

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Job, ...]:
        try:
            restored = await peer.do(daemon.queue.canceller.undo.restore(self.jobs))
        finally:
            daemon.queue_changed()
        return tuple(await peer.do(daemon.queue.listed([job.id for job in restored])))


def _changed(daemon: Daemon, job_id: int) -> Job:
    daemon.queue_changed()
    return daemon.queue.get(job_id)
