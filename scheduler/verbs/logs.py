"""Read the output of a job through the daemon, for clients that cannot read its file."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from gpudeck.scheduler.protocol import log_file
from gpudeck.scheduler.protocol.jobs import earlier_attempt
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request

MAX_LOG_PART = 4 * 2**20
"""Bytes in one reply."""


class ReadLog(Request[tuple[int, bytes, int]], frozen=True, tag="log"):
    """Return a part of a job's output: where it begins, its bytes, and where to read on.

    A negative offset counts from the end. Each attempt has a log of its own.
    """

    permission: ClassVar[Permission] = "owner"

    job: int
    offset: int = 0
    limit: Annotated[int, msgspec.Meta(ge=0, le=MAX_LOG_PART)] = 2**20

    attempt: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The number of an attempt, from 1 on; None for the newest one."""

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[int, bytes, int]:
        earlier = earlier_attempt(daemon.queue.get(self.job), self.attempt)
        part = log_file.of_job(self.job, self.offset, self.limit, earlier)
        return part.start, part.data, part.end
