"""What each user may ask of a server at a time, so that nobody keeps it from the others."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

MAX_CONNECTIONS = 2000
"""Open connections of one user: a program may wait for a thousand jobs at once."""
DESCRIPTORS = 4
"""One user has at most this part of the descriptors: one in so many."""
SMALL = 64 * 2**10
"""Bytes of a message that each connection may hold; of longer ones, a user sends one at a time."""
WHOLE_S = 30.0
"""Seconds in which a longer message must arrive; clients wait as long for an answer."""
MAX_UNSENT = 64 * 2**20
"""Bytes of replies that a user has not read yet, and in spite of which further ones are made."""
AT_ONCE = 4
"""Requests of one user that are worked on in turns with those of others."""
RATE, BURST = 200.0, 400.0
"""Requests of one user in a second, and how many may come at once after a pause. Each SMALL bytes
of a request count as one more."""


class Traffic:
    """Keep the count of each user who is connected."""

    def __init__(self, *, limited: bool) -> None:
        """`limited`: users are strangers to each other, and root is not limited."""
        self._limited, self._users = limited, dict[int, UserTraffic]()

    @contextmanager
    def connected(self, uid: int) -> Iterator[UserTraffic | None]:
        """Count a connection of a user while it is open; None where they have too many."""
        user = self._users.setdefault(uid, UserTraffic(limited=self._limited and uid != 0))
        if user.is_full():
            yield None
            return
        user.connections += 1
        try:
            yield user
        finally:
            user.connections -= 1
            if not user.connections:
                del self._users[uid]


class UserTraffic:
    """Hold back what is too much of one user."""

    def __init__(self, *, limited: bool) -> None:
        self._limited, self.connections = limited, 0
        self.large = asyncio.Lock()
        """Held while a message arrives that is longer than SMALL."""
        self._gate = asyncio.Lock()
        self._at_work = asyncio.Semaphore(AT_ONCE)
        self._unsent, self._room = 0, asyncio.Event()
        self._room.set()
        self._tokens, self._at = BURST, asyncio.get_running_loop().time()

    def is_full(self) -> bool:
        """Return whether this user has too many connections for a further one."""
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // DESCRIPTORS
        return self._limited and self.connections >= min(MAX_CONNECTIONS, descriptors)

    async def turn(self, size: int) -> None:
        """Wait until a request of so many bytes may be handled.

        The loop takes up one request of each user in turn: those of others wait for one at most.
        """
        if not self._limited:
            return
        async with self._gate:
            await self._room.wait()
            now = asyncio.get_running_loop().time()
            self._tokens = min(BURST, self._tokens + (now - self._at) * RATE)
            self._tokens -= 1.0 + size / SMALL
            self._at = now
            await asyncio.sleep(max(0.0, -self._tokens / RATE))

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Wait until a request of this user may be worked on.

        Each is a part of every turn of the loop, and makes a reply that is held until it is read.
        """
        if not self._limited:
            yield
            return
        async with self._at_work:
            await self._room.wait()
            yield

    @contextmanager
    def sending(self, size: int) -> Iterator[None]:
        """Count a reply of so many bytes while its reader takes it."""
        self._count_unsent(size)
        try:
            yield
        finally:
            self._count_unsent(-size)

    def _count_unsent(self, size: int) -> None:
        self._unsent += size
        (self._room.set if self._unsent <= MAX_UNSENT else self._room.clear)()
