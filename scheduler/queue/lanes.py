"""The waiting jobs in the order they are served, in lanes of jobs that need the same.

A pass over the queue looks at the head of each lane, not at each job.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec, turn

Turn = tuple[int, float, int]


class Requirements(NamedTuple):
    """Describe all that decides where a job can start.

    Of two jobs with the same requirements, the later can start nowhere that the earlier cannot.
    """

    gpus: int
    memory: int
    gpu_type: str
    kind: str
    group: str
    hold: bool
    where: str
    user: int | None
    preemptible: bool
    when_idle: bool


_needs = attrgetter(*Requirements._fields)


def requirements(spec: Spec) -> Requirements:
    """Return the requirements of a job."""
    return Requirements._make(_needs(spec))


class Lanes:
    """Keep the waiting jobs in their lanes as they change."""

    def __init__(self) -> None:
        self._lanes: dict[Requirements, list[Turn]] = {}
        self._places: dict[int, tuple[Requirements, Turn]] = {}
        self._count = Counter[int | None]()
        """The lanes of each user."""

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the jobs' numbers, the first to be served first."""
        return (job_id for _, _, job_id in merge(*self._lanes.values()))

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._places

    def ids(self) -> Set[int]:
        """Return the numbers of the waiting jobs."""
        return self._places.keys()

    def by_requirements(self) -> Mapping[Requirements, Sequence[Turn]]:
        """Return for each lane its jobs' turns, which end in their numbers, the first first.

        They are not valid after a change.
        """
        return self._lanes

    def next(self, count: int) -> list[int]:
        """Return the first `count` jobs, and the first job that needs a device, wherever it is."""
        ids = list(islice(self, count))
        heads = (lane[0] for key, lane in self._lanes.items() if key.gpus and not key.where)
        first = min(heads, default=None)
        return ids if first is None or first[2] in ids else [*ids, first[2]]

    def users(self) -> Set[int | None]:
        """Return the users whose jobs wait."""
        return self._count.keys()

    def count_with(self, user: int | None, keys: Set[Requirements]) -> int:
        """Return how many lanes the user would have with jobs that need this."""
        return self._count[user] + len(keys - self._lanes.keys())

    @property
    def need_devices(self) -> bool:
        """Return whether one of the jobs needs a device of this machine."""
        return any(key.gpus and not key.where for key in self._lanes)

    @property
    def need_others_devices(self) -> bool:
        """Return whether one of them needs a device now, whoever has to leave it."""
        return any(key.gpus and not (key.where or key.when_idle) for key in self._lanes)

    @property
    def need_idle_devices(self) -> bool:
        """Return whether one of the jobs waits for idle devices."""
        return any(key.when_idle for key in self._lanes)

    def update(self, job: Job) -> None:
        """Let the job join, move, stay or leave, according to its new state."""
        new = (requirements(job.spec), turn(job)) if isinstance(job.state, Queued) else None
        old = self._places.get(job.id)
        if new == old:
            return
        if old is not None:
            key, place = self._places.pop(job.id)
            lane = self._lanes[key]
            del lane[bisect_left(lane, place)]
            if not lane:
                del self._lanes[key]
                self._count[key.user] -= 1
                if not self._count[key.user]:
                    del self._count[key.user]
        if new is not None:
            key = new[0]
            self._count[key.user] += key not in self._lanes
            insort(self._lanes.setdefault(key, []), new[1])
            self._places[job.id] = new
