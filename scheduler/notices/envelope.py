"""What the process that sends a notice reads, and how it is started.

The daemon imports this and not the sender, which loads all that speaks to networks.
"""

from __future__ import annotations

import sys

import msgspec

from gpudeck.language.languages import Language
from gpudeck.scheduler.notices.notice import Notice
from gpudeck.scheduler.protocol.destinations import Kind

COMMAND = (sys.executable, "-P", "-m", "gpudeck.scheduler.notices.sender")
"""The command of that process; the seconds for the attempt follow."""


class Envelope(msgspec.Struct, frozen=True):
    """Hold a notice and where it goes."""

    kind: Kind
    address: str
    notice: Notice
    language: Language = "en"
    user: int | None = None
    """The user as whom it is sent, where root's daemon is shared; None: who runs this process."""
