"""Take a job or a program off the GPU, bring it back, and list what is suspended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.bookings import Moment
from gpudeck.scheduler.protocol.devices import Detail, Process, find_process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Permission, Request


class SuspendJob(Request[Job], frozen=True, tag="suspend_job"):
    """Take a running job off its GPUs, and return it once they are free.

    The memory of the machine holds what the GPUs held, and the job's processes are stopped.
    """

    permission: ClassVar[Permission] = "owner or administrators"

    job: int
    resume_at: Moment | None = None
    """When it comes back by itself, in seconds since the epoch; None: when it is resumed."""

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        return await daemon.job_suspensions.suspend(self.job, self.resume_at)


class ResumeJob(Request[Job], frozen=True, tag="resume_job"):
    """Have a suspended job come back to its GPUs, as soon as they have room for it."""

    permission: ClassVar[Permission] = "owner or administrators"

    job: int

    async def handle(self, daemon: Daemon, peer: Peer) -> Job:
        return daemon.job_suspensions.resume(self.job)


class SuspendProcess(Request[SuspendedProgram], frozen=True, tag="suspend"):
    """Take a program that uses a GPU off it, and stop its processes.

    The program is the process with its descendants. Pid and start time (ticks since boot, as a
    Detail lists them) name one process even where the pid is reused.
    """

    permission: ClassVar[Permission] = "everybody"

    pid: int
    ticks: int

    async def handle(self, daemon: Daemon, peer: Peer) -> SuspendedProgram:
        return await daemon.suspensions.suspend(lambda: self._look(daemon), daemon.owner(peer))

    async def _look(self, daemon: Daemon) -> tuple[Process, Sequence[Detail]]:
        """Return the process as it is now. Raises NotFound, UserError where it belongs to a job."""
        details = await daemon.polling.await_details()
        listed = (process for detail in details for process in detail.processes)
        process = find_process(listed, self.pid, self.ticks)
        if process is None:
            raise NotFound(
                phrase(
                    "process {pid} does not use a GPU. To see those that do: gpudeck processes",
                    pid=self.pid,
                )
            )
        if process.job is not None:
            raise UserError(
                phrase(
                    "process {pid} belongs to job {job}. To suspend the job: gpudeck suspend {job}",
                    pid=process.pid,
                    job=process.job,
                )
            )
        return process, details


class ResumeProcess(Request[SuspendedProgram], frozen=True, tag="resume"):
    """Bring a suspended program back to the GPU, and let its processes go on."""

    permission: ClassVar[Permission] = "everybody"

    pid: int

    async def handle(self, daemon: Daemon, peer: Peer) -> SuspendedProgram:
        for job, found in daemon.suspensions.of_jobs().items():
            if found.pid == self.pid:
                raise UserError(
                    phrase(
                        "process {pid} belongs to job {job}. To resume the job: "
                        "gpudeck resume {job}",
                        pid=self.pid,
                        job=job,
                    )
                )
        return await daemon.suspensions.resume(self.pid, daemon.owner(peer))


class GetSuspended(Request[tuple[SuspendedProgram, ...]], frozen=True, tag="suspended"):
    """List the programs that are suspended, or on their way."""

    permission: ClassVar[Permission] = "everybody"

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[SuspendedProgram, ...]:
        return daemon.suspensions.describe()
