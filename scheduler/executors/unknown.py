"""The executor of a cluster that is in a job, and not in the settings any more."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.executors.base import Exit, Lost, attempt_of, exit_record
from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job, Running


class Unknown:
    """Starts nothing. What was started there may run on; nobody will say how it ends."""

    def __init__(self, where: str) -> None:
        self._why = f"{where} is not in the settings"

    def prepare(self, job: Job, attempt: str, devices: tuple[str, ...]) -> Running:
        raise UserError(self._why)

    def abandon(self, running: Running) -> None:
        pass

    def release(
        self, job: Job, running: Running, env: dict[str, str], devices: Sequence[Device]
    ) -> None:
        pass

    def adopt(self, job: Job) -> None:
        pass

    def alive(self, running: Running) -> bool:
        return False

    def end(self, job: Job) -> None:
        pass

    def kill(self, jobs: Sequence[Job]) -> None:
        pass

    def outcome(self, job: Job) -> Exit | Lost:
        return exit_record(job.id, attempt_of(job).attempt) or Lost(f"{self._why} any more")
