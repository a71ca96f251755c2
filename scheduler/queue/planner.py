"""What limits jobs, the plan of the last pass, and why each job waits."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import Executors
from gpudeck.scheduler.protocol import wait_reasons as w
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Forecast, Group, GroupState, Job, Queued
from gpudeck.scheduler.protocol.schedule import Landing
from gpudeck.scheduler.protocol.turns import Work
from gpudeck.scheduler.queue.dependencies import failed_dependency, open_dependencies
from gpudeck.scheduler.queue.fair_share import FairShare, User
from gpudeck.scheduler.queue.forecast import (
    WaitingJobs,
    forecast,
    make_forecast,
    make_schedule,
)
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.lanes import Turn
from gpudeck.scheduler.queue.placement import Availability
from gpudeck.scheduler.queue.policy import (
    EMPTY_PLAN,
    Conditions,
    JobsByLane,
    make_plan,
    return_time,
)
from gpudeck.scheduler.queue.retry import remaining_delay
from gpudeck.scheduler.queue.user_limits import WeeklyUse
from gpudeck.scheduler.store import Store, environments

MAX_LIMIT = 1_000_000


class GroupLimits:
    """Keep which groups are limited or paused, and whether the queue is."""

    def __init__(self, store: Store, index: JobIndex) -> None:
        self._store, self._index = store, index
        self.settings = {group.name: group for group in store.groups()}
        self.paused = store.paused()

    def states(self) -> list[GroupState]:
        """Return the groups with jobs, and those that are limited or paused, by name."""
        jobs = self._index.active
        waiting = Counter(jobs[number].spec.group for number in self._index.waiting)
        running = Counter(job.spec.group for job in self._index.running.values())
        kept = {name for name, group in self.settings.items() if group.limit or group.paused}
        names = sorted(({*waiting, *running} | kept) - {""})
        return [GroupState(self._group(name), waiting[name], running[name]) for name in names]

    def set(self, name: str, limit: int | None, paused: bool | None) -> None:
        """Limit or pause a group. Raises UserError where that cannot be, or cannot be stored."""
        if not name or "\0" in name or (limit is not None and not 0 <= limit <= MAX_LIMIT):
            raise UserError(
                phrase("a group has a name, and a limit from 0 (none) to {limit}", limit=MAX_LIMIT)
            )
        old = self._group(name)
        limit = old.limit if limit is None else limit
        new = Group(name, limit, old.paused if paused is None else paused)
        self._store.set_group(new)
        self.settings[name] = new

    def pause(self, paused: bool) -> None:
        """Start nothing new, or go on, also after a restart. Raises UserError."""
        self._store.pause(paused)
        self.paused = paused

    def _group(self, name: str) -> Group:
        return self.settings.get(name, Group(name))


class Planner:
    """Decide what starts, by the policy."""

    def __init__(
        self,
        index: JobIndex,
        groups: GroupLimits,
        executors: Executors,
        shares: FairShare,
        weekly: WeeklyUse,
        turns: Callable[[], float],
    ) -> None:
        self._index, self._groups, self._executors = index, groups, executors
        self._shares, self._weekly, self._turns = shares, weekly, turns
        self.latest = EMPTY_PLAN
        self._next_begin = math.inf
        """When a job may start that waited for a time of its user's choice, or for a booking."""

    def plan(self, devices: Sequence[Device], availability: Availability) -> None:
        """Make a plan; nothing is started."""
        running, conditions = self._index.occupying, self._conditions(availability)
        later = self._begin_later(conditions.now)
        begins = [self._index.active[number].spec.begin for number in later]
        begins += [b.end for b in availability.bookings if b.end > conditions.now]
        begins += [at for job in running if (at := return_time(job)) > conditions.now]
        self._next_begin = min(begins, default=math.inf)
        self.latest = make_plan(running, self._lanes(later), devices, conditions)

    def forecast(
        self,
        job: Job,
        devices: Sequence[Device],
        availability: Availability,
        before: Sequence[Job] = (),
    ) -> Work[Forecast]:
        """Return where and when a job will start that waits, or was not submitted."""
        conditions = self._conditions(availability)
        after = open_dependencies(job.spec, self._index.active, conditions.ends)
        if after is not None:
            return make_forecast((), None, after, conditions.now)
        running = self._index.occupying
        return (
            yield from forecast(job, running, self._listed_lanes(), devices, conditions, before)
        )

    def schedule(
        self,
        devices: Sequence[Device],
        availability: Availability,
        changed: Mapping[int, Job] = MappingProxyType({}),
    ) -> Work[tuple[Landing, ...]]:
        """Return where and when the jobs are expected to start that are served next.

        Args:
            changed: Jobs that are taken to wait in this form, by number.
        """
        conditions, running = self._conditions(availability), self._index.occupying
        return make_schedule(running, self._listed_lanes(), devices, conditions, changed)

    def _begin_later(self, now: float) -> set[int]:
        """Return the jobs that do not start yet, by the clock as it is now."""
        jobs = (self._index.active[number] for number in self._index.scheduled)
        return {job.id for job in jobs if job.spec.begin > now}

    def end_delays(self) -> None:
        """Consider jobs again whose delay before the next try is over."""
        now, moment, index = time.time(), time.monotonic(), self._index
        index.delayed = {n for n in index.delayed if remaining_delay(index.active[n], now)}
        index.not_started = {
            n: (until, why) for n, (until, why) in index.not_started.items() if moment < until
        }

    def retry_is_ready(self, now: float) -> bool:
        """Return whether the delay of a job that failed, or that its user chose, is over."""
        if now >= self._next_begin:
            return True
        jobs = (self._index.active[number] for number in self._index.delayed)
        return any(not remaining_delay(job, now) for job in jobs)

    def reason(self, job: Job, now: float) -> w.WaitReason:
        """Return why the job waits.

        Args:
            now: seconds since the epoch.
        """
        index = self._index
        if job.damaged:
            return w.SpecDamaged()
        if job.id in index.unknown:
            return index.unknown[job.id]
        if job.id in index.not_started:
            return index.not_started[job.id][1]
        if environments.is_held(job):
            return w.EnvironmentMissing()
        if self._groups.paused:
            return w.QueuePaused()
        ends = index.expected_ends(now, (*job.spec.after, *job.spec.after_any))
        if (after := open_dependencies(job.spec, index.active, ends)) is not None:
            return after
        if job.id in index.suspects:
            return failed_dependency(job.spec, index.outcome) or w.NotConsidered()
        if job.id in index.delayed and remaining_delay(job, now):
            return w.RetryLater(job.tries, now + remaining_delay(job, now))
        if job.spec.begin > now and not job.spec.hold:
            return w.NotBefore(job.spec.begin)
        if job.spec.hold and isinstance(job.state, Queued) and job.state.held_by is not None:
            return w.HeldByAdmin()
        return self.latest.reason(job)

    def return_reason(self, job: Job) -> w.WaitReason:
        """Return why a suspended job that is due is not back yet."""
        returns = any(back.id == job.id for back in self.latest.returns)
        return w.StartsNow() if returns else self.latest.room.return_reason(job)

    def _conditions(self, availability: Availability) -> Conditions:
        now, running = time.time(), self._index.running
        gives_way = {n: w.End(now) for n, job in running.items() if job.spec.when_idle}
        return Conditions(
            availability,
            self._index.expected_ends(now, running) | gives_way,
            now,
            dict(self._groups.settings),
            self._executors.clusters(),
            self._groups.paused,
            os.cpu_count() or 1,
            self._hours(now),
            self._weekly.allowances(self._users(), self._index.running.values(), now),
            frozenset(n for n, until in self._index.unmoved.items() if time.monotonic() < until),
            self._turns(),
        )

    def _users(self) -> set[User]:
        """Return the users who have jobs that wait or run."""
        running = self._index.running.values()
        return {*self._index.waiting.users(), *(job.spec.user for job in running)}

    def _hours(self, now: float) -> Mapping[User, float]:
        """Return the GPU-hours of each user; none where one user alone has jobs."""
        users, running = self._users(), self._index.running.values()
        return self._shares.of(users, running, now) if len(users) > 1 else {}

    def _listed_lanes(self) -> WaitingJobs:
        """Return the jobs that wait and may start as they are now, whatever changes later."""
        return {key: list(lane) for key, lane in self._lanes().items()}

    def _lanes(self, later: Set[int] = frozenset()) -> JobsByLane:
        """Return the jobs that wait and may start, without those that begin later."""
        now, moment, index = time.time(), time.monotonic(), self._index
        delayed = {n for n in index.delayed if remaining_delay(index.active[n], now)}
        delayed |= {n for n, (until, _) in index.not_started.items() if moment < until}
        kept = index.dependents.ids() | index.suspects | delayed | index.unknown.keys() | later
        kept |= index.damaged | index.leaving

        def ready(lane: Iterable[Turn]) -> Iterable[Job]:
            return (index.active[number] for _, _, number in lane if number not in kept)

        lanes = index.waiting.by_requirements()
        return {key: ready(lane) for key, lane in lanes.items()}
