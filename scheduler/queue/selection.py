"""Which jobs an order for many means. Pure: what was named and the jobs that wait or run in, their numbers out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Job

MAX_NAMED = 100_000
"""Numbers and ranges in one order."""


def refuse(jobs: Sequence[int], ranges: Sequence[tuple[int, int]]) -> None:
    """Raises UserError where that is too much, or a range has no sense."""
    if len(jobs) + len(ranges) > MAX_NAMED:
        raise UserError(
            f"up to {MAX_NAMED} numbers can be named at once: name ranges, such as 9-200, an array or a group"
        )
    for first, last in ranges:
        if last < first:
            raise UserError(f"ranges go upwards, as in {last}-{first}; got {first}-{last}")


def within(ids: Iterable[int], ranges: Iterable[tuple[int, int]]) -> set[int]:
    """Those of `ids` that lie in one of the ranges, first and last included: its work grows with what is there, not with their length."""
    ordered, found = sorted(ids), set[int]()
    done = 0
    for first, last in sorted(ranges):
        start, end = max(bisect_left(ordered, first), done), bisect_right(ordered, last)
        found.update(ordered[start:end])
        done = max(done, end)
    return found


def of_array(job: Job, jobs: Mapping[int, Job]) -> set[int]:
    """The jobs that were submitted in one array with this one: with one command, at one moment. Raises UserError where it is of none."""
    if job.spec.index is None:
        raise UserError(f"job {job.id} is of no array")
    whole = (job.submitted, job.spec.argv)
    return {
        number
        for number, other in jobs.items()
        if other.spec.index is not None and (other.submitted, other.spec.argv) == whole
    }
