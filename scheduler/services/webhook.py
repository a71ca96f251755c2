"""Alerts sent to a URL of the user's, as JSON by POST: each by a small process of its own, which may hang without anybody waiting.

A thread could not be ended while it looks up a name; a process can. The URL may hold a secret: it goes to the process by its standard
input, and into no log, notice or error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from scheduler.background import children

ATTEMPTS_S = (0.0, 2.0, 10.0)
"""Delays before the attempts to deliver one message."""
TIMEOUT_S = 10.0
"""After which one attempt is given up, its process ended."""
WAITING = 100
"""Messages that wait at most; where more come, the oldest are dropped."""
_USER_AGENT = "gpudeck"


class Webhook:
    """Sends messages one after the other, in the order in which they came. `on_trouble` is told why one failed; "": one went through."""

    def __init__(
        self,
        on_trouble: Callable[[str], None],
        attempts: tuple[float, ...] = ATTEMPTS_S,
        timeout: float = TIMEOUT_S,
    ) -> None:
        self._on_trouble, self._attempts, self._timeout = on_trouble, attempts, timeout
        self._waiting: list[tuple[str, bytes]] = []
        self._task: asyncio.Task[None] | None = None

    def send(self, url: str, message: dict[str, object]) -> None:
        """Take the message and return at once."""
        self._waiting.append((url, json.dumps(message).encode()))
        if len(self._waiting) > WAITING:
            del self._waiting[0]
            self._on_trouble(f"more than {WAITING} alerts wait to be sent: the oldest was dropped")
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._deliver())

    async def stop(self) -> None:
        """End what is being sent; what waits is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _deliver(self) -> None:
        while self._waiting:
            url, body = self._waiting.pop(0)
            trouble = ""
            for delay in self._attempts:
                await asyncio.sleep(delay)
                if not (trouble := await self._try(url, body)):
                    break
            self._on_trouble(
                f"an alert could not be sent to the webhook: {trouble}" if trouble else ""
            )

    async def _try(self, url: str, body: bytes) -> str:
        """Why it failed; empty where it did not."""
        try:
            sender = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "scheduler.services.webhook", str(self._timeout),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as e:
            return f"no process can be started: {e.strerror}"
        try:
            async with asyncio.timeout(self._timeout):
                said, _ = await sender.communicate(url.encode() + b"\n" + body)
        except TimeoutError:
            return f"no answer within {self._timeout:g} s"
        finally:
            if sender.returncode is None:
                children.kill(sender)
                await sender.wait()
        return said.decode(errors="replace").strip() if sender.returncode else ""


def post(url: str, body: bytes, timeout: float) -> str:
    """Send `body`. Returns why it failed, without the URL; empty where it went through."""
    import urllib.error  # here, in the process that sends: the daemon starts without
    import urllib.request

    headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT}
    try:
        request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - the settings allow http and https only
        with urllib.request.urlopen(request, timeout=timeout):  # noqa: S310
            return ""
    except urllib.error.HTTPError as e:
        return f"it answered {e.code} {e.reason}"
    except urllib.error.URLError as e:
        return f"it cannot be reached ({e.reason})"
    except (OSError, ValueError) as e:
        return f"it cannot be used ({type(e).__name__})"


if __name__ == "__main__":
    _url, _, _body = sys.stdin.buffer.read().partition(b"\n")
    if _failed := post(_url.decode(), _body, float(sys.argv[1])):
        print(_failed)
        sys.exit(1)
