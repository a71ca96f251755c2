"""Deliver notices to one destination: one after the other, tried again, and limited in rate.

Each attempt is a small process of its own. A thread cannot be ended while it resolves a name; a
process can.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable

import msgspec

from gpudeck.language.languages import Language
from gpudeck.scheduler.background import children
from gpudeck.scheduler.notices.envelope import COMMAND, Envelope
from gpudeck.scheduler.notices.notice import Notice, combined
from gpudeck.scheduler.protocol.destinations import Destination

PAUSES_S = (0.0, 2.0, 10.0, 60.0, 300.0)
"""Seconds before each attempt to deliver one message."""
TIMEOUT_S = 10.0
"""Seconds for one attempt, after which its process is killed."""
MAX_WAITING = 1000
"""The most notices that wait; if there are more, the oldest is dropped."""
MOST_PRINTED = 4096
"""Bytes of what a sender prints that are read. On a shared daemon it belongs to its user, who may
have it print anything."""
_PASSED = (
    "PATH", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip
"""The variables that a sender of another user gets: users can read those of their processes, and
root's may hold secrets."""
BURST, EVERY_S = 5, 30.0
"""So many messages are sent at once, and then one in so many seconds. What comes meanwhile is put
together into one. A webhook, which a program reads, gets all of them one by one."""


class Courier:
    """Deliver notices to one destination.

    Args:
        destination: Where they go.
        user: Who sends them, on a shared daemon that runs as root; None: who runs the daemon.
        tell: Takes the problem after all attempts with a notice failed, and None after success.
        pauses: Seconds before each attempt.
        timeout: Seconds for one attempt.
        every: Seconds between two messages, once BURST were sent.
    """

    def __init__(
        self,
        destination: Destination,
        user: int | None = None,
        tell: Callable[[str | None], None] = lambda problem: None,
        pauses: tuple[float, ...] = PAUSES_S,
        timeout: float = TIMEOUT_S,
        every: float = EVERY_S,
    ) -> None:
        self.destination, self._user, self._tell = destination, user, tell
        self._pauses, self._timeout, self._every = pauses, timeout, every
        self._waiting: deque[tuple[Notice, Language]] = deque()
        self._sent: deque[float] = deque(maxlen=BURST)
        """When the last messages were sent, in monotonic seconds."""
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        """Why the last attempt failed; empty where it did not."""

    def __len__(self) -> int:
        """Return how many notices wait."""
        return len(self._waiting)

    def send(self, notice: Notice, language: Language = "en") -> None:
        """Queue the notice and return at once."""
        self._waiting.append((notice, language))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._tell(f"more than {MAX_WAITING} messages wait: the oldest was dropped")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver())

    async def stop(self) -> None:
        """Stop sending; the notices that wait are dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def attempt(self, notice: Notice, language: Language = "en") -> str:
        """Make one attempt; return why it failed, an empty text where it did not."""
        destination = self.destination
        kind, address = destination.kind, destination.address
        envelope = Envelope(kind, address, notice, language, self._user)
        try:
            sender = await asyncio.create_subprocess_exec(
                *COMMAND,
                str(self._timeout),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd="/",
                env=_environment(self._user),
            )
        except OSError as e:
            return f"no process can be started: {e.strerror}"
        assert sender.stdin is not None and sender.stdout is not None
        sender.stdin.write(msgspec.json.encode(envelope))
        sender.stdin.close()
        try:
            async with asyncio.timeout(self._timeout):
                try:
                    printed = await sender.stdout.readexactly(MOST_PRINTED)
                    children.kill(sender)
                    while await sender.stdout.read(MOST_PRINTED):
                        pass  # a pipe that is full and not read would delay the process' end
                except asyncio.IncompleteReadError as e:
                    printed = e.partial
                await sender.wait()
        except TimeoutError:
            return f"no answer within {self._timeout:g} s"
        finally:
            if sender.returncode is None:
                children.kill(sender)
                await sender.wait()
        if sender.returncode == 0:
            return ""
        return printed.decode(errors="replace").strip() or "its process failed"

    async def _deliver(self) -> None:
        while self._waiting:
            notice, language = await self._next()
            for pause in self._pauses:
                await asyncio.sleep(pause)
                self.problem = await self.attempt(notice, language)
                if not self.problem:
                    break
            self._sent.append(time.monotonic())
            self._tell(self.problem or None)

    @property
    def _limited(self) -> bool:
        """Return whether so many messages were sent that the next one has to wait."""
        return (
            self.destination.kind != "webhook"
            and len(self._sent) == BURST
            and time.monotonic() - self._sent[0] < BURST * self._every
        )

    async def _next(self) -> tuple[Notice, Language]:
        """Return the next notice, or after a pause one that stands for all that wait."""
        if not self._limited:
            return self._waiting.popleft()
        await asyncio.sleep(max(self._sent[-1] + self._every - time.monotonic(), 0.0))
        notices, language = [notice for notice, _ in self._waiting], self._waiting[-1][1]
        self._waiting.clear()
        return combined(notices), language


def _environment(user: int | None) -> dict[str, str] | None:
    """Return the environment of a sender; None for that of this process."""
    if user is None:
        return None
    known = {name: os.environ.get(name, "") for name in _PASSED}
    # the login of a proxy is root's
    return {name: value for name, value in known.items() if value and "@" not in value}
