"""Handles of submitted jobs: what `Client.submit` and `AsyncClient.submit` return."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from gpudeck.language.rendering import in_english
from gpudeck.scheduler.protocol.jobs import Event, Job, Spec, State
from gpudeck.scheduler.protocol.log_file import Output

if TYPE_CHECKING:
    from gpudeck.scheduler.client import Client


class JobView:
    """Show a job as it was when it was last requested."""

    def __init__(self, job: Job) -> None:
        self.job = job
        """The immutable value, with everything that is known."""

    def __repr__(self) -> str:
        return f"<job {self.id} ({self.spec.name}): {self.status}>"

    @property
    def id(self) -> int:
        """Return the job's number."""
        return self.job.id

    @property
    def spec(self) -> Spec:
        """Return what was submitted."""
        return self.job.spec

    @property
    def state(self) -> State:
        """Return the state with its data, such as the devices of a running job."""
        return self.job.state

    @property
    def status(self) -> str:
        """Return queued, starting, running, done, failed, cancelled or lost."""
        return self.job.status

    @property
    def active(self) -> bool:
        """Return True where the job waited or ran."""
        return self.job.active

    @property
    def result(self) -> dict[str, Any] | None:
        """Return what the job wrote to its GPUDECK_RESULT file, or else the last values it printed.

        None where there are neither, and while it runs.
        """
        raw = self.job.result
        if raw is None:
            return None
        members: dict[str, Any] = in_english(msgspec.json.decode(raw, type=dict[str, Any]))
        return members


class JobHandle(JobView):
    """A job with the client to follow it by; for one thread at a time, as the client is.

    job = Client().submit(["python", "train.py"], gpus=1, memory="20GiB")
    job.wait().result
    """

    def __init__(self, client: Client, job: Job) -> None:
        super().__init__(job)
        self._client = client

    def refresh(self) -> Self:
        """Request the job's present state."""
        self.job = self._client.job(self.id)
        return self

    def wait(self, timeout: float | None = None) -> Self:
        """Block until the job has ended. Raises TimeoutError after `timeout` seconds."""
        self.job = self._client.wait(self.id, timeout)
        return self

    def cancel(self) -> Self:
        """Cancel the waiting job, or end its processes. Raises UserError where it has ended."""
        self.job = self._client.cancel(self.id)
        return self

    def log(self, offset: int = 0, limit: int = 2**20, attempt: int | None = None) -> bytes:
        """Return output as `Client.log` does."""
        return self._client.log(self.id, offset, limit, attempt)

    def log_part(self, offset: int = 0, limit: int = 2**20, attempt: int | None = None) -> Output:
        """Return output as `Client.log_part` does."""
        return self._client.log_part(self.id, offset, limit, attempt)

    def timeline(self) -> tuple[Event, ...]:
        """Return the events of the job, oldest first."""
        return self._client.timeline(self.id)

    def artefacts(self) -> list[Path]:
        """Return the files that the job left in its GPUDECK_ARTEFACTS folder."""
        return self._client.artefacts(self.id)
