"""Store a large submission in several transactions, of which the last one makes it exist.

Each transaction is short, so that the daemon goes on meanwhile. The first one keeps numbers for the
jobs, with a record of the submission that has no digest yet. Until the last one adds that, its jobs
are shown to nobody and started by nobody, and whoever opens the store deletes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job, Spec, State
from gpudeck.scheduler.store.store import Store

PART, PART_BYTES = 100, 2**20
"""Jobs in one transaction, and about how many bytes these have."""
NUMBER_BYTES = 16


def weight(spec: Spec) -> int:
    """Return about how many bytes a job has in the store."""
    texts = (*spec.argv, *spec.env.values(), *spec.params.values(), spec.notes, *spec.mounts)
    return sum(map(len, texts)) + NUMBER_BYTES * (len(spec.after) + len(spec.after_any))


class Staging:
    """Store the jobs of one submission, part by part."""

    def __init__(
        self, store: Store, count: int, submitted: float, state: State, token: str
    ) -> None:
        """Keep numbers for the jobs. Raises UserError."""
        self._store, self._token = store, token
        self._submitted, self._state = submitted, state
        self._numbers = store.begin_staging(count, token)
        self._next = self._numbers.start

    def add(self, specs: Sequence[Spec]) -> list[Job]:
        """Store the next jobs. Raises UserError."""
        end = self._next + len(specs)
        jobs = [
            Job(number, spec, self._submitted, self._state)
            for number, spec in zip(range(self._next, end), specs, strict=True)
        ]
        added = self._store.add_staged(jobs)
        self._next = end
        return added

    def commit(self, contents: str) -> None:
        """Make the submission exist. Raises UserError.

        Its jobs are on disk then, and nobody sees them before `show`.
        """
        self._store.end_staging(self._token, contents)

    def show(self, job: Job) -> None:
        """Let everybody see the jobs up to this one."""
        self._store.show_staged(self._numbers, job.id + 1)

    def give_up(self) -> None:
        """Delete what was stored. Where the disk forbids that, it stays hidden, and is deleted
        before the next submission, or by the next daemon."""
        try:
            self._store.drop_staged([self._numbers])
        except UserError:
            pass
