"""Take a program off the GPU, bring it back, and list what is suspended."""

from __future__ import annotations

from collections.abc import Iterable

from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.devices import Detail, Process
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.suspended import SuspendedProgram
from gpudeck.scheduler.protocol.wire import Peer
from gpudeck.scheduler.verbs.request import Daemon, Request


class SuspendProcess(Request[SuspendedProgram], frozen=True, tag="suspend"):
    """Take a program that uses a GPU off it, and stop its processes.

    The program is the process with its descendants. Pid and start time (ticks since boot, as a
    Detail lists them) name one process even where the pid is reused.
    """

    pid: int
    ticks: int

    async def handle(self, daemon: Daemon, peer: Peer) -> SuspendedProgram:
        details = await daemon.polling.details()
        process = self._find(details)
        if process.job is not None:
            raise UserError(
                phrase(
                    "process {pid} belongs to job {job}, and jobs cannot be suspended yet",
                    pid=process.pid,
                    job=process.job,
                )
            )
        return await daemon.suspensions.suspend(process, details, daemon.owner(peer))

    def _find(self, details: Iterable[Detail]) -> Process:
        for detail in details:
            for process in detail.processes:
                if self.ticks and (process.pid, process.ticks) == (self.pid, self.ticks):
                    return process
        raise NotFound(
            phrase(
                "process {pid} does not use a GPU. To see those that do: gpudeck processes",
                pid=self.pid,
            )
        )


class ResumeProcess(Request[SuspendedProgram], frozen=True, tag="resume"):
    """Bring a suspended program back to the GPU, and let its processes go on."""

    pid: int

    async def handle(self, daemon: Daemon, peer: Peer) -> SuspendedProgram:
        return await daemon.suspensions.resume(self.pid, daemon.owner(peer))


class GetSuspended(Request[tuple[SuspendedProgram, ...]], frozen=True, tag="suspended"):
    """List the programs that are suspended, or on their way."""

    async def handle(self, daemon: Daemon, peer: Peer) -> tuple[SuspendedProgram, ...]:
        return daemon.suspensions.describe()
