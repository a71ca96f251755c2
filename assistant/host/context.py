"""What every request handler gets besides its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpudeck.assistant.host.channel import RequestChannel
from gpudeck.assistant.host.model_residency import ModelResidency
from gpudeck.assistant.tools.proposal_store import ProposalStore
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.settings import Settings

if TYPE_CHECKING:
    from gpudeck.assistant.engine.engine import Engine


class RequestContext(NamedTuple):
    """Give a handler the model, the proposals and the channel to the client."""

    residency: ModelResidency
    proposals: ProposalStore
    channel: RequestChannel

    def must_stop(self, engine: Engine) -> bool:
        """Return whether the request was cancelled, or its model must leave the GPU."""
        evicted = engine.device == "cuda" and self.residency.evicted.is_set()
        return evicted or self.channel.stop.is_set()


def current_settings() -> Settings:
    """Return the settings that the daemon uses now. Raises DaemonGone."""
    with Client(start=False) as daemon:
        return daemon.snapshot().settings
