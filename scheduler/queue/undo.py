"""Keep jobs that were cancelled while they waited for a moment, so that this can be undone.

The environments are in the memory of the daemon alone: on disk, one does not outlive its last job.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.language.numbers import span
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import UNDO_S, Event, Job, Queued
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.protocol.units import numbered
from gpudeck.scheduler.queue.admission import check_variety
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.store import Store

STORED = 100
"""How many jobs are queued again in one transaction."""
GRACE_S = 5.0
"""An undo in the last of UNDO_S may come this much later."""


class Kept(NamedTuple):
    """Hold a job as it waited."""

    job: Job
    env: dict[str, str]
    until: float
    """Monotonic seconds."""
    followed: bool
    """True where it was cancelled because a job before it was."""


class UndoBuffer:
    """Queue jobs again, in their old places, that were cancelled a moment ago."""

    def __init__(self, store: Store, index: JobIndex) -> None:
        self._store, self._index = store, index
        self._kept: dict[int, Kept] = {}

    def environments(self, jobs: Iterable[Job]) -> dict[int, dict[str, str]]:
        """Return the environments of the jobs that wait, which their cancellation deletes."""
        waiting = [job.id for job in jobs if isinstance(job.state, Queued)]
        return self._store.envs(waiting) if waiting else {}

    def environments_of_followers(self, jobs: Iterable[Job]) -> dict[int, dict[str, str]]:
        """Return the environments of those of the jobs that run after a kept one, or after them."""
        followers: dict[int, Job] = {}
        for job in sorted(jobs, key=lambda job: job.id):  # a job runs after lower numbers
            if any(number in self._kept or number in followers for number in job.spec.after):
                followers[job.id] = job
        return self.environments(followers.values())

    def keep(self, jobs: Iterable[Job], envs: Mapping[int, dict[str, str]]) -> None:
        """Keep jobs that a user cancelled, as they waited."""
        until = time.monotonic() + UNDO_S + GRACE_S
        for job in jobs:
            if job.id in envs:
                self._kept[job.id] = Kept(job, envs[job.id], until, followed=False)

    def keep_followers(self, jobs: Sequence[Job], envs: Mapping[int, dict[str, str]]) -> None:
        """Keep jobs that were cancelled as others were; those after kept jobs come back, too."""
        for job in sorted(jobs, key=lambda job: job.id):
            until = [self._kept[n].until for n in job.spec.after if n in self._kept]
            if until and job.id in envs:
                self._kept[job.id] = Kept(job, envs[job.id], min(until), followed=True)

    def forget(self) -> None:
        """Drop what can no longer be undone."""
        now = time.monotonic()
        if any(kept.until < now for kept in self._kept.values()):
            self._kept = {n: kept for n, kept in self._kept.items() if kept.until >= now}

    def restore(self, jobs: Sequence[int]) -> Work[list[Job]]:
        """Queue these jobs again where they were, with those that were cancelled because of them.

        That is done part by part, each of which is on disk before the next one.

        Raises UserError where it is too late for one of them, another job uses the artefacts of one
        now, or the change cannot be stored.
        """
        if len(jobs) > MAX_BATCH:
            raise UserError(phrase("up to {limit} jobs can be restored at once", limit=MAX_BATCH))
        self.forget()
        if late := [number for number in jobs if number not in self._kept]:
            raise UserError(
                phrase(
                    "the cancellation of {jobs} can no longer be undone, which is"
                    " possible for {span} if the job was waiting. To queue the "
                    "command again, choose Run again in the window",
                    jobs=numbered(late),
                    span=span(UNDO_S),
                )
            )
        wanted = set(jobs)
        for number, kept in sorted(self._kept.items()):  # a job has a higher number than those
            if kept.followed and wanted & set(kept.job.spec.after):  # it runs after
                wanted.add(number)
        again = [self._kept[number].job for number in sorted(wanted)]
        yield from check_variety(self._index.waiting, [job.spec for job in again])
        self._check_artefacts(again)
        event = Event(time.time(), "restored", phrase("its cancellation was undone"))
        restored: list[Job] = []
        for part in parts(sorted(wanted), STORED):
            found = [self._kept[number] for number in part if number in self._kept]
            envs = [kept.env for kept in found]
            self._store.revive([(kept.job, (event,)) for kept in found], envs)
            for kept in found:
                del self._kept[kept.job.id]
                self._index.revive(kept.job)
                restored.append(kept.job)
            yield
        return restored

    def _check_artefacts(self, jobs: Sequence[Job]) -> None:
        """Raise UserError where a job would work in a folder of artefacts that another one uses."""
        active = self._index.active
        borrowers: dict[int, set[int]] = {}
        for other in (*active.values(), *jobs):
            if other.spec.artefacts_of is not None:
                borrowers.setdefault(other.spec.artefacts_of, set()).add(other.id)
        for job in jobs:
            folder = job.spec.artefacts_of or job.id
            if folder not in borrowers and folder not in active:
                continue
            users = borrowers.get(folder, set()) | ({folder} & active.keys())
            if users := users - {job.id}:
                raise UserError(
                    phrase(
                        "job {job} cannot be restored: job {user} uses its artefacts now",
                        job=job.id,
                        user=min(users),
                    )
                )
