"""List, change and try where a user is told about jobs, alerts and bookings."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.scheduler.protocol.destinations import (
    Destination,
    DestinationState,
    check_destination,
)
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class GetDestinations(Request[tuple[DestinationState, ...]], frozen=True, tag="destinations"):
    """Return the destinations of the user, without their addresses."""

    permission: ClassVar[Permission] = "everybody"

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[DestinationState, ...]:
        return tuple(daemon.notifier.states(daemon.owner(peer)))


class SetDestination(Request[None], frozen=True, tag="set_destination"):
    """Add or replace a destination, or remove it (None)."""

    permission: ClassVar[Permission] = "everybody"

    name: str
    destination: Destination | None

    def check(self) -> None:
        if self.destination is not None:
            check_destination(self.name, self.destination)

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        daemon.notifier.set(daemon.owner(peer), self.name, self.destination)


class TryDestination(Request[None], frozen=True, tag="try_destination"):
    """Send a test message once, and raise UserError if that fails."""

    permission: ClassVar[Permission] = "everybody"

    name: str

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        await daemon.notifier.attempt(daemon.owner(peer), self.name)
