"""Change jobs: their options, and the places of those that wait."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpudeck.language.numbers import clock
from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Changes, Event, Job, Queued, Spec, listed
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.turns import Work, finish
from gpudeck.scheduler.queue.admission import bind_kind, check_spec, check_text, check_variety
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.placement import ALL_FREE, Availability
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.transitions import with_spec
from gpudeck.scheduler.store import Store

APART = 2.0**-10
"""The distance between jobs that get new places, so that many others fit between them."""
_ALWAYS = {"name", "notes", "tags", "notify"}
"""What may be changed of a job in any state: text for people, and who is told of its end."""


class Editor(NamedTuple):
    """Describe who changes a job of a shared daemon."""

    uid: int | None
    is_admin: bool


OWNER = Editor(None, is_admin=True)
"""Who changes a job of a daemon that is not shared."""


class JobEditor:
    """Carry out what users change of jobs."""

    def __init__(
        self, store: Store, index: JobIndex, queries: JobQueries, planner: Planner
    ) -> None:
        self._store, self._index = store, index
        self._queries, self._planner = queries, planner

    def edit(
        self,
        job_id: int,
        changes: Changes,
        devices: Sequence[Device],
        availability: Availability = ALL_FREE,
        editor: Editor = OWNER,
    ) -> Job:
        """Change a job.

        Raises NotFound, UserError if it is too late, the editor may not do so, or the job could not
        run.
        """
        job = held_by(self._queries.get(job_id), changes.hold, editor)
        spec = edited(job, changes)
        check_text(spec)
        if isinstance(job.state, Queued):
            finish(check_variety(self._index.waiting, [spec]))
            same = all(
                getattr(spec, name) == getattr(job.spec, name)
                for name in ("gpus", "memory", "gpu_type")
            )
            check_spec(spec, () if same else devices, availability)
            if devices and not same:  # a job for GPUs that are gone for a moment stays one for GPUs
                spec = bind_kind(spec, devices)
        changed = with_spec(job, spec)
        event = Event(time.time(), "edited", describe_changes(job.spec, spec))
        self._store.update(changed, event)
        if job.active:
            self._index.update(changed)
        else:
            ended = self._index.ended
            self._index.ended = [listed(changed) if j.id == job_id else j for j in ended]
        return changed

    def move(self, job_id: int, beside: int, after: bool, mover: int | None = None) -> Job:
        """Move a job beside another.

        Args:
            mover: The user whose jobs alone may be overtaken; None: anybody's may.

        Raises:
            NotFound: One of them does not exist.
            UserError: One of them does not wait, or the mover would overtake another user.
        """
        found = self._moved(Moved(job_id, beside, after), mover)
        place = (
            phrase("after job {job}", job=beside)
            if after
            else phrase("before job {job}", job=beside)
        )
        event = Event(time.time(), "moved", place)
        self._index.commit_all(
            [(changed, (event,) if changed.id == job_id else ()) for changed in found]
        )
        return self._queries.get(job_id)

    def schedule(
        self,
        devices: Sequence[Device],
        availability: Availability = ALL_FREE,
        move: Moved | None = None,
        mover: int | None = None,
    ) -> Work[tuple[Landing, ...]]:
        """Return where and when jobs are expected to start that wait, or would after a move.

        Raises what `move` raises.
        """
        changed = [] if move is None else self._moved(move, mover)
        return self._planner.schedule(devices, availability, {job.id: job for job in changed})

    def _moved(self, move: Moved, mover: int | None) -> list[Job]:
        """Return the jobs that a move would change, with their new places. Raises as `move`."""
        job, other = self._queries.get(move.job), self._queries.get(move.beside)
        for one in (job, other):
            if not isinstance(one.state, Queued):
                raise UserError(
                    phrase(
                        "job {job} is {status}: only waiting jobs have a place in the queue",
                        job=one.id,
                        status=Text(one.status),
                    )
                )
        if job.id == other.id:
            return []
        waiting = [self._index.active[number] for number in self._index.waiting]
        if mover is not None:
            check_overtaking(waiting, job, other, move.after, mover)
        return moved(waiting, job, other, move.after)


def edited(job: Job, changes: Changes) -> Spec:
    """Return the job's spec with the changes. Raises UserError where it is too late for one."""
    made = {
        name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None
    }
    if not made:
        fields = ", ".join(Changes.__struct_fields__)
        raise UserError(phrase("nothing to change was named. Choose from: {fields}", fields=fields))
    late = sorted(set(made) - _ALWAYS)
    if late and not isinstance(job.state, Queued):
        raise UserError(
            phrase(
                "job {job} is {status}: it is too late to change {name}",
                job=job.id,
                status=Text(job.status),
                name=joined(late),
            )
        )
    return msgspec.structs.replace(job.spec, **made)


def held_by(job: Job, hold: bool | None, editor: Editor) -> Job:
    """Return the job with who put it on hold, for a change of that.

    Raises UserError where a user would release what an administrator put on hold.
    """
    state = job.state
    if hold is None or not isinstance(state, Queued):
        return job
    if state.held_by is not None and not editor.is_admin:
        raise UserError(
            phrase(
                "an administrator put job {job} on hold, and only administrators release it",
                job=job.id,
            )
        )
    holder = editor.uid if hold and editor.uid != job.spec.user else None
    return msgspec.structs.replace(job, state=msgspec.structs.replace(state, held_by=holder))


def describe_changes(before: Spec, after: Spec) -> str:
    """Return what was changed, for the timeline."""
    pairs = {
        name: (getattr(before, name), getattr(after, name)) for name in Changes.__struct_fields__
    }
    return ", ".join(
        f"{name} {_text(name, old)} → {_text(name, new)}"
        for name, (old, new) in pairs.items()
        if old != new
    )


def check_overtaking(
    waiting: Sequence[Job], job: Job, beside: Job, after: bool, mover: int
) -> None:
    """Raise UserError where a move would give the job a place that its user may not give it.

    Args:
        waiting: As in `moved`.
        mover: The user who moves it.
    """
    if beside.spec.priority > max(job.spec.priority, 0):
        raise UserError(
            phrase(
                "job {beside} has the priority {priority}: on a shared daemon"
                " only administrators raise the priority above 0",
                beside=beside.id,
                priority=beside.spec.priority,
            )
        )
    numbers = [j.id for j in waiting]
    passed = waiting[numbers.index(beside.id) + after : numbers.index(job.id)]
    if (others := next((j for j in passed if j.spec.user != mover), None)) is not None:
        raise UserError(
            phrase(
                "job {job} would overtake job {others} of another user, which"
                " on a shared daemon only administrators decide",
                job=job.id,
                others=others.id,
            )
        )


def moved(waiting: Sequence[Job], job: Job, beside: Job, after: bool) -> list[Job]:
    """Return the jobs that change for `job` to be right before (or after) `beside`.

    That is the job itself, which gets the priority of the other, and where no number is left
    between its neighbours, some of these.

    Args:
        waiting: the jobs that wait, in the order they are served.
    """
    priority = beside.spec.priority
    same = [j for j in waiting if j.spec.priority == priority and j.id != job.id]
    at = next(i for i, j in enumerate(same) if j.id == beside.id) + after
    job = with_spec(job, msgspec.structs.replace(job.spec, priority=priority))
    last = max(j.id for j in waiting)  # those that are submitted later come after all of these
    low = _place(same[at - 1]) if at else _place(same[0]) - 2.0
    high = _place(same[at]) if at < len(same) else last + 1.0
    middle = (low + high) / 2
    if low < middle < high:
        return [msgspec.structs.replace(job, place=middle)]
    return _spread(same, job, at, last)


def _spread(same: Sequence[Job], job: Job, at: int, last: int) -> list[Job]:
    """Return the job at this index among the others, with as many neighbours as have to move for
    all of them to lie apart.

    Args:
        last: the highest number of a job that waits.
    """
    reach = 1
    while True:
        first, end = max(at - reach, 0), min(at + reach, len(same))
        near = [*same[first:at], job, *same[at:end]]
        high = _place(same[end]) if end < len(same) else last + 1.0
        low = _place(same[first - 1]) if first else high - len(near) - 1
        step = (high - low) / (len(near) + 1)
        if step >= APART or not first:
            return [msgspec.structs.replace(j, place=low + step * i) for i, j in enumerate(near, 1)]
        reach *= 2


def _place(job: Job) -> float:
    return job.id if job.place is None else job.place


def _text(name: str, value: object) -> str:
    if name == "begin" and isinstance(value, float):
        return clock(value, time.time()) if value else "at once"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
