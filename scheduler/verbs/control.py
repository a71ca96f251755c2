"""Watch the daemon's snapshots, change its settings, stop it, lease a GPU from it."""

from __future__ import annotations

import math
from typing import ClassVar

from gpudeck.language.text import Message, phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import ClusterSettings, Settings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class GetSnapshot(Request[Snapshot], frozen=True, tag="snapshot"):
    """Return the present state of everything."""

    permission: ClassVar[Permission] = "everybody"

    live: bool = True
    """As in Subscribe, for a while."""

    async def handle(self, daemon: Daemon, peer: Peer) -> Snapshot:
        return daemon.snapshot()


class Subscribe(Request[Snapshot], frozen=True, tag="subscribe"):
    """Send a Snapshot after every change, until the connection closes."""

    permission: ClassVar[Permission] = "everybody"

    live: bool = True
    """A person watches: devices are read at the full rate, and sleeping ones are woken."""

    async def handle(self, daemon: Daemon, peer: Peer) -> Snapshot:
        with daemon.polling.watched(self.live):
            await daemon.publisher.serve(peer)
        raise AssertionError("a subscription ends with its connection")


class Configure(Request[Settings], frozen=True, tag="configure"):
    """Change settings. Returns all settings, which are in force now."""

    changes: dict[str, str | float | bool | dict[str, ClusterSettings]]

    def check(self) -> None:
        for name, value in self.changes.items():
            if isinstance(value, float) and not math.isfinite(value):  # JSON has no such number
                raise UserError(
                    phrase("{name} must be a number, not {value}", name=name, value=value)
                )

    async def handle(self, daemon: Daemon, peer: Peer) -> Settings:
        return await daemon.configure(self.changes)


class Stop(Request[None], frozen=True, tag="stop"):
    """End the daemon. Running jobs continue, and the next daemon adopts them."""

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        daemon.stop()


class Lease(Request[Message], frozen=True, tag="lease"):
    """Lease an idle GPU to the process that asks. Returns the device's id.

    At the eviction the daemon sends a second reply, the reason, and kills the process 0.1 s later.
    The lease ends with the process.
    """

    memory: int = 0
    """Bytes that must be free on the device."""

    async def handle(self, daemon: Daemon, peer: Peer) -> str:
        return daemon.lease(self.memory, peer)
