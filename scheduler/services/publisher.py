"""Snapshots to whoever subscribed: a new one whenever something changed, where anybody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler.protocol.wire import Peer

HEARTBEAT_S = 1.0
"""The longest time between two snapshots: by time alone an idle device becomes busy, when its readings fail to come."""
PAUSE_S = 0.02
"""The shortest time between two snapshots: many jobs that start at once are one change."""


class Publisher:
    """`take` makes a snapshot, encoded."""

    def __init__(self, take: Callable[[], bytes]) -> None:
        self._take = take
        self._newest = b""
        self._made = 0
        self._fresh = asyncio.Condition()
        self._listeners = 0
        self._dirty = asyncio.Event()

    def touch(self) -> None:
        """Something changed."""
        self._dirty.set()

    async def publish(self) -> None:
        """For ever."""
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._dirty.wait()
            except TimeoutError:
                pass
            self._dirty.clear()
            if self._listeners:
                async with self._fresh:
                    self._newest = self._take()
                    self._made += 1
                    self._fresh.notify_all()
                await asyncio.sleep(PAUSE_S)

    async def serve(self, peer: Peer) -> None:
        """Send each new snapshot, but none that is older than the newest, however slowly it reads. Raises ConnectionError at its end."""
        seen = self._made
        self._listeners += 1
        self.touch()
        try:
            while True:
                async with self._fresh:
                    await self._fresh.wait_for(lambda: self._made > seen)  # noqa: B023
                    seen, snapshot = self._made, self._newest
                await peer.send(snapshot)
        finally:
            self._listeners -= 1
