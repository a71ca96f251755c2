"""Take jobs off their GPUs and bring them back, step by step.

The queue stores each step before it is done (see `gpudeck.scheduler.queue.suspender`), and the
suspension service keeps on disk which processes are suspended, and how far. So a daemon that
follows one that was killed compares the two, and goes on from there (`recover`).

    off:  store suspending; lock, checkpoint and stop (service); release the GPUs; store suspended
    back: store resuming; take the GPUs; hold the memory, restore and unlock (service); store
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress

from gpudeck.language.numbers import GIB
from gpudeck.language.text import Bytes, Message, phrase
from gpudeck.scheduler.attempts import Executor, running
from gpudeck.scheduler.executors.inspection import is_elsewhere
from gpudeck.scheduler.protocol.containers import DETACHING, split_container
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, JobSuspension, Running, suspension_of
from gpudeck.scheduler.protocol.user_limits import UserLimits
from gpudeck.scheduler.queue.queue import Queue
from gpudeck.scheduler.suspension import program
from gpudeck.scheduler.suspension.program import Member, Suspension
from gpudeck.scheduler.suspension.service import SuspensionService
from gpudeck.scheduler.suspension.steps import Lost

RETRY_S, LONGEST_RETRY_S = 5.0, 300.0
"""Seconds before a job whose GPU had too little memory is tried again to come back: at first, and
at most, as each refusal doubles them."""
STOP_S = 5.0
"""How long the end of the daemon waits for a step."""
OFF, ON = "not suspended", "resumed"
"""Events of the timeline."""


class JobSuspensions:
    """Suspend and resume jobs of this machine. Runs in the event loop."""

    def __init__(
        self,
        queue: Callable[[], Queue],
        executor: Executor,
        service: SuspensionService,
        details: Callable[[], Awaitable[Sequence[Detail]]],
        changed: Callable[[], None],
        limits_of: Callable[[int | None], UserLimits | None],
    ) -> None:
        """Suspend nothing yet.

        Args:
            queue: Returns the queue.
            executor: Runs the jobs of this machine.
            service: Moves the memory of programs.
            details: Reads which processes use the GPUs.
            changed: Called after each step: jobs may start, and clients see it.
            limits_of: Returns the limits of a user.
        """
        self._queue, self._executor, self._service = queue, executor, service
        self._details, self._changed, self._limits_of = details, changed, limits_of
        self._returning: dict[int, float] = {}
        """When each job may be brought back that is on its way, or was refused (monotonic)."""
        self._pauses: dict[int, float] = {}
        """How long each job that was refused waits, in seconds."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._inherited: set[int] | None = None
        """Jobs of an earlier daemon that were not compared yet; None before the first time."""

    async def suspend(self, job_id: int, resume_at: float | None = None) -> Job:
        """Take a job off its GPUs; return it once they are free.

        A resumable job that cannot be suspended is asked to end, and is queued again then. It does
        not start before `resume_at`, and is on hold if nobody said when it comes back.

        Args:
            resume_at: As in `JobSuspension`.

        Raises:
            NotFound: There is no such job.
            UserError: It cannot be suspended. It runs on.
        """
        job = self._queue().suspender.leave(job_id, resume_at)
        self._changed()
        try:
            await asyncio.shield(self._start(self._take_off(job)))
        except UserError:
            if not job.spec.resumable or not self._runs(job_id):
                raise
            self._queue().suspender.ask_to_yield(job_id, resume_at)
            self.ask_again()
        return self._queue().get(job_id)

    def preempt(self, job: Job) -> None:
        """Suspend a job for another one that waits; it comes back in its turn."""
        self._start(self._preempt(job.id))

    async def _preempt(self, job_id: int) -> None:
        with suppress(UserError):  # its timeline says why, and the plan leaves it alone for a while
            await self.suspend(job_id, time.time())

    def ask_again(self) -> None:
        """Ask those jobs to end that must be queued again: a runner that just started may not have
        heard it."""
        for job in self._queue().running:
            if isinstance(job.state, Running) and job.state.yielding:
                self._executor.ask_to_yield(job)

    def _runs(self, job_id: int) -> bool:
        """Return whether a job runs on its GPUs."""
        job = self._queue().get(job_id)
        return isinstance(job.state, Running) and job.state.suspension is None

    def resume(self, job_id: int) -> Job:
        """Have a suspended job come back as soon as its GPUs have room.

        Raises NotFound, UserError where it is not suspended.
        """
        self._queue().suspender.ask_back(job_id, time.time())
        self._returning.pop(job_id, None)
        self._pauses.pop(job_id, None)
        self._changed()
        return self._queue().get(job_id)

    def bring_back(self, job: Job) -> None:
        """Bring a suspended job back to its GPUs, unless that is under way, or just failed."""
        if self._service.recovered and time.monotonic() >= self._returning.get(job.id, 0.0):
            self._returning[job.id] = float("inf")
            self._start(self._bring_back(job))

    async def recover(self) -> None:
        """Go on where an earlier daemon stopped. May be called again.

        Raises UserError where something of it cannot be read, or be brought back now.
        """
        if self._inherited is None:
            self._inherited = {job.id for job in self._queue().running}
        try:
            await self._service.recover()
        finally:
            if self._service.recovered:
                self._compare(self._inherited)
            self._changed()

    async def stop(self) -> None:
        """Wait for what is on its way, but not for a driver that does not answer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in self._tasks:
            task.cancel()

    async def _take_off(self, job: Job) -> None:
        """Take a job off its GPUs whose suspension is stored. Raises UserError; it runs on."""
        try:
            found, _ = await self._service.take_off(lambda: self._find(job))
            if not found.members:
                await self._check_unused(found)
            self._executor.release_devices(job)
            self._queue().suspender.report_off(job.id, found.memory)
        except UserError as e:
            if await self._return(job):
                self._report_on(job, OFF, e.message)
            raise
        finally:
            self._changed()

    async def _bring_back(self, job: Job) -> None:
        """Bring back a suspended job to which the plan gives its GPUs."""
        retry_at = 0.0
        try:
            if not self._queue().suspender.come_back(job.id):
                return
            self._changed()
            self._executor.take_devices(job)
            if await self._return(job):
                self._report_on(job, ON)
                self._pauses.pop(job.id, None)
            else:
                retry_at = self._pause(job.id)
        except UserError:  # another queue has the GPU since a moment ago, or the disk is full
            self._queue().suspender.report_no_room(job.id)
            retry_at = self._pause(job.id)
        finally:
            self._returning[job.id] = retry_at
            self._changed()

    def _pause(self, job_id: int) -> float:
        """Return when a job that was refused is tried again (monotonic)."""
        pause = self._pauses.get(job_id, RETRY_S)
        self._pauses[job_id] = min(2 * pause, LONGEST_RETRY_S)
        return time.monotonic() + pause

    async def _return(self, job: Job) -> bool:
        """Bring a job's processes back from whatever state they are in; return whether they run.

        They stay suspended where there is no room. A driver that does not answer is asked again.
        """
        while (kept := self._service.of_jobs().get(job.id)) is not None:
            try:
                await self._service.resume(kept.pid, None)
            except Lost as e:
                self._queue().suspender.report_lost(job.id, e.message)
                return False
            except UserError:
                if self._is_off(job.id):
                    with suppress(UserError):
                        self._executor.release_devices(job)
                    self._queue().suspender.adopt_off(job.id, kept.memory)
                    return False
                await asyncio.sleep(RETRY_S)
        return True

    def _is_off(self, job_id: int) -> bool:
        kept = self._service.of_jobs().get(job_id)
        return kept is not None and kept.phase == "suspended"

    def _report_on(self, job: Job, what: str, why: Message = "") -> None:
        self._executor.pause_clock(job, False)
        self._queue().suspender.report_on(job.id, what, why)

    async def _find(self, job: Job) -> Suspension:
        """Return the processes of a job and what they hold; stop its clock. Raises UserError."""
        state = running(job)
        if is_elsewhere(state):
            raise UserError(
                phrase("job {job} runs in another container, so it is not suspended", job=job.id)
            )
        engine, _ = split_container(job.spec.container)
        if engine in DETACHING:
            raise UserError(
                phrase(
                    "job {job} runs in a container of {engine}, so it is not suspended",
                    job=job.id,
                    engine=engine.capitalize(),
                )
            )
        details = await self._details()
        found = program.find_job(job, Member(state.runner, state.started), details)
        self._check_limit(job, found)
        self._executor.pause_clock(job, True)
        return found

    def _check_limit(self, job: Job, found: Suspension) -> None:
        """Raise UserError where the user's suspended jobs would hold too much host memory."""
        limits = self._limits_of(job.spec.user)
        if limits is None or not limits.suspended_memory:
            return
        held, most = 0, round(limits.suspended_memory * GIB)
        for each in self._queue().suspender.jobs:
            if each.spec.user == job.spec.user and (away := suspension_of(each)) is not None:
                held += away.memory
        if held + found.memory > most:
            raise UserError(
                phrase(
                    "{name} holds {size} on the GPU; suspended jobs of its user hold {held} of "
                    "host memory already, and may hold {most} (see: gpudeck limits)",
                    name=found.name,
                    size=Bytes(found.memory),
                    held=Bytes(held),
                    most=Bytes(most),
                )
            )

    async def _check_unused(self, found: Suspension) -> None:
        """Raise UserError where a job that used no GPU has just begun to."""
        pids = {member.pid for member in found.tree}
        details = await self._details()
        if any(process.pid in pids for detail in details for process in detail.processes):
            raise UserError(phrase("{name} has just begun to use its GPU", name=found.name))

    def _compare(self, inherited: set[int]) -> None:
        """Compare what an earlier daemon stored of its jobs with what their processes show."""
        kept, jobs = self._service.of_jobs(), self._queue().running
        for job in [job for job in jobs if job.id in inherited]:
            found, suspension = kept.get(job.id), suspension_of(job)
            if found is not None and found.phase != "suspended":
                continue  # the driver does not answer now
            inherited.discard(job.id)
            if found is not None and found.attempt == running(job).attempt:
                self._executor.pause_clock(job, True)
                with suppress(UserError):
                    self._executor.release_devices(job)
                self._queue().suspender.adopt_off(job.id, found.memory)
            elif suspension is not None:
                self._adopt_unlisted(job, suspension)

    def _adopt_unlisted(self, job: Job, suspension: JobSuspension) -> None:
        """Take over a job that is not among the suspended programs: it runs, or its record is
        gone."""
        tree = program.find_tree(running(job).runner)[1:]
        if suspension.is_off and any(map(program.is_stopped, tree)):
            why = phrase("the record of its suspension is gone from the state folder")
            self._queue().suspender.report_lost(job.id, why)
            self._executor.end(job)
        elif suspension.phase == "suspending":
            self._report_on(job, OFF, phrase("the daemon ended meanwhile"))
        else:
            self._report_on(job, ON)

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a step that ends also if the client that asked for it is gone."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
