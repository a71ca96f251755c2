"""What users order about jobs that wait: submitted, foretold, edited, moved, grouped, paused."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from scheduler.protocol.devices import Device
from scheduler.protocol.errors import UserError
from scheduler.protocol.job_options import MAX_BATCH
from scheduler.protocol.jobs import (
    Changes,
    Event,
    Forecast,
    Group,
    GroupState,
    Job,
    Queued,
    Spec,
    listed,
)
from scheduler.queue.admission import bound, refuse, refuse_environment, refuse_words
from scheduler.queue.dependencies import broken, waits_for
from scheduler.queue.edit import edited, moved, said
from scheduler.queue.forecast import forecast
from scheduler.queue.job_index import Book
from scheduler.queue.placement import Availability

MAX_LIMIT = 1_000_000
UNSEEN = Availability()


class Orders(Book):
    """The verbs that need no process to be started or ended."""

    def submit(
        self, specs: Sequence[Spec], devices: Sequence[Device], sight: Availability = UNSEEN
    ) -> list[Job]:
        """All of them, in one transaction, or none.

        Raises UserError where one can never run here or cannot be stored, NotFound where one is to run after a job that is not there.
        """
        if len(specs) > MAX_BATCH:
            raise UserError(f"up to {MAX_BATCH} jobs can be submitted at once")
        for env, where in {
            (id(spec.env), spec.where): (spec.env, spec.where) for spec in specs
        }.values():  # mostly one for all
            refuse_environment(env, where)
        for spec in specs:
            self._check(spec, devices, sight)
        jobs = self._store.insert_all(
            [bound(spec, devices) for spec in specs], time.time(), Queued()
        )
        for job in jobs:
            self._know(job)
        return jobs

    def _check(self, spec: Spec, devices: Sequence[Device], sight: Availability) -> None:
        refuse(spec, devices, sight)
        if spec.where and spec.where not in self._clusters:
            known = f" (there is: {', '.join(sorted(self._clusters))})" if self._clusters else ""
            raise UserError(
                f"no cluster is called {spec.where}{known}. To name one: gpudeck cluster add {spec.where} ADDRESS"
            )
        for number in (*spec.after, *spec.after_any):
            self.get(number)
        if why := broken(spec, self._fate):
            raise UserError(f"it can never run: {why}")

    def forecast(
        self, spec: Spec, devices: Sequence[Device], sight: Availability = UNSEEN
    ) -> Forecast:
        """Where and when the job would start, were it submitted now. Raises what `submit` raises."""
        refuse_environment(spec.env, spec.where)
        self._check(spec, devices, sight)
        number = 1 + max((*self._active, *(job.id for job in self._ended)), default=0)
        return self._foretold(
            Job(number, bound(spec, devices), time.time(), Queued()), devices, sight
        )

    def forecast_job(
        self, job_id: int, devices: Sequence[Device], sight: Availability = UNSEEN
    ) -> Forecast:
        """Where and when a job that waits will start. Raises NotFound, UserError where it does not wait."""
        job = self.get(job_id)
        if not isinstance(job.state, Queued):
            raise UserError(f"job {job_id} is {job.status}: it does not wait")
        return self._foretold(job, devices, sight)

    def _foretold(self, job: Job, devices: Sequence[Device], sight: Availability) -> Forecast:
        around = self._around(sight)
        if why := waits_for(job.spec, self._active, around.ends, around.now):
            return Forecast((), None, why)
        return forecast(job, self.running, self._lanes(), devices, self.paused, slots(), around)

    def edit(
        self, job_id: int, changes: Changes, devices: Sequence[Device], sight: Availability = UNSEEN
    ) -> Job:
        """Raises NotFound, UserError where it is too late, or the job could never run so."""
        job = self.get(job_id)
        spec = edited(job, changes)
        refuse_words(spec)
        if isinstance(job.state, Queued):
            same = (spec.gpus, spec.memory, spec.gpu_type) == (
                job.spec.gpus,
                job.spec.memory,
                job.spec.gpu_type,
            )
            refuse(spec, () if same else devices, sight)
            spec = (
                spec if same or not devices else bound(spec, devices)
            )  # one for GPUs that are gone for a moment stays one for GPUs
        changed = msgspec.structs.replace(job, spec=spec)
        self._store.update(changed, Event(time.time(), "edited", said(job.spec, spec)))
        if job.active:
            self._know(changed)
        else:
            self._ended = [listed(changed) if old.id == job_id else old for old in self._ended]
        return changed

    def move(self, job_id: int, beside: int, after: bool) -> Job:
        """Raises NotFound, UserError where one of the two does not wait."""
        one, other = self.get(job_id), self.get(beside)
        for job in (one, other):
            if not isinstance(job.state, Queued):
                raise UserError(
                    f"job {job.id} is {job.status}: only jobs that wait have a place in the queue"
                )
        if one.id != other.id:
            now = time.time()
            where = Event(now, "moved", f"{'after' if after else 'before'} job {beside}")
            changes = moved([self._active[number] for number in self._line], one, other, after)
            self._store.update_all([(job, (where,) if job.id == job_id else ()) for job in changes])
            for job in changes:
                self._know(job)
        return self.get(job_id)

    def groups(self) -> list[GroupState]:
        """Those with jobs that wait or run, and those that are limited or paused; by name."""
        waiting = Counter(self._active[job_id].spec.group for job_id in self._line)
        running = Counter(job.spec.group for job in self.running)
        names = sorted(({*waiting, *running} | self._groups.keys()) - {""})
        return [
            GroupState(self._groups.get(name, Group(name)), waiting[name], running[name])
            for name in names
        ]

    def set_group(self, name: str, limit: int | None, paused: bool | None) -> None:
        """Raises UserError where that cannot be, or cannot be stored."""
        if not name or "\0" in name or (limit is not None and not 0 <= limit <= MAX_LIMIT):
            raise UserError(f"a group has a name, and a limit from 0 (none) to {MAX_LIMIT}")
        old = self._groups.get(name, Group(name))
        new = Group(
            name, old.limit if limit is None else limit, old.paused if paused is None else paused
        )
        self._store.set_group(new)
        self._groups[name] = new

    def pause(self, paused: bool) -> None:
        """Start nothing new, or go on; remembered over a restart. Raises UserError where that cannot be stored."""
        self._store.pause(paused)
        self.paused = paused


def slots() -> int:
    """How many jobs without a device run at once."""
    return os.cpu_count() or 1
