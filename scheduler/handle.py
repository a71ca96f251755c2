"""A job that was submitted, and ways to follow it: what `Client.submit` returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from scheduler.protocol.jobs import Event, Job, Spec, State
from scheduler.protocol.log_file import Output


class Verbs(Protocol):
    """What a handle needs of a client (see `scheduler.client.Client`)."""

    def job(self, job: int) -> Job: ...
    def wait(self, job: int, timeout: float | None = None) -> Job: ...
    def cancel(self, job: int) -> Job: ...
    def log(self, job: int, offset: int = 0, limit: int = 2**20) -> bytes: ...
    def log_part(self, job: int, offset: int = 0, limit: int = 2**20) -> Output: ...
    def timeline(self, job: int) -> tuple[Event, ...]: ...
    def artefacts(self, job: int) -> list[Path]: ...


class Seen:
    """A job as it was seen last."""

    def __init__(self, job: Job) -> None:
        self.job = job
        """The immutable value, with all there is to know."""

    def __repr__(self) -> str:
        return f"<job {self.id} ({self.spec.name}): {self.status}>"

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def spec(self) -> Spec:
        return self.job.spec

    @property
    def state(self) -> State:
        return self.job.state

    @property
    def status(self) -> str:
        """queued, starting, running, done, failed, cancelled or lost."""
        return self.job.status

    @property
    def active(self) -> bool:
        """Whether it waited or ran."""
        return self.job.active

    @property
    def result(self) -> dict[str, Any] | None:
        """What the job left in the file that GPUDECK_RESULT named to it; None where it left nothing, and before its end."""
        raw = self.job.result
        return None if raw is None else msgspec.json.decode(raw, type=dict[str, Any])


class JobHandle(Seen):
    """A job and the client to ask about it. Not for several threads at once, as the client is not.

    job = Client().submit(["python", "train.py"], gpus=1, memory="20GiB")
    job.wait().result
    """

    def __init__(self, client: Verbs, job: Job) -> None:
        super().__init__(job)
        self._client = client

    def refresh(self) -> Self:
        """Ask how it stands now."""
        self.job = self._client.job(self.id)
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Until it has ended, however. Raises TimeoutError where it did not in `timeout` seconds."""
        self.job = self._client.wait(self.id, timeout)
        return self

    def cancel(self) -> Self:
        """Cancel it where it waits, or end its whole process tree. Raises UserError where it ended already."""
        self.job = self._client.cancel(self.id)
        return self

    def log(self, offset: int = 0, limit: int = 2**20) -> bytes:
        """Up to `limit` bytes of its output from `offset` on (negative: from the end), and a line where some of it was dropped."""
        return self._client.log(self.id, offset, limit)

    def log_part(self, offset: int = 0, limit: int = 2**20) -> Output:
        """As `log`, with where to read on: for whoever follows it."""
        return self._client.log_part(self.id, offset, limit)

    def timeline(self) -> tuple[Event, ...]:
        """What it went through, oldest first."""
        return self._client.timeline(self.id)

    def artefacts(self) -> list[Path]:
        """The files that it left in the folder GPUDECK_ARTEFACTS named to it."""
        return self._client.artefacts(self.id)
