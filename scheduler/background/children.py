"""Child processes that say what they have to say in lines, and are replaced when they hang or die."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable

END_S = 2.0
"""How long the end of a killed child is waited for."""
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Between the end of one and the start of the next: the longer, the more of them ended soon."""
LONG_S = 60.0
"""One that lived for so long did not end soon."""


async def lines(child: Process, patience: Callable[[], float]) -> AsyncIterator[bytes]:
    """What it says until it ends. Raises TimeoutError where it says nothing for so many seconds, asked for anew with each line."""
    assert child.stdout is not None
    while True:
        async with asyncio.timeout(patience()):
            line = await child.stdout.readline()
        if not line:
            return
        yield line


async def end(child: Process) -> None:
    """Kill it. One that is stuck in the kernel is left behind, as nobody can end it."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    kill(child)
    try:
        async with asyncio.timeout(END_S):
            await child.stdout.read()  # to its end: only then is the pipe closed
            await child.wait()
    except TimeoutError:
        pass


def kill(child: Process) -> None:
    """At once, where it lives. asyncio's own way would reap one that has just ended, and then complain that somebody did."""
    try:
        os.waitid(
            os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        )  # unreaped: the number is nobody else's
        os.kill(child.pid, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError):
        pass  # it has ended


class Backoff:
    """How long the next of several children, one after the other, has to wait."""

    def __init__(self) -> None:
        self._started, self._failures = 0.0, 0

    def begin(self) -> None:
        """One is started."""
        self._started = time.monotonic()

    async def pause(self) -> None:
        """It has ended."""
        self._failures = 1 if time.monotonic() - self._started > LONG_S else self._failures + 1
        await asyncio.sleep(BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1])
