"""Walk from a client's call of `submit` to the first instruction of the job."""

from __future__ import annotations

from gpudeck.scheduler.client import Client
from tests.support import eventually
from tests.walks.deck import daemon_that_notes
from tests.walks.noting import Section, Way, noted

CONNECTION = "serve.<locals>.connection"
SECTIONS = {
    "daemon": Section(
        first=CONNECTION,
        last="Local.release",
        tasks=(CONNECTION, "Daemon._start_jobs", "Supervisor._run"),
        aside=(
            # the reply, and other readings than the one for which the start waits
            "Queue.listed", "Queue.get", "Daemon._encode_for", "Peer.send",
            "PollingController.requested", "ReadingFlow.add", "LeaseService.add_readings",
            # other jobs, which end or come back
            "Canceller.end_next", "Canceller.cancel_unable", "UndoBuffer.forget",
            "Suspender.return_planned", "Queue.unfinished",
            # the snapshot that shows the job while it waits for a reading of its GPU
            "Publisher.touch",
        ),
    ),
    "runner": Section(first="_begin", last="_run.<locals>.prepare_child"),
}  # fmt: skip


def submission_to_first_instruction() -> dict[str, Way]:
    """Submit a job for a GPU, the second one of this daemon."""
    with daemon_that_notes(SECTIONS, "nvml") as notes:
        with Client() as deck:
            eventually(lambda: deck.snapshot().devices)
            deck.submit(["true"], gpus=1).wait()
        with Client() as deck:
            notes.begin()
            with noted() as client:
                deck.submit(["true"], gpus=1)
        return {"client": client, **notes.sections()}
