"""Keep the users of a shared daemon within their limits of GPUs and of GPU-hours a week.

Only the start of a job is limited: a job that runs goes on, also when its user reaches a limit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from gpudeck.scheduler.protocol.jobs import Job, held_devices, held_gpus, held_seconds
from gpudeck.scheduler.protocol.user_limits import UserLimits

WEEK_S, HOUR_S = 7 * 86_400.0, 3600.0
User = int | None
LimitsOf = Callable[[User], UserLimits | None]


class Allowance(NamedTuple):
    """Describe the limits of a user, and what of them is used."""

    limits: UserLimits
    held: int = 0
    """GPUs that the user's jobs hold now."""
    hours: float = 0.0
    """GPU-hours of the last seven days, with those of running jobs."""


class WeeklyUse:
    """Add up the GPU-hours of the last seven days of users with a limit."""

    def __init__(self, limits_of: LimitsOf, ended_since: Callable[[float], Iterable[Job]]) -> None:
        """Read nothing yet.

        Args:
            limits_of: returns the limits of a user.
            ended_since: returns the stored jobs that ended since a time.
        """
        self._limits_of, self._ended_since = limits_of, ended_since
        self._ended: deque[Job] | None = None
        """The jobs that ended within a week; None before they are needed."""

    def add(self, job: Job) -> None:
        """Add a job that has ended. Before the stored ones were read, it is one of them."""
        if self._ended is not None:
            self._ended.append(job)

    def allowances(
        self, users: Iterable[User], running: Iterable[Job], now: float
    ) -> dict[User, Allowance]:
        """Return what these users may use and have used; none for users without a limit.

        Args:
            users: the users who have jobs.
            running: the jobs that run.
            now: seconds since the epoch.
        """
        found = {u: Allowance(limits) for u in users if (limits := self._limits_of(u)) is not None}
        if not found:
            return {}
        running = tuple(running)
        hours = self._hours(running, now) if any(a.limits.gpu_hours for a in found.values()) else {}
        held = dict.fromkeys(found, 0)
        for job in running:
            if job.spec.user in held:
                held[job.spec.user] += len(held_devices(job)) if job.spec.gpus else 0
        return {u: Allowance(a.limits, held[u], hours.get(u, 0.0)) for u, a in found.items()}

    def _hours(self, running: Iterable[Job], now: float) -> Mapping[User, float]:
        if self._ended is None:
            self._ended = deque(self._ended_since(now - WEEK_S))
        while self._ended and (self._ended[0].ended or 0.0) < now - WEEK_S:
            self._ended.popleft()
        hours: dict[User, float] = {}
        for job in (*self._ended, *running):
            used = held_gpus(job) * held_seconds(job, now, now - WEEK_S) / HOUR_S
            hours[job.spec.user] = hours.get(job.spec.user, 0.0) + used
        return hours
