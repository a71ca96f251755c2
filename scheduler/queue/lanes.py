"""The jobs that wait, kept in their turn, in lanes of jobs that need the same: a pass looks at the head of each lane, not at each job."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Set
from heapq import merge
from itertools import islice
from typing import NamedTuple

from scheduler.protocol.jobs import Job, Queued, Spec, turn

Turn = tuple[int, float, int]


class Requirements(NamedTuple):
    """All that decides where a job can start: of two jobs of one need, the later can start nowhere that the earlier cannot."""

    gpus: int
    memory: int
    gpu_type: str
    kind: str
    group: str
    hold: bool
    where: str


def requirements(spec: Spec) -> Requirements:
    return Requirements(
        spec.gpus, spec.memory, spec.gpu_type, spec.kind, spec.group, spec.hold, spec.where
    )


class Lanes:
    """Told of every job that changes; knows those that wait."""

    def __init__(self) -> None:
        self._lanes: dict[Requirements, list[Turn]] = {}
        self._of: dict[int, tuple[Requirements, Turn]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[int]:
        """Ids, first come first."""
        return (job_id for _, _, job_id in merge(*self._lanes.values()))

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._of

    def ids(self) -> Set[int]:
        return self._of.keys()

    def lanes(self) -> dict[Requirements, Iterator[int]]:
        """For each need the ids of its jobs, first come first. Not to be read on after a change."""
        return {key: (job_id for _, _, job_id in lane) for key, lane in self._lanes.items()}

    def next(self, count: int) -> list[int]:
        """The first `count`, and the first that needs a device, wherever it stands."""
        ids = list(islice(self, count))
        first = min(
            (lane[0] for key, lane in self._lanes.items() if key.gpus and not key.where),
            default=None,
        )
        return ids if first is None or first[2] in ids else [*ids, first[2]]

    @property
    def for_devices(self) -> bool:
        """Whether one of the jobs needs a device."""
        return any(key.gpus and not key.where for key in self._lanes)

    def put(self, job: Job) -> None:
        """The job is as given now: it joins, moves, stays or leaves."""
        new = (requirements(job.spec), turn(job)) if isinstance(job.state, Queued) else None
        old = self._of.get(job.id)
        if new == old:
            return
        if old is not None:
            self._leave(*old)
            del self._of[job.id]
        if new is not None:
            insort(self._lanes.setdefault(new[0], []), new[1])
            self._of[job.id] = new

    def _leave(self, key: Requirements, place: Turn) -> None:
        lane = self._lanes[key]
        del lane[bisect_left(lane, place)]
        if not lane:
            del self._lanes[key]
