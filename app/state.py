"""Hold what the window knows: the newest snapshot, the history and the link to the daemon."""

from __future__ import annotations

from typing import NamedTuple

from gpudeck.app.charts.history import History
from gpudeck.app.charts.job_usage import JobUsage
from gpudeck.app.language.texts import tr
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.snapshot import Snapshot


class LinkStatus(NamedTuple):
    """Describe the connection to the daemon, as the status line shows it."""

    connected: bool
    text: str


class State:
    """Hold what the pages show. Only the window changes it."""

    def __init__(self) -> None:
        self.snapshot: Snapshot | None = None
        self.history = History()
        self.job_usage = JobUsage()
        self.notify: set[int] = set()
        """The jobs whose end the user wants to be notified of, as long as the window is open."""
        self.link = LinkStatus(connected=False, text=tr("connecting to the daemon"))
        self.details: tuple[Detail, ...] | None = None
        """The links, parts and processes of the devices; None until they are read."""

    def update(self, snapshot: Snapshot) -> None:
        """Take the newest snapshot."""
        self.snapshot = snapshot
        self.history.update(snapshot)
        self.job_usage.update(snapshot)

    def job(self, number: int | None) -> Job | None:
        """Return a job of the snapshot, or None if the snapshot does not hold it."""
        jobs = self.snapshot.jobs if self.snapshot else ()
        return next((job for job in jobs if job.id == number), None)

    @property
    def device_kind(self) -> str:
        """Return the kind of the first device; `cpu` while none is known."""
        devices = self.snapshot.devices if self.snapshot else ()
        return devices[0].device.kind if devices else "cpu"
