"""Pause the queue; list, limit and pause groups of jobs."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.scheduler.protocol.jobs import GroupState
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class Pause(Request[None], frozen=True, tag="pause"):
    """Start no more jobs, or start them again. Running jobs continue."""

    permission: ClassVar[Permission] = "administrators"

    paused: bool

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        daemon.queue.groups.pause(self.paused)
        daemon.queue_changed()


class GetGroups(Request[tuple[GroupState, ...]], frozen=True, tag="groups"):
    """List the groups, by name."""

    permission: ClassVar[Permission] = "everybody"

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[GroupState, ...]:
        return tuple(daemon.queue.groups.states())


class SetGroup(Request[tuple[GroupState, ...]], frozen=True, tag="group"):
    """Limit or pause a group; None leaves the limit or the pause as it is. Returns all groups."""

    permission: ClassVar[Permission] = "administrators"

    name: str
    limit: int | None = None
    paused: bool | None = None

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[GroupState, ...]:
        daemon.queue.groups.set(self.name, self.limit, self.paused)
        daemon.queue_changed()
        return tuple(daemon.queue.groups.states())
