"""The ends of runners: jobs whose runners ended at one moment are reaped together."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.services.notices import NoticeBoard

RETRY_S = 1.0
"""The pause before an end that could not be stored, as on a full disk, is tried again."""
BATCH = 100
"""Jobs that are reaped at a time: each time costs a look at all processes of the machine."""
PAUSE_S = 0.005
"""The pause between two batches, in which requests are answered."""


class RunnerWatch:
    """Watch the processes of runners, and have their jobs reaped.

    Args:
        reap: Stores how these jobs ended. Raises UserError.
        notices: Takes the notice `settle` where an end cannot be stored.
        reaped: Called after each attempt to store ends.
        tidy: Returns what must be done before a job is reaped; None for nothing.
    """

    def __init__(
        self,
        reap: Callable[[Collection[int]], None],
        notices: NoticeBoard,
        reaped: Callable[[], None],
        tidy: Callable[[int], Coroutine[None, None, None] | None],
    ) -> None:
        self._reap, self._notices, self._reaped, self._tidy = reap, notices, reaped, tidy
        self._tidying: set[asyncio.Task[None]] = set()
        self._ended: deque[int] = deque()
        self.unstored: set[int] = set()
        """Jobs whose end could not be stored yet."""
        self._retry_at = 0.0

    def watch(self, job: int, runner: int | None) -> None:
        """Reap the job once this process has ended, whoever started it; None: it has ended.

        Raises UserError where the process cannot be watched.
        """
        if runner is None:
            self.runner_ended(job)
            return
        try:
            fd = os.pidfd_open(runner)
        except ProcessLookupError:
            self.runner_ended(job)
            return
        except OSError as e:
            raise UserError(
                phrase(
                    "no more processes can be watched: {error}. The daemon may need "
                    "a higher limit of open files.",
                    error=str(e.strerror),
                )
            ) from e

        def ended() -> None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
            self.runner_ended(job)

        asyncio.get_running_loop().add_reader(fd, ended)

    def runner_ended(self, job: int) -> None:
        """Reap the job soon, together with all that end at the same moment."""
        if (work := self._tidy(job)) is None:
            self._reap_soon(job)
            return
        task = asyncio.create_task(work)
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)
        task.add_done_callback(lambda _: self._reap_soon(job))

    def _reap_soon(self, job: int) -> None:
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._reap_batch)
        self._ended.append(job)

    def reap(self, jobs: Collection[int]) -> None:
        """Reap these jobs now."""
        self.unstored.update(jobs)
        self._retry_at = time.monotonic() + RETRY_S
        with self._notices.catch("settle"):
            self._reap(jobs)
            self.unstored.difference_update(jobs)
        self._reaped()

    def retry(self) -> None:
        """Try again to store the ends that could not be stored, where it is time."""
        if self.unstored and time.monotonic() >= self._retry_at:
            self.reap(sorted(self.unstored)[:BATCH])

    def _reap_batch(self) -> None:
        jobs = [self._ended.popleft() for _ in range(min(BATCH, len(self._ended)))]
        if self._ended:
            asyncio.get_running_loop().call_later(PAUSE_S, self._reap_batch)
        self.reap(jobs)
