"""A daemon whose jobs run on one GPU, for the measurements of jobs."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpudeck.scheduler.background.launch import start_process
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import paths
from gpudeck.scheduler.protocol.draining import drained
from gpudeck.scheduler.protocol.jobs import Job, suspension_of
from tests.benchmarks.suspension.card import Card, Row, keep, read_huge_pages
from tests.benchmarks.suspension.programs import Ended, Kind, command, parse_end
from tests.integration.deck import ready
from tests.support import eventually, state_folder

LONG_S = 100.0
"""Seconds after which a step counts as stuck."""


class Bench:
    """A daemon whose jobs run on one GPU."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch, self.card = folder, scratch, Card()
        self.deck = ready(Client(timeout=600.0))
        state = self.deck.snapshot()
        devices = [each.device for each in state.devices]
        others = [device for device in devices if device.id != self.card.uuid]
        if others:
            self.deck.configure(drained=drained(state.settings, others, True))

    def submit(self, kind: Kind, gib: float, seed: int = 1, **options: object) -> Job:
        stop = self._stop(gib, seed)
        stop.unlink(missing_ok=True)
        words = command(kind, gib, stop, 0, seed)
        return self.deck.submit(words, gpus=1, **options).job  # type: ignore[arg-type]

    def _stop(self, gib: float, seed: int) -> Path:
        return self.scratch / f"stop {gib} {seed}"

    def wait_ready(self, job: Job) -> None:
        """Wait until a job has filled its memory, and NVML shows it."""

        def is_ready() -> bool:
            log = self.deck.log(job.id)
            assert self.deck.job(job.id).active, log
            return b"ready" in log

        eventually(is_ready, LONG_S)
        eventually(lambda: self._is_listed(job), LONG_S)

    def _is_listed(self, job: Job) -> bool:
        listed = (process for detail in self.deck.details() for process in detail.processes)
        return any(process.job == job.id for process in listed)

    def is_on(self, job: Job) -> bool:
        return suspension_of(self.deck.job(job.id)) is None

    def wait_on(self, job: Job) -> None:
        eventually(lambda: self.is_on(job), LONG_S)

    def times(self, job: Job, what: str) -> list[float]:
        return [event.time for event in self.deck.timeline(job.id) if event.what == what]

    def ask_to_end(self, gib: float, seed: int = 1) -> None:
        """Have a job end once it is on the GPU."""
        self._stop(gib, seed).touch()

    def end(self, job: Job, gib: float, seed: int = 1) -> Ended:
        """Let a job end, and return what it tells."""
        self.ask_to_end(gib, seed)
        if not self.is_on(job):
            self.deck.resume_job(job.id)
        self.deck.wait(job.id)
        return parse_end(self.deck.log(job.id).decode().split("\n")[-2])

    def clean(self) -> None:
        """End what a part that failed has left on the GPU."""
        for number in self.deck.snapshot().settings.reservations:
            self.deck.cancel_booking(int(number))
        for job in self.deck.jobs(active=True):
            self.deck.cancel(job.id)
            self.deck.wait(job.id, LONG_S)

    def row(self, case: str, gib: float, values: list[float], exact: object, note: str) -> Row:
        return self.card.context | {
            "case": case,
            "held_gib": f"{gib:.1f}",
            "huge_pages": read_huge_pages(),
            "count": len(values),
            "median_s": f"{statistics.median(values):.4g}" if values else "",
            "max_s": f"{max(values):.4g}" if values else "",
            "exact": exact,
            "note": note,
        }

    def keep(self, *args: object) -> None:
        keep("suspension_jobs", self.row(*args), self.folder)  # type: ignore[arg-type]


@contextmanager
def open_bench(folder: Path, daemon: str = "gpudeck.scheduler.daemon") -> Iterator[Bench]:
    """Start a daemon, and have rows written to a folder; print its log however that ends."""
    with tempfile.TemporaryDirectory() as name, state_folder(Path(name) / "home"):
        start_process(daemon, paths.daemon_log(), "the daemon")
        bench = Bench(folder, Path(name))
        try:
            yield bench
        finally:
            print_log()
            bench.deck.close()


def print_log() -> None:
    """Print the end of the daemon's log."""
    print(paths.daemon_log().read_text()[-3000:], flush=True)
