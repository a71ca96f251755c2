"""Carry out the requests of the clean-up page.

Each reply holds the result and the contents of the trash.

Housekeeping is imported with the first request, so that the window opens sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpudeck.app.language.texts import tr
from gpudeck.app.link.call import Call
from gpudeck.language.text import Message

if TYPE_CHECKING:
    from gpudeck.assistant.housekeeping import EmptyResult, Finding, Receipt, UndoResult


class TrashContents(msgspec.Struct, frozen=True):
    """Describe what clean-ups left in the trash."""

    count: int = 0
    bytes: int = 0
    last: str | None = None
    """Id of the newest clean-up of which something is left."""


class ScanResult(msgspec.Struct, frozen=True):
    """Describe what a search found."""

    finds: tuple[Finding, ...]
    unread: tuple[Message, ...] = ()
    """Paths that could not be read, each with the reason."""
    stopped: Message | None = None
    """The reason why the search ended early; None if it did not."""


class Scan(msgspec.Struct, frozen=True):
    """Search for files and processes that may go. A cancelled search replies with what it found."""

    def carry_out(self, call: Call) -> tuple[ScanResult, TrashContents]:
        """Search, reporting each folder as progress."""
        from gpudeck.assistant.housekeeping import ScanMonitor, scan

        monitor = ScanMonitor(
            lambda path: call.report(tr("Searching {path}", path=path)), lambda: call.cancelled
        )
        with call.client() as client:
            finds = scan(client, monitor)
        return ScanResult(finds, tuple(monitor.unseen), monitor.stopped or None), trash_contents()


class MoveToTrash(msgspec.Struct, frozen=True):
    """Move findings that a person chose to the trash."""

    finds: tuple[Finding, ...]

    def carry_out(self, call: Call) -> tuple[Receipt, TrashContents]:
        """Move them, reporting the count as progress."""
        from gpudeck.assistant.housekeeping import move_to_trash

        def on_moved(count: int) -> None:
            call.report(tr("Moving {n} of {total}", n=count, total=len(self.finds)))

        with call.client() as client:
            return move_to_trash(client, self.finds, on_moved), trash_contents()


class PutBack(msgspec.Struct, frozen=True):
    """Undo a clean-up."""

    receipt: str

    def carry_out(self, call: Call) -> tuple[UndoResult, TrashContents]:
        """Move everything of that clean-up back to its place."""
        from gpudeck.assistant.housekeeping import undo

        return undo(self.receipt), trash_contents()


class EmptyTrash(msgspec.Struct, frozen=True):
    """Delete for good what clean-ups moved to the trash, after a person was asked."""

    def carry_out(self, call: Call) -> tuple[EmptyResult, TrashContents]:
        """Delete the contents of the trash."""
        from gpudeck.assistant.housekeeping import empty

        return empty(), trash_contents()


def trash_contents() -> TrashContents:
    """Return what clean-ups left in the trash."""
    from gpudeck.assistant.housekeeping import receipts

    kept = receipts()
    return TrashContents(
        sum(len(receipt.items) for receipt in kept),
        sum(receipt.bytes for receipt in kept),
        kept[0].id if kept else None,
    )
