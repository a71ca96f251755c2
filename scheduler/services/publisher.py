"""The publisher: a new snapshot for every subscriber after each change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.protocol.wire import Peer

HEARTBEAT_S = 1.0
"""The longest time between two snapshots: idle devices become busy where readings fail to come."""
PAUSE_S = 0.02
"""The shortest time between two snapshots: many jobs that start at once are one change."""

MAX_SUBSCRIBERS = 100
"""Subscriptions of one user: each is sent every snapshot."""


class Publisher:
    """Send snapshots to all subscribers.

    Args:
        take: Returns the present state.
        encode: Encodes it for a user.
    """

    def __init__(
        self, take: Callable[[], Snapshot], encode: Callable[[Snapshot, int], bytes]
    ) -> None:
        self._take, self._encode = take, encode
        self._newest: Snapshot | None = None
        self._encoded: dict[int, bytes] = {}
        """The newest snapshot for each user who was sent it."""
        self._count = 0
        self._published = asyncio.Condition()
        self._subscribers = Counter[int]()
        """How many connections of each user are subscribed."""
        self._changed = asyncio.Event()

    def touch(self) -> None:
        """Have a new snapshot published soon."""
        self._changed.set()

    async def publish(self) -> None:
        """Publish a snapshot after each change, for ever."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            if self._subscribers.total():
                async with self._published:
                    self._newest, self._encoded = self._take(), {}
                    self._count += 1
                    self._published.notify_all()
                await asyncio.sleep(PAUSE_S)

    async def serve(self, peer: Peer) -> None:
        """Send each new snapshot; a slow reader misses all but the newest.

        Raises ConnectionError when the subscriber is gone, UserError where its user has too many.
        """
        if self._subscribers[peer.uid] >= MAX_SUBSCRIBERS:
            raise UserError(
                phrase(
                    "up to {most} programs of one user follow the daemon at once. "
                    "Close some, and try again",
                    most=MAX_SUBSCRIBERS,
                )
            )
        sent = self._count
        self._subscribers[peer.uid] += 1
        self.touch()
        try:
            while True:
                async with self._published:
                    await self._published.wait_for(lambda: self._count > sent)  # noqa: B023
                    sent, snapshot = self._count, self._for(peer.uid)
                await peer.send(snapshot)
        finally:
            self._subscribers[peer.uid] -= 1

    def _for(self, uid: int) -> bytes:
        """Return the newest snapshot, encoded once a user."""
        assert self._newest is not None
        if uid not in self._encoded:
            self._encoded[uid] = self._encode(self._newest, uid)
        return self._encoded[uid]
