"""Read the log of alerts, and acknowledge an alert."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from gpudeck.scheduler.protocol.search import MAX_LISTED
from gpudeck.scheduler.protocol.snapshot import Alert
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class GetAlerts(Request[tuple[Alert, ...]], frozen=True, tag="alerts"):
    """Return the log of alerts, newest first."""

    permission: ClassVar[Permission] = "everybody"

    limit: Annotated[int, msgspec.Meta(ge=0, le=MAX_LISTED)] = 100

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[Alert, ...]:
        return daemon.alerts.log(self.limit)


class Acknowledge(Request[None], frozen=True, tag="acknowledge"):
    """Record that a person has seen an active alert."""

    permission: ClassVar[Permission] = "administrators"

    alert: int

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        daemon.alerts.acknowledge(self.alert)
        daemon.publisher.touch()
