"""Add and remove other machines, whose devices are read over ssh."""

from __future__ import annotations

from gpudeck.scheduler.protocol.errors import NotFound, no_machine
from gpudeck.scheduler.protocol.settings import HostSettings, Settings
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Request


class SetHost(Request[Settings], frozen=True, tag="set_host"):
    """Add a machine, change how it is reached, or remove it (None). Returns all settings."""

    name: str
    host: HostSettings | None

    async def handle(self, daemon: Daemon, peer: Peer) -> Settings:
        hosts = dict(daemon.snapshot().settings.hosts)
        if self.host is not None:
            hosts[self.name] = self.host
        elif hosts.pop(self.name, None) is None:
            raise NotFound(no_machine(self.name))
        return await daemon.configure({"hosts": hosts})
