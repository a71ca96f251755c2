"""Add a note to a job's timeline."""

from __future__ import annotations

from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job
from scheduler.protocol.progress import printable, unescaped
from scheduler.protocol.wire import Peer
from scheduler.verbs.request import Daemon, Request

MAX_NOTE = 1000
"""Characters of one note."""


class AddNote(Request[Job], frozen=True, tag="note"):
    """Add a note to the timeline of a job in any state."""

    job: int
    text: str

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        if len(self.text) > MAX_NOTE:
            raise UserError(f"a note holds up to {MAX_NOTE} characters, not {len(self.text)}")
        text = " ".join(printable(unescaped(self.text)).split())
        if not text:
            raise UserError("the note is empty")
        return daemon.queue.add_event(self.job, "note", text)
