"""Who waits for the end of which job."""

from __future__ import annotations

import asyncio


class JobEnds:
    def __init__(self) -> None:
        self._waiters: dict[int, set[asyncio.Future[None]]] = {}

    def job_ended(self, job_id: int) -> None:
        """The job has ended."""
        for waiter in self._waiters.pop(job_id, set()):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, job_id: int, seconds: float) -> None:
        """Until the job, which is active, has ended, or `seconds` have passed."""
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
