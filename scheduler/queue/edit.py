"""Changes to a job that was submitted: what it needs, what it is called, and its place among those that wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler.protocol.errors import UserError
from scheduler.protocol.jobs import Changes, Job, Queued, Spec

_ALWAYS = {"name", "notes", "tags"}
"""What may be changed of a job in any state: words for people."""


def edited(job: Job, changes: Changes) -> Spec:
    """The job's spec with the changes made. Raises UserError where it is too late for one of them, or there is none."""
    made = {
        name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None
    }
    if not made:
        raise UserError(
            f"nothing to change was named. There are: {', '.join(Changes.__struct_fields__)}"
        )
    late = sorted(set(made) - _ALWAYS)
    if late and not isinstance(job.state, Queued):
        raise UserError(
            f"job {job.id} is {job.status}: its {', '.join(late)} cannot be changed any more"
        )
    return msgspec.structs.replace(job.spec, **made)


def said(before: Spec, after: Spec) -> str:
    """What was changed, for the timeline."""
    names = [
        name for name in Changes.__struct_fields__ if getattr(before, name) != getattr(after, name)
    ]
    return ", ".join(
        f"{name} {_text(getattr(before, name))} → {_text(getattr(after, name))}" for name in names
    )


def moved(line: Sequence[Job], job: Job, beside: Job, after: bool) -> list[Job]:
    """The jobs that change for `job` to stand right before (or after) `beside`: itself, or all of that priority.

    `line`: the jobs that wait, in their turn. It takes the priority of `beside`.
    """
    same = [j for j in line if j.spec.priority == beside.spec.priority and j.id != job.id]
    at = next(i for i, j in enumerate(same) if j.id == beside.id) + after
    job = msgspec.structs.replace(
        job, spec=msgspec.structs.replace(job.spec, priority=beside.spec.priority)
    )
    last = max(j.id for j in line)  # those that are submitted later come after all of these
    low = _place(same[at - 1]) if at else _place(same[0]) - 2.0
    high = _place(same[at]) if at < len(same) else last + 1.0
    middle = (low + high) / 2
    if low < middle < high:
        return [msgspec.structs.replace(job, place=middle)]
    ordered = [*same[:at], job, *same[at:]]  # no number is left between the two: all get new ones
    return [
        msgspec.structs.replace(j, place=float(last - len(ordered) + 1 + i))
        for i, j in enumerate(ordered)
    ]


def _place(job: Job) -> float:
    return job.id if job.place is None else job.place


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
