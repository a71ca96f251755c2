"""Record which program ordered a change of jobs."""

from __future__ import annotations

from typing import ClassVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.progress import printable, unescaped
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

_MOST = 60
"""Characters of a name."""


class RecordOrder(Request[None], frozen=True, tag="record_order"):
    """Add to the timelines of jobs by which program, and by whose leave, they are changed."""

    permission: ClassVar[Permission] = "owners or administrators"

    jobs: tuple[int, ...]
    verb: str
    program: str
    token: str = ""
    """The name of the access token that allowed it; empty: a person approved it."""

    async def handle(self, daemon: Daemon, peer: Peer) -> None:
        verb, program, token = map(_plain, (self.verb, self.program, self.token))
        text = (
            phrase("{verb} by {program}, allowed by the access token {token}", verb=verb,
                   program=program, token=token)
            if token
            else phrase("{verb} by {program}, approved by a person", verb=verb, program=program)
        )  # fmt: skip
        await peer.do(daemon.queue.add_events(self.jobs, "ordered", text))


def _plain(text: str) -> str:
    return " ".join(printable(unescaped(text)).split())[:_MOST]
