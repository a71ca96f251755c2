"""Hold the jobs that the daemon found for the table, page by page: more than a snapshot shows."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from operator import neg

import msgspec

from gpudeck.app.jobs.job_keys import FoldKey, JobKeys, keys_of
from gpudeck.app.jobs.requests import PAGE, SearchJobs
from gpudeck.scheduler.protocol.jobs import Done, Job, Spec
from gpudeck.scheduler.protocol.search import NEWEST, Search, matches

PATIENCE_S = 5.0
"""Seconds after which a page that could not be read is requested again."""
_encode, _decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Job).decode
_USUAL = _encode(Job(0, Spec((), "", ""), 0.0, Done(0.0, 0.0)))
"""What most jobs have in common, of which each then takes only a few bytes."""
_WINDOW, _MEMORY, _LEVEL = -12, 3, 1
"""The parameters of zlib: a window of 4 KiB without a header, as jobs are small."""


def pack(job: Job) -> bytes:
    """Return a job as compressed JSON, a fifth of its length; equal jobs have equal bytes."""
    made = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, _WINDOW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, zdict=_USUAL
    )
    return made.compress(_encode(job)) + made.flush()


def unpack(packed: bytes) -> Job:
    """Return the job of `pack`."""
    return _decode(zlib.decompressobj(_WINDOW, zdict=_USUAL).decompress(packed))


class JobHistory:
    """Hold the pages of one search at a time."""

    def __init__(self) -> None:
        self.search: Search | None = None
        self.ended: dict[int, bytes] = {}
        """Ended jobs, packed: a hundred thousand objects would slow the garbage collector down."""
        self.numbers: list[int] = []
        """The keys of `ended`, highest first."""
        self.edition = 0
        """A count of the changes of jobs in `ended`."""
        self.version = 0
        """A count of all changes of `ended`."""
        self.keys: dict[int, JobKeys] = {}
        """What each ended job is sorted and folded by."""
        self.folds: dict[int, FoldKey] = {}
        """The array or group of each ended job that is in one."""
        self.counts: dict[FoldKey, Counter[str]] = {}
        """How many ended jobs of each kind an array or a group has."""
        self.active: dict[int, Job] = {}
        """Jobs that had not ended when they were found."""
        self._changed: set[int] = set()
        self.loading = False
        """A page was requested and has not come."""
        self._before: int | None = NEWEST
        self._failed: float | None = None
        self._now = 0.0
        self._last: frozenset[int] = frozenset()
        self._seen: dict[int, Job] = {}
        """Jobs of the last snapshot that are in `ended` as they are there."""
        self._lacking = PAGE
        """How many jobs are to be found before the user has to scroll for more."""

    @property
    def more(self) -> bool:
        """Return whether another page can be requested."""
        return (
            self.search is not None
            and not self.loading
            and self._before is not None
            and self._failed is None
        )

    @property
    def cuts_array(self) -> bool:
        """Return whether the oldest job is in an array, of which the next page may hold more."""
        fold = self.folds.get(self.numbers[-1]) if self.numbers else None
        return fold is not None and fold.kind == "array"

    @property
    def short(self) -> bool:
        """Return whether too few jobs were found to fill the table, and more can be requested.

        The daemon searches for a few milliseconds only, so that a page may hold few jobs or none.
        """
        return self.more and self._lacking > 0

    @property
    def complete(self) -> bool:
        """Return whether all pages have come."""
        return self._before is None

    def start(self, search: Search | None) -> None:
        """Forget all jobs and start another search; None if the snapshots hold all of its jobs."""
        self.search, self._before = search, NEWEST
        self._changed.update(self.active)
        self.ended, self.active, self.numbers, self._seen = {}, {}, [], {}
        self.keys, self.folds, self.counts = {}, {}, {}
        self.version += 1
        self.loading, self._failed, self._lacking = False, None, PAGE

    def extend(self) -> None:
        """Look for as many jobs again, as the user came to the end of the list."""
        self._lacking = PAGE

    def next_request(self) -> SearchJobs | None:
        """Return the request for the next page, or None if there is none."""
        if self.search is None or not self.more:
            return None
        self.loading = True
        return SearchJobs(self.search, self._before or NEWEST)

    def take(self, request: SearchJobs, jobs: Iterable[Job], before: int | None) -> None:
        """Add a page; a page of another search is ignored.

        Args:
            before: Where the next page begins; None if this is the last one.
        """
        if request.search == self.search and request.before == self._before:
            self.loading, self._before = False, before
            for job in jobs:
                self._lacking -= 1
                self._put(job)

    def add(self, job: Job) -> None:
        """Add a job that was requested by its number."""
        self._put(job)

    def job(self, number: int) -> Job | None:
        """Return a job that was found."""
        packed = self.ended.get(number)
        return self.active.get(number) if packed is None else unpack(packed)

    def changed(self) -> set[int]:
        """Return the numbers of the jobs in `active` that changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def fail(self) -> None:
        """Note that the page could not be read."""
        self.loading, self._failed = False, self._now

    def update(self, jobs: Iterable[Job], now: float) -> None:
        """Take the jobs of a snapshot, and keep those that ended.

        If none of them was in the last snapshot, others ended that no snapshot held: then all
        pages are loaded again.
        """
        self._now = now
        if self._failed is not None and not 0 <= now - self._failed < PATIENCE_S:
            self._failed = None
        ended: dict[int, Job] = {}
        for job in jobs:
            if not job.active:
                ended[job.id] = job
            elif job.id in self.ended:
                self._drop(job.id)  # its cancellation was undone
            if job.id in self.active:
                self._put_active(job)  # the job may run now
        if self._last and not self._last & ended.keys():
            self.start(self.search)
        self._last, seen = frozenset(ended), dict[int, Job]()
        for job in ended.values():
            if self.search is None or not matches(self.search, job):
                continue
            if self._seen.get(job.id) != job and self.ended.get(job.id) != pack(job):
                self._put(job)
            seen[job.id] = job
        self._seen = seen

    def _put(self, job: Job) -> None:
        if job.active:
            if job.id not in self.ended:  # a page may be older than a snapshot
                self._put_active(job)
        else:
            if self.active.pop(job.id, None) is not None:
                self._changed.add(job.id)
            if job.id in self.ended:
                self.edition += 1
            else:
                self.numbers.insert(bisect_left(self.numbers, -job.id, key=neg), job.id)
            self.ended[job.id] = pack(job)
            self._seen.pop(job.id, None)
            self._put_keys(job)

    def _drop(self, number: int) -> None:
        """Forget an ended job that waits again."""
        del self.ended[number]
        self.numbers.remove(number)
        self._seen.pop(number, None)
        self.folds.pop(number, None)
        keys = self.keys.pop(number)
        if keys.fold is not None:
            self.counts[keys.fold][keys.kind] -= 1
        self.version += 1

    def _put_keys(self, job: Job) -> None:
        """Keep what the job is sorted and folded by."""
        self.version += 1
        keys, old = keys_of(job, self._now), self.keys.get(job.id)
        if old is not None and old.fold is not None:
            self.counts[old.fold][old.kind] -= 1
        self.keys[job.id] = keys
        if keys.fold is not None:
            self.folds[job.id] = keys.fold
            self.counts.setdefault(keys.fold, Counter())[keys.kind] += 1

    def _put_active(self, job: Job) -> None:
        self.active[job.id] = job
        self._changed.add(job.id)
