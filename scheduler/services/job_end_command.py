"""The user's command that is run at the end of every job: without a shell, limited in time, its output in a log of its own."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable

from scheduler.background.launch import open_log
from scheduler.protocol import paths
from scheduler.protocol.jobs import Job

TIMEOUT_S = 60.0
"""After which a command is ended, and all that it started."""
AT_ONCE = 4
WAITING = 10_000
"""Jobs whose ends wait to be told at most; of more, the oldest are not told."""


class JobEndCommand:
    """`on_trouble` is told why one failed; "": one did not. What a daemon that is killed had not told yet, nobody tells."""

    def __init__(self, on_trouble: Callable[[str], None], timeout: float = TIMEOUT_S) -> None:
        self._on_trouble, self._timeout = on_trouble, timeout
        self._waiting: deque[tuple[str, Job]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def job_ended(self, job: Job, command: str) -> None:
        """Run `command` soon, where there is one; returns at once."""
        if not command.strip():
            return
        self._waiting.append((command, job))
        if len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._on_trouble(
                f"the ends of more than {WAITING} jobs wait for the command on_job_end: the oldest was dropped"
            )
        if len(self._tasks) < AT_ONCE:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End what runs; what waits is dropped."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            command, job = self._waiting.popleft()
            trouble = await self._run(command, job)
            said = f"the command on_job_end failed for job {job.id}: {trouble}. Its log: {paths.callback_log()}"
            self._on_trouble(said if trouble else "")

    async def _run(self, command: str, job: Job) -> str:
        """Why it failed; empty where it did not."""
        told = {
            "GPUDECK_JOB": str(job.id),
            "GPUDECK_STATUS": job.status,
            "GPUDECK_NAME": job.spec.name,
        }
        try:
            log = open_log(paths.callback_log())
            try:
                process = await asyncio.create_subprocess_exec(
                    *shlex.split(command),
                    stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **told},
                )  # fmt: skip
            finally:
                os.close(log)
        except OSError as e:
            return e.strerror or str(e)
        try:
            async with asyncio.timeout(self._timeout):
                status = await process.wait()
        except TimeoutError:
            return f"it took more than {self._timeout:g} s, and was ended"
        finally:
            if process.returncode is None:
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # it leads a session of its own, and is not waited for yet: the number is its
                await process.wait()
        return f"it ended with status {status}" if status else ""
