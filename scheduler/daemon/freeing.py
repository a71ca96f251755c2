"""Free GPUs for a time: suspend the jobs there when a booking begins that frees its GPUs.

The queue keeps the suspended jobs away until the booking is over or cancelled, and brings them
back then. Daily bookings are renewed here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager

from gpudeck.language.text import Message
from gpudeck.scheduler.daemon.job_suspension import JobSuspensions
from gpudeck.scheduler.protocol.bookings import Booking, Freed, renewed
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, held_devices, suspension_of
from gpudeck.scheduler.protocol.settings import Settings

CHECK_S = 1.0
"""Seconds between two looks at the bookings."""
AGAIN_S = 60.0
"""Seconds before a job that could not be suspended is tried again."""


class Freeing:
    """Keep jobs off the GPUs of bookings that free them."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        running: Callable[[], Sequence[Job]],
        suspensions: JobSuspensions,
        configure: Callable[[Mapping[str, object]], Awaitable[object]],
        catch: Callable[[str], AbstractContextManager[None]],
    ) -> None:
        """Do nothing yet.

        Args:
            settings: Returns the settings in force.
            running: Returns the jobs that run.
            suspensions: Suspends jobs.
            configure: Changes settings.
            catch: Returns what turns a UserError into a notice of this topic.
        """
        self._settings, self._running = settings, running
        self._suspensions, self._configure, self._catch = suspensions, configure, catch
        self._tried: dict[int, float] = {}
        """When each job was last tried to be suspended (monotonic)."""
        self._tasks = set[asyncio.Task[Freed]]()

    async def run(self) -> None:
        """Look at the bookings again and again, for ever."""
        try:
            while True:
                await asyncio.sleep(CHECK_S)
                with self._catch("freeing"):
                    await self._renew()
                self._suspensions.ask_again()
                for booking in tuple(self._settings().reservations.values()):
                    self._start(self.free(booking, AGAIN_S))
        finally:
            for task in self._tasks:
                task.cancel()

    async def free(self, booking: Booking, pause: float = 0.0) -> Freed:
        """Suspend the jobs that a booking keeps from its GPUs now.

        Args:
            pause: How long ago a job must have been tried, in seconds.
        """
        left, asked, stayed, now = list[int](), list[int](), dict[int, Message](), time.time()
        if not booking.is_on(now):
            return Freed()

        async def suspend(job: Job) -> None:
            self._tried[job.id] = time.monotonic()
            try:
                done = await self._suspensions.suspend(job.id, now)
                (left if suspension_of(done) is not None else asked).append(job.id)
            except UserError as e:
                stayed[job.id] = e.message

        due = (
            job
            for job in self._running()
            if _is_in_the_way(job, booking)
            and time.monotonic() - self._tried.get(job.id, -AGAIN_S) >= pause
        )
        await asyncio.gather(*map(suspend, due))
        return Freed(tuple(left), tuple(asked), stayed)

    def _start(self, work: Coroutine[None, None, Freed]) -> None:
        """Suspend jobs without waiting: the driver takes seconds for each, one after the other."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _renew(self) -> None:
        """Move daily bookings that are over to the next day."""
        known, now = self._settings().reservations, time.time()
        next_ones = {
            number: renewed(booking, now)
            for number, booking in known.items()
            if booking.daily and booking.end <= now
        }
        if next_ones:
            await self._configure({"reservations": {**known, **next_ones}})


def _is_in_the_way(job: Job, booking: Booking) -> bool:
    """Return whether a job holds one of the GPUs that are kept for others."""
    kept_out = not booking.admits(job.spec.user, job.spec.group)
    moves = booking.frees or job.spec.preemptible
    return kept_out and moves and not set(held_devices(job)).isdisjoint(booking.gpus)
