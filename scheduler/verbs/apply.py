"""Put the settings of a file in force, all of them or none."""

from __future__ import annotations

from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.limits import check_shared
from gpudeck.scheduler.verbs.request import Daemon, Request


class ApplySettings(Request[Settings], frozen=True, tag="apply_settings"):
    """Set the named settings to these values, all of them or none. Returns all settings."""

    settings: Settings
    names: tuple[str, ...]
    """The settings that change; the others stay as they are in the daemon."""

    async def handle(self, daemon: Daemon, peer: Peer) -> Settings:
        if "limits" in self.names and self.settings.limits:
            check_shared(daemon, peer)
        return await daemon.configure({name: getattr(self.settings, name) for name in self.names})
