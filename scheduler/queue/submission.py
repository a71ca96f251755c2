"""Submit jobs, and change them while they wait."""

from __future__ import annotations

import time
from collections.abc import Sequence
from heapq import nsmallest
from typing import NamedTuple

import msgspec

from gpudeck.language.numbers import clock
from gpudeck.language.text import Text, joined, phrase
from gpudeck.scheduler.attempts import Executors
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import Unsettled, UserError
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import (
    Changes,
    Event,
    Forecast,
    Job,
    Queued,
    Spec,
    listed,
)
from gpudeck.scheduler.protocol.schedule import Landing, Moved
from gpudeck.scheduler.protocol.submissions import digesting, new_token
from gpudeck.scheduler.protocol.turns import PART, Work, finish, light_parts, parts
from gpudeck.scheduler.protocol.wait_reasons import explain
from gpudeck.scheduler.queue.admission import (
    bound,
    check_cluster,
    check_dependencies,
    check_environment,
    check_host_limits,
    check_spec,
    check_text,
)
from gpudeck.scheduler.queue.dependencies import failed_dependency
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.lanes import Requirements, requirements
from gpudeck.scheduler.queue.placement import ALL_FREE, Availability
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.resubmission import Resubmission
from gpudeck.scheduler.queue.transitions import with_spec
from gpudeck.scheduler.store import Store, staging

APART = 2.0**-10
"""The distance between jobs that get new places, so that many others fit between them."""
MAX_LANES = 2000
"""Waiting jobs of one user differ in up to so many combinations of what they need: every pass over
the queue looks at each (see `lanes`)."""
HANDLED_BYTES = 2**17
"""What jobs have that are checked, or shown, between two looks at the clock."""
MAX_ARTEFACTS = 100
"""Jobs of one submission that use the artefacts of others."""
UNNAMED = "-"
"""Stands for the digest of a submission without a token."""
_ALWAYS = {"name", "notes", "tags", "notify"}
"""What may be changed of a job in any state: text for people, and who is told of its end."""


class Editor(NamedTuple):
    """Describe who changes a job of a shared daemon."""

    uid: int | None
    is_admin: bool


OWNER = Editor(None, is_admin=True)
"""Who changes a job of a daemon that is not shared."""


class Submission:
    """Carry out what users request of jobs that no process runs."""

    def __init__(
        self,
        store: Store,
        index: JobIndex,
        queries: JobQueries,
        planner: Planner,
        executors: Executors,
    ) -> None:
        self._store, self._index, self._queries = store, index, queries
        self._planner, self._executors = planner, executors
        self._again = Resubmission(store, index)
        self._under_way: set[str] = set()
        """The tokens of submissions that are being stored."""
        self.unfinished = False
        """Whether jobs are left to be bound to a kind of device."""

    def submit(
        self,
        specs: Sequence[Spec],
        devices: Sequence[Device],
        availability: Availability = ALL_FREE,
        token: str = "",
    ) -> Work[list[Job]]:
        """Submit all of the jobs, or none of them, part by part.

        They are on disk as a whole before anybody sees one of them. Jobs that were submitted with
        this token before are returned as they are now.

        Raises:
            UserError: one of them can never run here, or they cannot be stored, or the token
                belongs to another submission.
            NotFound: one of them is to run after a job that does not exist.
            Unsettled: it cannot be found out now whether they were submitted before.
        """
        if len(specs) > MAX_BATCH:
            raise UserError(f"up to {MAX_BATCH} jobs can be submitted at once")
        if not token:
            return (yield from self._submit(specs, devices, availability, "", ""))
        if token in self._under_way:
            raise Unsettled(f"the submission with the token {token} is being stored")
        self._under_way.add(token)
        try:
            contents = yield from digesting(specs)
            jobs = yield from self._again.repeat(token, contents, specs, devices)
            if jobs is not None:
                return jobs
            return (yield from self._submit(specs, devices, availability, token, contents))
        finally:
            self._under_way.discard(token)

    def _submit(
        self,
        specs: Sequence[Spec],
        devices: Sequence[Device],
        availability: Availability,
        token: str,
        contents: str,
    ) -> Work[list[Job]]:
        distinct = {(id(spec.env), spec.where): spec for spec in specs}  # mostly one for all
        for part in parts(list(distinct.values())):
            for spec in part:
                check_environment(spec.env, spec.where)
            yield
        fitting: list[Spec] = []
        for part in parts(specs):
            for spec in part:
                self._check(spec, devices, availability)
                fitting.append(bound(spec, devices))
            yield
        yield from self._check_dependencies(specs)
        self._check_artefacts(specs)
        self._check_variety(fitting)
        if len(specs) > staging.PART or sum(map(staging.weight, specs)) > staging.PART_BYTES:
            return (yield from self._stage(fitting, token or new_token(), contents))
        jobs = self._store.insert_all(fitting, time.time(), Queued(), token, contents)
        for job in jobs:
            self._index.add(job)
        return jobs

    def _stage(self, specs: Sequence[Spec], token: str, contents: str) -> Work[list[Job]]:
        """Store many jobs in several transactions, and show them once all are on disk."""
        staged = staging.Staging(self._store, len(specs), time.time(), Queued(), token)
        jobs: list[Job] = []
        try:
            for part in light_parts(specs, staging.PART, staging.weight, staging.PART_BYTES):
                jobs += staged.add(part)
                yield
            staged.commit(contents or UNNAMED)
        except Exception:
            staged.give_up()
            raise
        for some in light_parts(jobs, PART, lambda job: staging.weight(job.spec), HANDLED_BYTES):
            for job in some:
                self._index.add(job)
                staged.show(job)
            yield
        return jobs

    def submitted(self, token: str) -> Work[list[Job]]:
        """Return the jobs that were submitted with this token; see `Resubmission.jobs_of`."""
        return self._again.jobs_of(token)

    def _check(self, spec: Spec, devices: Sequence[Device], availability: Availability) -> None:
        check_spec(spec, devices, availability)
        check_host_limits(spec, self._executors.of(spec.where).limit_problem())
        check_cluster(spec.where, self._executors.clusters().keys())

    def _check_artefacts(self, specs: Sequence[Spec]) -> None:
        """Raise NotFound, UserError where jobs that come together may not use old artefacts."""
        wanted = [spec for spec in specs if spec.artefacts_of is not None]
        if len(wanted) > MAX_ARTEFACTS:
            raise UserError(
                phrase(
                    "up to {most} jobs of one submission can use the artefacts of other jobs",
                    most=MAX_ARTEFACTS,
                )
            )
        used = {spec.artefacts_of: spec for spec in wanted}
        if len(used) < len(wanted):
            raise UserError(
                phrase("two jobs of one submission cannot use the artefacts of the same job")
            )
        if not used:
            return
        users = {n: job.id for job in self._index.active.values() for n in artefacts_used(job)}
        for number, spec in used.items():
            assert number is not None
            old = self._queries.get(number)
            if old.spec.user != spec.user or spec.where or spec.container:
                raise UserError(
                    phrase("the artefacts of job {job} cannot be used by this job", job=number)
                )
            if (user := users.get(number)) is not None:
                raise UserError(
                    phrase("job {user} uses the artefacts of job {job} now", user=user, job=number)
                )

    def _check_dependencies(self, specs: Sequence[Spec]) -> Work[None]:
        """Raise NotFound, UserError where a job can never run because of one that comes before.

        A job that ends without success meanwhile cancels those after it once they are stored.
        """
        check_dependencies(specs)
        named = {number for spec in specs for number in (*spec.after, *spec.after_any)}
        self._index.read_outcomes(named)
        for part in light_parts(specs, PART, staging.weight, HANDLED_BYTES):
            for spec in part:
                if (failed := failed_dependency(spec, self._index.outcome)) is not None:
                    raise UserError(phrase("the job can't run: {sub}", sub=explain(failed, 0.0)))
            yield

    def _check_variety(self, specs: Sequence[Spec]) -> None:
        """Raise UserError where the jobs of a user would differ in too much of what they need."""
        by_user: dict[int | None, set[Requirements]] = {}
        for spec in specs:
            by_user.setdefault(spec.user, set()).add(requirements(spec))
        if any(self._index.waiting.count_with(*of_user) > MAX_LANES for of_user in by_user.items()):
            raise UserError(
                phrase(
                    "your waiting jobs may ask for up to {most} different combinations of GPUs, "
                    "memory, type of GPU and group. Give more of them the same, or submit fewer",
                    most=MAX_LANES,
                )
            )

    def forecast(
        self,
        spec: Spec,
        devices: Sequence[Device],
        availability: Availability = ALL_FREE,
        count: int = 1,
    ) -> Forecast:
        """Return where and when the last of equal jobs would start. Raises what `submit` raises."""
        self._store.check_room()
        check_environment(spec.env, spec.where)
        self._check(spec, devices, availability)
        self._check_artefacts([spec])
        finish(self._check_dependencies([spec]))
        known = (*self._index.active, *(job.id for job in self._index.ended))
        first, spec, now = 1 + max(known, default=0), bound(spec, devices), time.time()
        *before, job = (Job(first + i, spec, now, Queued()) for i in range(count))
        return self._planner.forecast(job, devices, availability, before)

    def forecast_job(
        self, job_id: int, devices: Sequence[Device], availability: Availability = ALL_FREE
    ) -> Forecast:
        """Return where and when a waiting job will start. Raises NotFound, UserError."""
        job = self._queries.get(job_id)
        if not isinstance(job.state, Queued):
            raise UserError(
                phrase(
                    "job {job} is {status}: it does not wait", job=job_id, status=Text(job.status)
                )
            )
        return self._planner.forecast(job, devices, availability)

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
            self._check_variety([spec])
            same = all(
                getattr(spec, name) == getattr(job.spec, name)
                for name in ("gpus", "memory", "gpu_type")
            )
            check_spec(spec, () if same else devices, availability)
            if devices and not same:  # a job for GPUs that are gone for a moment stays one for GPUs
                spec = bound(spec, devices)
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
    ) -> tuple[Landing, ...]:
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

    def bind(self, devices: Sequence[Device]) -> None:
        """Bind jobs to the kind of device there is, if that was unknown when they came.

        The first of them, in one transaction; `unfinished` says whether others are left.
        """
        unbound = self._index.unbound
        jobs = [self._index.active[job_id] for job_id in nsmallest(staging.PART, unbound)]
        specs = [(job, bound(job.spec, devices)) for job in jobs]
        known = [(with_spec(job, spec), ()) for job, spec in specs if spec.kind]
        self._index.commit_all(known)
        self.unfinished = bool(known and unbound)


def artefacts_used(job: Job) -> tuple[int | None, ...]:
    """Return the numbers of the jobs in whose artefacts a job works."""
    return job.id, job.spec.artefacts_of


def edited(job: Job, changes: Changes) -> Spec:
    """Return the job's spec with the changes. Raises UserError where it is too late for one."""
    made = {
        name: value for name, value in msgspec.structs.asdict(changes).items() if value is not None
    }
    if not made:
        fields = ", ".join(Changes.__struct_fields__)
        raise UserError(f"nothing to change was named. Choose from: {fields}")
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
            f"an administrator put job {job.id} on hold, and only administrators release it"
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
            f"job {beside.id} has the priority {beside.spec.priority}: on a shared daemon only "
            "administrators raise the priority above 0"
        )
    numbers = [j.id for j in waiting]
    passed = waiting[numbers.index(beside.id) + after : numbers.index(job.id)]
    if (others := next((j for j in passed if j.spec.user != mover), None)) is not None:
        raise UserError(
            f"job {job.id} would overtake job {others.id} of another user, which on a shared "
            "daemon only administrators decide"
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
