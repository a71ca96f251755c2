"""What the clean-up page asks for, and what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from assistant.housekeeping import EmptyResult, Finding, Receipt, UndoResult


class Scan(msgspec.Struct, frozen=True):
    """Look for what may go."""


class StopScan(msgspec.Struct, frozen=True):
    """End the search; what was found so far is shown."""


class Clean(msgspec.Struct, frozen=True):
    """Move these to the trash; a person chose them."""

    finds: tuple[Finding, ...]


class PutBack(msgspec.Struct, frozen=True):
    """Undo a clean-up."""

    receipt: str


class EmptyTrash(msgspec.Struct, frozen=True):
    """Delete for good what clean-ups moved to the trash; a person was asked."""


CleaningRequest = Scan | StopScan | Clean | PutBack | EmptyTrash


class TrashContents(msgspec.Struct, frozen=True):
    """What clean-ups left in the trash."""

    count: int = 0
    bytes: int = 0
    last: str = ""
    """The newest clean-up of which something is there; empty where there is none."""


class Progress(msgspec.Struct, frozen=True):
    """How far it is."""

    text: str


class Scanned(msgspec.Struct, frozen=True):
    finds: tuple[Finding, ...]
    trash: TrashContents
    unseen: tuple[str, ...] = ()
    """What could not be looked at, and why."""
    stopped: str = ""
    """Why it ended early; empty where it did not."""


class Cleaned(msgspec.Struct, frozen=True):
    receipt: Receipt
    trash: TrashContents


class Restored(msgspec.Struct, frozen=True):
    undone: UndoResult
    trash: TrashContents


class TrashEmptied(msgspec.Struct, frozen=True):
    emptied: EmptyResult
    trash: TrashContents


CleaningReply = Progress | Scanned | Cleaned | Restored | TrashEmptied
