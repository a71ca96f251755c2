"""Limit what the users of a shared daemon may use."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


def check_shared(daemon: Daemon, peer: Peer) -> None:
    """Raise UserError where nobody shares the daemon, so that limits have no meaning."""
    if daemon.owner(peer) is None:
        raise UserError(phrase("a queue of your own has one user: limits are for a shared daemon"))


class SetLimits(Request[Settings], frozen=True, tag="set_limits"):
    """Set the limits of a user, or remove them (None). Returns all settings."""

    permission: ClassVar[Permission] = "administrators"

    user: str
    limits: UserLimits | None

    async def handle(self, daemon: Daemon, peer: Peer) -> Settings:
        check_shared(daemon, peer)
        known = dict(daemon.snapshot().settings.limits)
        if self.limits is not None:
            known[self.user] = self.limits
        elif known.pop(self.user, None) is None:
            raise NotFound(
                phrase("there are no limits for {user}. See: gpudeck limits", user=self.user)
            )
        return await daemon.configure({"limits": known})
