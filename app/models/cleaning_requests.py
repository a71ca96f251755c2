"""What the clean-up page asks for, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from assistant.housekeeping import Emptied, Find, Receipt, Undone


@dataclass(frozen=True)
class Scan:
    """Look for what may go."""


@dataclass(frozen=True)
class StopScan:
    """End the search; what was found so far is shown."""


@dataclass(frozen=True)
class Clean:
    """Move these to the trash; a person chose them."""

    finds: tuple[Find, ...]


@dataclass(frozen=True)
class PutBack:
    """Undo a clean-up."""

    receipt: str


@dataclass(frozen=True)
class EmptyTrash:
    """Delete for good what clean-ups moved to the trash; a person was asked."""


CleaningRequest = Scan | StopScan | Clean | PutBack | EmptyTrash


@dataclass(frozen=True)
class InTrash:
    """What clean-ups left in the trash."""

    count: int = 0
    bytes: int = 0
    last: str = ""
    """The newest clean-up of which something is there; empty where there is none."""


@dataclass(frozen=True)
class Progress:
    """How far it is."""

    text: str


@dataclass(frozen=True)
class Scanned:
    finds: tuple[Find, ...]
    trash: InTrash
    unseen: tuple[str, ...] = ()
    """What could not be looked at, and why."""
    stopped: str = ""
    """Why it ended early; empty where it did not."""


@dataclass(frozen=True)
class Cleaned:
    receipt: Receipt
    trash: InTrash


@dataclass(frozen=True)
class Restored:
    undone: Undone
    trash: InTrash


@dataclass(frozen=True)
class TrashEmptied:
    emptied: Emptied
    trash: InTrash


CleaningReply = Progress | Scanned | Cleaned | Restored | TrashEmptied
