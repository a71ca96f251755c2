"""Carries out what the clean-up page asks for, in the thread of a request.

Housekeeping is imported with the first of them: the window is there sooner.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.cleanup.requests import (
    Clean,
    Cleaned,
    CleaningReply,
    EmptyTrash,
    Progress,
    PutBack,
    Restored,
    Scan,
    Scanned,
    TrashContents,
    TrashEmptied,
)
from scheduler.client import Client


class Cleaning:
    """`tell` is called with how far it is, from the thread of the request."""

    def __init__(self, tell: Callable[[CleaningReply], None]) -> None:
        self._tell = tell
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the search that is under way; may be called from any thread."""
        self._stop.set()

    def carry_out(
        self, client: Client, request: Scan | Clean | PutBack | EmptyTrash
    ) -> CleaningReply:
        """Raises UserError."""
        from assistant.housekeeping import empty, move_to_trash, undo

        match request:
            case Scan():
                return self._scan(client)
            case Clean(finds=finds):
                return Cleaned(
                    move_to_trash(
                        client,
                        finds,
                        lambda done: self._tell(Progress(f"moving: {done} of {len(finds)}")),
                    ),
                    in_trash(),
                )
            case PutBack(receipt=receipt):
                return Restored(undo(receipt), in_trash())
            case EmptyTrash():
                return TrashEmptied(empty(), in_trash())

    def _scan(self, client: Client) -> Scanned:
        from assistant.housekeeping import ScanMonitor, scan

        self._stop.clear()
        watch = ScanMonitor(
            lambda path: self._tell(Progress(f"looking at {path}")), self._stop.is_set
        )
        finds = scan(client, watch)
        return Scanned(finds, in_trash(), tuple(watch.unseen), watch.stopped)


def in_trash() -> TrashContents:
    """What clean-ups left there."""
    from assistant.housekeeping import receipts

    there = receipts()
    return TrashContents(
        sum(len(r.items) for r in there), sum(r.bytes for r in there), there[0].id if there else ""
    )
