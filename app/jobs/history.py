"""The jobs that the daemon found for the table, page by page: far more ended than a snapshot can show, and more may wait."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import neg

import msgspec

from app.jobs.requests import SearchJobs
from scheduler.protocol.jobs import Job
from scheduler.protocol.search import NEWEST, Search, matches

PATIENCE_S = 5.0
"""Seconds after which a page that could not be read is asked for again."""
pack, unpack = msgspec.json.Encoder().encode, msgspec.json.Decoder(Job).decode


class JobHistory:
    """Holds the pages of one search at a time."""

    def __init__(self) -> None:
        self.search: Search | None = None
        self.ended: dict[int, bytes] = {}
        """As JSON: a hundred thousand jobs as objects are several times as large, and hold up the garbage collector and so the window."""
        self.numbers: list[int] = []
        """Of those in `ended`, the newest first."""
        self.edition = 0
        """One more whenever one of `ended` has become another."""
        self.active: dict[int, Job] = {}
        """Those that waited when they were found."""
        self._changed: set[int] = set()
        self.asked = False
        """A page is on its way."""
        self._before: int | None = NEWEST
        self._failed: float | None = None
        self._now = 0.0
        self._last: frozenset[int] = frozenset()

    @property
    def more(self) -> bool:
        """Whether there may be another page, and nobody has asked for it."""
        return (
            self.search is not None
            and not self.asked
            and self._before is not None
            and self._failed is None
        )

    @property
    def unread(self) -> bool:
        """Whether nobody has asked for the first page yet."""
        return self.more and self._before == NEWEST

    @property
    def whole(self) -> bool:
        """Whether all that there is has come."""
        return self._before is None

    def look_for(self, search: Search | None) -> None:
        """Begin anew, with these; None: the snapshots have them all."""
        self.search, self._before = search, NEWEST
        self._changed.update(self.active)
        self.ended, self.active, self.numbers = {}, {}, []
        self.asked, self._failed = False, None

    def ask(self) -> SearchJobs | None:
        """The request for the next page, where there is one to ask for."""
        if self.search is None or not self.more:
            return None
        self.asked = True
        return SearchJobs(self.search, self._before or NEWEST)

    def take(self, request: SearchJobs, jobs: Iterable[Job], before: int | None) -> None:
        """Add a page; a page of another search is ignored.

        Args:
            before: Where the next page begins; None if this is the last one.
        """
        if request.search == self.search and request.before == self._before:
            self.asked, self._before = False, before
            for job in jobs:
                self._put(job)

    def add(self, job: Job) -> None:
        """One that was fetched by its number."""
        self._put(job)

    def job(self, number: int) -> Job | None:
        """One that was found."""
        packed = self.ended.get(number)
        return self.active.get(number) if packed is None else unpack(packed)

    def changed(self) -> set[int]:
        """The numbers of those in `active` that came, went or became another since this was asked last."""
        changed, self._changed = self._changed, set()
        return changed

    def fail(self) -> None:
        """The page could not be read."""
        self.asked, self._failed = False, self._now

    def keep(self, jobs: Iterable[Job], now: float) -> None:
        """What a snapshot tells: the jobs that have ended stay, also where the next ones tell of others.

        Where none is among those of the last snapshot, some ended of which no snapshot told: what is known has gaps, and is asked for anew.
        """
        self._now = now
        if self._failed is not None and not 0 <= now - self._failed < PATIENCE_S:
            self._failed = None
        ended = {}
        for job in jobs:
            if not job.active:
                ended[job.id] = job
            if job.id in self.active:
                self._put_active(job)  # it may run by now
        if self._last and not self._last & ended.keys():
            self.look_for(self.search)
        self._last = frozenset(ended)
        for job in ended.values():
            if (
                self.search is not None
                and self.ended.get(job.id) != pack(job)
                and matches(self.search, job)
            ):
                self._put(job)

    def _put(self, job: Job) -> None:
        if job.active:
            if (
                job.id not in self.ended
            ):  # what a page says of it may be older than what a snapshot said
                self._put_active(job)
        else:
            if self.active.pop(job.id, None) is not None:
                self._changed.add(job.id)
            if job.id in self.ended:
                self.edition += 1
            else:
                self.numbers.insert(bisect_left(self.numbers, -job.id, key=neg), job.id)
            self.ended[job.id] = pack(job)

    def _put_active(self, job: Job) -> None:
        self.active[job.id] = job
        self._changed.add(job.id)
