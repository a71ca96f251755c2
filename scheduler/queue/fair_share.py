"""Share the GPUs fairly between the users of a shared queue.

Among jobs of one priority, the next job to start belongs to the user with the fewest GPU-hours. The
GPU-hours of a finished job count half after each half-life. A running job counts with the time that
it has held its GPUs, and each GPU counts with at least one hour, so users take turns when several
GPUs become free at once. The jobs of one user keep their order.

Jobs without a GPU wait for processors. Among them, the next job to start belongs to the user who
runs the fewest of them.

Nobody starves: the GPU-hours of a waiting user decay while those of users whose jobs run grow,
until the waiting user has the fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from gpudeck.scheduler.protocol.jobs import (
    Ended,
    Job,
    Running,
    Spec,
    Starting,
    suspended_seconds,
    turn,
)

HOUR_S = 3600.0
LEAST_HOURS = 1.0
"""What each GPU of a job counts at least while the job runs."""
HALF_LIVES = 8.0
"""Jobs that ended longer ago do not count."""

User = int | None


class FairShare:
    """Add up the GPU-hours of each user's ended jobs, which count less as time passes."""

    def __init__(
        self, half_life: Callable[[], float], ended_since: Callable[[float], Iterable[Job]]
    ) -> None:
        """Read nothing yet.

        Args:
            half_life: returns the seconds after which hours count half; 0 where users are not told
                apart.
            ended_since: returns the stored jobs that ended since a time.
        """
        self._half_life, self._ended_since = half_life, ended_since
        self._hours: dict[User, tuple[float, float]] = {}
        """For each user the hours, and when they were that many (seconds since the epoch)."""
        self._read = False

    def add(self, job: Job) -> None:
        """Add a job that has ended. Before the stored ones were read, it is one of them."""
        if (half_life := self._half_life()) and self._read:
            self._add(job, half_life)

    def of(self, users: Iterable[User], running: Iterable[Job], now: float) -> dict[User, float]:
        """Return the GPU-hours of these users as they count now; none where none are counted.

        Args:
            users: the users who have jobs.
            running: the jobs that run.
            now: seconds since the epoch.
        """
        if not (half_life := self._half_life()):
            return {}
        if not self._read:
            self._read = True
            for job in self._ended_since(now - HALF_LIVES * half_life):
                self._add(job, half_life)
        found = dict.fromkeys(users, 0.0)
        for user, (hours, at) in self._hours.items():
            if user in found:
                found[user] = hours * _left(now - at, half_life)
        for job in running:
            if isinstance(job.state, Starting | Running):
                held = now - job.state.at - suspended_seconds(job, now)
                found[job.spec.user] += max(held / HOUR_S, LEAST_HOURS) * len(job.state.devices)
        return found

    def _add(self, job: Job, half_life: float) -> None:
        state = job.state
        if not isinstance(state, Ended) or state.started is None or not state.devices:
            return
        # readings cover all attempts, and the state only the last one
        held = state.at - state.started - state.suspended
        seconds = max(held, job.usage.seconds if job.usage else 0.0, 0.0)
        hours, at = self._hours.get(job.spec.user, (0.0, state.at))
        now = max(at, state.at)
        added = len(state.devices) * seconds / HOUR_S * _left(now - state.at, half_life)
        self._hours[job.spec.user] = (hours * _left(now - at, half_life) + added, now)


def _left(seconds: float, half_life: float) -> float:
    """Return the part that still counts after so long; a clock that was set back adds nothing."""
    return float(0.5 ** (max(seconds, 0.0) / half_life))


class Order:
    """Decide whose job is next, while jobs start one after another."""

    def __init__(self, hours: Mapping[User, float], without_gpu: Iterable[User] = ()) -> None:
        """Begin with what each user has.

        Args:
            hours: the GPU-hours of each; none where users are not told apart.
            without_gpu: the user of each running job without a GPU.
        """
        self._on = bool(hours)
        self.hours = dict(hours)
        self._without_gpu = Counter(without_gpu)

    def key(self, job: Job) -> tuple[float, float, float, int]:
        """Return a key that sorts jobs in the order in which they are served."""
        priority, place, number = turn(job)
        return priority, self._share(job.spec), place, number

    def charge(self, spec: Spec) -> None:
        """Count a job that starts."""
        if not spec.gpus:
            self._without_gpu[spec.user] += 1
        elif self._on:
            self.hours[spec.user] = self._share(spec) + spec.gpus * LEAST_HOURS

    def overtakes(self, other: Job, job: Job) -> bool:
        """Return whether another job is before this one only because of its user's share."""
        return self._on and turn(job) < turn(other) and self.key(other) < self.key(job)

    def _share(self, spec: Spec) -> float:
        if spec.gpus:
            return self.hours.get(spec.user, 0.0)
        return float(self._without_gpu[spec.user]) if self._on else 0.0
