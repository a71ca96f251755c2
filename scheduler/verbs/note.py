"""Add a note to a job's timeline."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.progress import printable, unescaped
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

MAX_NOTE = 1000
"""Characters of one note."""


class AddNote(Request[Job], frozen=True, tag="note"):
    """Add a note to the timeline of a job in any state."""

    permission: ClassVar[Permission] = "owner or administrators"

    job: int
    text: str

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        if len(self.text) > MAX_NOTE:
            raise UserError(
                phrase(
                    "a note holds up to {limit} characters, not {n}",
                    limit=MAX_NOTE,
                    n=len(self.text),
                )
            )
        text = " ".join(printable(unescaped(self.text)).split())
        if not text:
            raise UserError(phrase("the note is empty"))
        return daemon.queue.add_event(self.job, "note", text)
