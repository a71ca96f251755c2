"""Track the jobs that run after others.

A job can only name jobs that exist when it is submitted, so jobs never wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Set

from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.wait_reasons import AfterJobs, DependencyFailed, End

Outcomes = Callable[[int], str | None]
"""A function that returns the status with which a job ended, or None if it has not ended."""


def failed_dependency(spec: Spec, outcomes: Outcomes) -> DependencyFailed | None:
    """Return the job that had to succeed first and did not; None while this job may still run."""
    for number in spec.after:
        status = outcomes(number)
        if status not in (None, "done"):
            return DependencyFailed(number, status)
    return None


def open_dependencies(
    spec: Spec, active: Mapping[int, Job], ends: Mapping[int, End]
) -> AfterJobs | None:
    """Return the jobs that have to end first; None if there are none."""
    left = tuple(dict.fromkeys(n for n in (*spec.after, *spec.after_any) if n in active))
    if not left:
        return None
    if len(left) > 1:
        return AfterJobs(left)
    return AfterJobs(left, active[left[0]].spec.name, ends.get(left[0]))


class Dependents:
    """Keep track of the jobs that wait for others to end.

    Handling the end of a job takes no longer when unrelated jobs wait.
    """

    def __init__(self) -> None:
        self._open: dict[int, set[int]] = {}
        """The jobs that have to end first, by the job that waits for them."""
        self._waiting: dict[int, set[int]] = {}
        """The jobs that wait, by the job that they wait for."""

    def ids(self) -> Set[int]:
        """Return the numbers of the jobs that wait for others."""
        return self._open.keys()

    def after(self, jobs: Iterable[int]) -> set[int]:
        """Return the jobs that wait for one of these."""
        return {waiting for number in jobs for waiting in self._waiting.get(number, ())}

    def update(self, job: Job, active: Container[int]) -> set[int]:
        """Record that a job changed.

        If it has ended, return the jobs that waited for it: they may now wait for nothing more, or
        never run.
        """
        for number in self._open.pop(job.id, ()):
            self._waiting[number].discard(job.id)
            if not self._waiting[number]:
                del self._waiting[number]
        if isinstance(job.state, Queued):
            left = {n for n in (*job.spec.after, *job.spec.after_any) if n in active}
            if left:
                self._open[job.id] = left
            for number in left:
                self._waiting.setdefault(number, set()).add(job.id)
        if job.active:
            return set()
        freed = self._waiting.pop(job.id, set())
        for number in freed:
            self._open[number].discard(job.id)
            if not self._open[number]:
                del self._open[number]
        return freed
