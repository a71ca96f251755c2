"""Follow the daemon for all browsers together, as long as one of them shows the page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.web.page_state import make_page
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import DaemonGone, UserError
from gpudeck.scheduler.protocol.snapshot import Snapshot

EVERY_S = 0.5
"""The shortest time between two messages."""
_AGAIN_S = 1.0
"""The time before the next attempt to reach the daemon."""

Event = tuple[str, bytes]
"""The name of a server-sent event, and its JSON."""


class Feed:
    """Keep one subscription and its newest message."""

    def __init__(self) -> None:
        self._viewers = 0
        self._event: Event | None = None
        self._version = 0
        self._changed = asyncio.Condition()
        self._following: asyncio.Task[None] | None = None

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield the newest message now and whenever there is a newer one."""
        self._viewers += 1
        if self._following is None:
            self._following = asyncio.create_task(self._follow())
        seen = 0
        try:
            while True:
                async with self._changed:
                    while self._version == seen:
                        await self._changed.wait()
                    seen, event = self._version, self._event
                assert event is not None
                yield event
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._following.cancel()
                self._following, self._event, self._version = None, None, 0

    async def _follow(self) -> None:
        """Publish until nobody watches any more."""
        while True:
            try:
                await self._subscribe()
            except DaemonGone:
                await self._publish("problem", tr("disconnected from the daemon; reconnecting"))
            except UserError as e:
                await self._publish("problem", tr_text(e.message))
            await asyncio.sleep(_AGAIN_S)

    async def _subscribe(self) -> None:
        """Publish what one connection brings. Raises UserError when it ends."""
        loop, newest = asyncio.get_running_loop(), _Newest()
        with await asyncio.to_thread(Client) as client, await asyncio.to_thread(Client) as asking:
            reader = threading.Thread(target=newest.read, args=(client, loop), daemon=True)
            reader.start()
            while True:
                snapshot = await newest.take()
                landings = await asyncio.to_thread(asking.schedule)
                await self._publish("page", make_page(snapshot, landings))
                await asyncio.sleep(EVERY_S)

    async def _publish(self, name: str, value: object) -> None:
        async with self._changed:
            self._event, self._version = (name, msgspec.json.encode(value)), self._version + 1
            self._changed.notify_all()


class _Newest:
    """Hold the newest snapshot that a thread read, or the error that ended it."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._found: Snapshot | UserError | None = None

    def read(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        """Read until the connection ends; runs in a thread of its own."""
        with suppress(RuntimeError):  # the loop has ended
            try:
                for snapshot in client.subscribe():
                    loop.call_soon_threadsafe(self._put, snapshot)
            except UserError as e:
                loop.call_soon_threadsafe(self._put, e)

    async def take(self) -> Snapshot:
        """Wait for a snapshot that was not taken before. Raises UserError."""
        await self._arrived.wait()
        self._arrived.clear()
        if isinstance(self._found, UserError):
            raise self._found
        assert self._found is not None
        return self._found

    def _put(self, found: Snapshot | UserError) -> None:
        self._found = found
        self._arrived.set()
