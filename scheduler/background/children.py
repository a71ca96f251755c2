"""Child processes that print lines, and are replaced when they hang or die."""

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
"""The pauses before the next child is started: the longer, the more of them ended early."""
LONG_S = 60.0
"""A child that lived for this long did not end early."""


async def lines(child: Process, patience: Callable[[], float]) -> AsyncIterator[bytes]:
    """Yield the lines that the child prints until it ends.

    Raises TimeoutError where it prints none for `patience()` seconds.
    """
    assert child.stdout is not None
    while True:
        async with asyncio.timeout(patience()):
            line = await child.stdout.readline()
        if not line:
            return
        yield line


async def end(child: Process) -> None:
    """Kill the child. One that hangs in the kernel is left behind, as nobody can end it."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    kill(child)
    try:
        async with asyncio.timeout(END_S):
            # each pipe is read to its end: only then is it closed
            await child.stdout.read()
            if child.stderr is not None:
                await child.stderr.read()
            await child.wait()
    except TimeoutError:
        pass


def kill(child: Process) -> None:
    """Kill the child at once, if it lives.

    asyncio's own method would reap a child that has just ended, and then warn about it.
    """
    try:
        # the child is not reaped, so its pid is not reused
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        os.kill(child.pid, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError):
        pass  # it has ended


class Backoff:
    """Delay the start of children that follow each other."""

    def __init__(self) -> None:
        self._started, self._failures = 0.0, 0

    def begin(self) -> None:
        """Note that a child is started."""
        self._started = time.monotonic()

    async def pause(self) -> None:
        """Wait after a child has ended."""
        self._failures = 1 if time.monotonic() - self._started > LONG_S else self._failures + 1
        await asyncio.sleep(BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1])
