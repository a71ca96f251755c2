"""Jobs that run after others. Pure. A job can only name jobs that exist when it is submitted, so that no two wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Set

from scheduler.protocol.jobs import Job, Queued, Spec
from scheduler.queue.expected_end import End

Fate = Callable[[int], str]
"""The state's name of a job that has ended; empty while it has not."""


def broken(spec: Spec, fate: Fate) -> str:
    """Why the job will never run: one that had to succeed before it did not. Empty where it still may."""
    for number in spec.after:
        if (ended := fate(number)) not in ("", "done"):
            return f"job {number}, after whose success it was to run, {_ENDS[ended]}"
    return ""


def waits_for(spec: Spec, active: Mapping[int, Job], ends: Mapping[int, End], now: float) -> str:
    """The jobs that have to end first, in words; empty where there are none."""
    left = [
        active[number]
        for number in dict.fromkeys((*spec.after, *spec.after_any))
        if number in active
    ]
    if not left:
        return ""
    if len(left) > 1:
        return "waits for jobs " + ", ".join(str(job.id) for job in left)
    job = left[0]
    return f"waits for job {job.id} ({job.spec.name})" + (
        f", {ends[job.id].words(now)}" if job.id in ends else ""
    )


_ENDS = {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}


class Dependents:
    """Told of every job that changes; knows those that wait for others to end. What is done for one end does not grow with the rest."""

    def __init__(self) -> None:
        self._left: dict[int, set[int]] = {}
        """Of each job that waits: the jobs that have not ended."""
        self._after: dict[int, set[int]] = {}
        """Of each job that is waited for: those that wait."""

    def ids(self) -> Set[int]:
        return self._left.keys()

    def after(self, jobs: Iterable[int]) -> set[int]:
        """Those that wait for one of these."""
        return {waiting for number in jobs for waiting in self._after.get(number, ())}

    def put(self, job: Job, active: Container[int]) -> set[int]:
        """The job is as given now. Where it has ended: those that waited for it, which may be broken now, or wait for nothing more."""
        self._forget(job.id)
        if isinstance(job.state, Queued):
            if left := {
                number for number in (*job.spec.after, *job.spec.after_any) if number in active
            }:
                self._left[job.id] = left
                for number in left:
                    self._after.setdefault(number, set()).add(job.id)
            return set()
        if job.active:
            return set()
        freed = self._after.pop(job.id, set())
        for number in freed:
            self._left[number].discard(job.id)
            if not self._left[number]:
                del self._left[number]
        return freed

    def _forget(self, job_id: int) -> None:
        for number in self._left.pop(job_id, ()):
            waiting = self._after[number]
            waiting.discard(job_id)
            if not waiting:
                del self._after[number]
