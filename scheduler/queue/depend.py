"""Jobs that run after others. Pure. A job can only name jobs that exist when it is submitted, so that no two wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scheduler.jobs import Job, Spec
from scheduler.queue.expected import End

Status = Callable[[int], str]
"""The state's name of a job that is not active any more."""


def broken(spec: Spec, active: Mapping[int, Job], status: Status) -> str:
    """Why the job will never run: one that had to succeed before it did not. Empty where it still may."""
    for number in spec.after:
        if number not in active and (ended := status(number)) != "done":
            return f"job {number}, after whose success it was to run, {_ENDS[ended]}"
    return ""


def waits_for(spec: Spec, active: Mapping[int, Job], ends: Mapping[int, End], now: float) -> str:
    """The jobs that have to end first, in words; empty where there are none."""
    left = [active[number] for number in dict.fromkeys((*spec.after, *spec.after_any)) if number in active]
    if not left:
        return ""
    if len(left) > 1:
        return "waits for jobs " + ", ".join(str(job.id) for job in left)
    job = left[0]
    return f"waits for job {job.id} ({job.spec.name})" + (f", {ends[job.id].words(now)}" if job.id in ends else "")


_ENDS = {"failed": "failed", "cancelled": "was cancelled", "lost": "was lost"}
