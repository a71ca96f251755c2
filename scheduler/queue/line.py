"""The jobs that wait, kept in their turn: with ten thousand of them, a pass must not sort them anew."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Set

from scheduler.jobs import Job, Queued, turn


class Line:
    """Told of every job that changes; knows those that wait."""

    def __init__(self) -> None:
        self._turns: list[tuple[int, float, int]] = []
        self._of: dict[int, tuple[int, float, int]] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[int]:
        """Ids, first come first."""
        return (job_id for _, _, job_id in self._turns)

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._of

    def ids(self) -> Set[int]:
        return self._of.keys()

    def put(self, job: Job) -> None:
        """The job is as given now: it joins, moves, stays or leaves."""
        new = turn(job) if isinstance(job.state, Queued) else None
        old = self._of.get(job.id)
        if new == old:
            return
        if old is not None:
            del self._turns[bisect_left(self._turns, old)]
            del self._of[job.id]
        if new is not None:
            insort(self._turns, new)
            self._of[job.id] = new
