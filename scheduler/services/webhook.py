"""Send alerts as JSON to the user's URL, each from a small process, so that a hang stops nothing
else.

A thread cannot be ended while it resolves a name; a process can. The URL may hold a secret: the
process reads it from standard input, and no log, notice or error contains it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from gpudeck.scheduler.background import children

ATTEMPTS_S = (0.0, 2.0, 10.0)
"""Delays before the attempts to deliver one message."""
TIMEOUT_S = 10.0
"""The time limit of an attempt, after which its process is killed."""
MAX_WAITING = 100
"""The most messages that wait; if there are more, the oldest is dropped."""
_USER_AGENT = "gpudeck"


class Webhook:
    """Send messages one after the other.

    Args:
        notify: receives the problem if a message was not delivered, and None if one was.
        attempts: Delays before the attempts.
        timeout: Seconds for one attempt.
    """

    def __init__(
        self,
        notify: Callable[[str | None], None],
        attempts: tuple[float, ...] = ATTEMPTS_S,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self._notify, self._attempts, self._timeout = notify, attempts, timeout
        self._waiting: list[tuple[str, bytes]] = []
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return how many messages wait."""
        return len(self._waiting)

    def send(self, url: str, message: dict[str, object]) -> None:
        """Queue the message and return at once."""
        self._waiting.append((url, json.dumps(message).encode()))
        if len(self._waiting) > MAX_WAITING:
            del self._waiting[0]
            self._notify(f"more than {MAX_WAITING} alerts wait to be sent: the oldest was dropped")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver())

    async def stop(self) -> None:
        """Stop sending; the messages that wait are dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self) -> None:
        while self._waiting:
            url, body = self._waiting.pop(0)
            problem: str | None = None
            for delay in self._attempts:
                await asyncio.sleep(delay)
                problem = await self._try(url, body)
                if problem is None:
                    break
            if problem is not None:
                problem = f"an alert could not be sent to the webhook: {problem}"
            self._notify(problem)

    async def _try(self, url: str, body: bytes) -> str | None:
        """Make one attempt; return the problem if it failed."""
        try:
            sender = await asyncio.create_subprocess_exec(
                *(
                    sys.executable,
                    "-P",
                    "-m",
                    "gpudeck.scheduler.services.webhook",
                    str(self._timeout),
                ),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError as e:
            return f"no process can be started: {e.strerror}"
        try:
            async with asyncio.timeout(self._timeout):
                printed, _ = await sender.communicate(url.encode() + b"\n" + body)
        except TimeoutError:
            return f"no answer within {self._timeout:g} s"
        finally:
            if sender.returncode is None:
                children.kill(sender)
                await sender.wait()
        if sender.returncode == 0:
            return None
        return printed.decode(errors="replace").strip() or "its process failed"


def post(url: str, body: bytes, timeout: float) -> str | None:
    """Send `body`; return the problem, without the URL, if that failed.

    No redirect is followed: it would lead to a server that the user did not name, and most
    redirects turn the message into a request without a body.
    """
    import urllib.error  # Only the small process sends; the daemon does not need this import.
    import urllib.request

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT}
    try:
        # The settings allow http and https only.
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout):
            return None
    except urllib.error.HTTPError as e:
        if 300 <= e.code < 400:
            return f"it answered {e.code} {e.reason}. Name the address it redirects to"
        return f"it answered {e.code} {e.reason}"
    except urllib.error.URLError as e:
        return f"it cannot be reached ({e.reason})"
    except (OSError, ValueError) as e:
        return f"it cannot be used ({type(e).__name__})"


if __name__ == "__main__":
    _url, _, _body = sys.stdin.buffer.read().partition(b"\n")
    if (_problem := post(_url.decode(), _body, float(sys.argv[1]))) is not None:
        print(_problem)
        sys.exit(1)
