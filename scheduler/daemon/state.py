"""What the parts of the daemon share: the settings, and the newest readings."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpudeck.language.text import Message
from gpudeck.scheduler.protocol.devices import Reading
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import STARTING


@dataclass
class State:
    """Hold what changes while the daemon runs, and belongs to no part alone."""

    settings: Settings
    source: Message = STARTING
    """Where the readings come from."""
    latest: dict[str, Reading] = field(default_factory=dict)
    """The newest reading of each device; empty while the probe does not answer."""
