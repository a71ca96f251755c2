"""The end of a job: clients that wait for it, and the user's command that runs after it."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import Callable

from gpudeck.language.text import phrase
from gpudeck.scheduler.background.launch import open_log
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job

TIMEOUT_S = 60.0
"""A command that takes longer is killed, with all processes that it started."""
MAX_RUNNING = 4
MAX_WAITING = 10_000
"""Jobs whose commands wait; where there are more, the oldest are dropped."""


class JobEnds:
    """Wake the clients that wait for the end of a job."""

    def __init__(self) -> None:
        self._waiters: dict[int, set[asyncio.Future[None]]] = {}

    def job_ended(self, job_id: int) -> None:
        """Wake all that wait for this job."""
        for waiter in self._waiters.pop(job_id, set()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, job_id: int, seconds: float) -> None:
        """Wait until the active job has ended, or `seconds` have passed."""
        ended = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(job_id, set())
        waiters.add(ended)
        try:
            async with asyncio.timeout(seconds):
                await ended
        except TimeoutError:
            pass
        finally:
            waiters.discard(ended)
            if not waiters:
                self._waiters.pop(job_id, None)


def check_command(command: str) -> None:
    """Raise UserError if the program of a command is not on this machine."""
    words = shlex.split(command)
    if words and shutil.which(words[0]) is None:
        raise UserError(
            phrase(
                "on_job_end names a program that is not there: {value}. Name it by its whole path; "
                "it runs without a shell",
                value=words[0],
            )
        )


class JobEndCommand:
    """Run the user's command after each job: without a shell, limited in time, with a log.

    Args:
        notify: Takes the problem where a command failed, and None where one succeeded.
        timeout: Seconds after which a command is killed.
    """

    def __init__(self, notify: Callable[[str | None], None], timeout: float = TIMEOUT_S) -> None:
        self._notify, self._timeout = notify, timeout
        self._waiting: deque[tuple[str, Job]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def job_ended(self, job: Job, command: str) -> None:
        """Run `command` soon, unless it is blank; return at once."""
        if not command.strip():
            return
        self._waiting.append((command, job))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._notify(
                f"more than {MAX_WAITING} jobs wait for the command on_job_end: "
                "the oldest was dropped"
            )
        if len(self._tasks) < MAX_RUNNING:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait until all commands have run."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def stop(self) -> None:
        """Kill the running commands and drop the others."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            command, job = self._waiting.popleft()
            problem = await self._run(command, job)
            if problem is not None:
                problem = (
                    f"the command on_job_end failed for job {job.id}: {problem}. "
                    f"Its log: {paths.callback_log()}"
                )
            self._notify(problem)

    async def _run(self, command: str, job: Job) -> str | None:
        """Run the command; return why it failed, None where it succeeded."""
        variables = {
            "GPUDECK_JOB": str(job.id),
            "GPUDECK_STATUS": job.status,
            "GPUDECK_NAME": job.spec.name,
        }
        try:
            log = open_log(paths.callback_log())
            try:
                process = await asyncio.create_subprocess_exec(
                    *shlex.split(command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**os.environ, **variables},
                )
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
                # it leads a session and was not reaped, so the number still means its group
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return f"it ended with status {status}" if status else None
