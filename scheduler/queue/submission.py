"""Submit jobs, and forecast when they would start."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest

from gpudeck.language.text import Text, phrase
from gpudeck.scheduler.attempts import Executors
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import Unsettled, UserError
from gpudeck.scheduler.protocol.job_options import MAX_BATCH
from gpudeck.scheduler.protocol.jobs import (
    Forecast,
    Job,
    Queued,
    Spec,
)
from gpudeck.scheduler.protocol.submissions import digesting, new_token
from gpudeck.scheduler.protocol.turns import PART, Work, light_parts, parts
from gpudeck.scheduler.protocol.wait_texts import explain
from gpudeck.scheduler.queue.admission import (
    bind_kind,
    check_cluster,
    check_dependencies,
    check_environment,
    check_host_limits,
    check_spec,
    check_variety,
)
from gpudeck.scheduler.queue.dependencies import failed_dependency
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.queue.placement import ALL_FREE, Availability
from gpudeck.scheduler.queue.planner import Planner
from gpudeck.scheduler.queue.queries import JobQueries
from gpudeck.scheduler.queue.resubmission import Resubmission
from gpudeck.scheduler.queue.transitions import with_spec
from gpudeck.scheduler.store import Store, staging

HANDLED_BYTES = 2**17
"""What jobs have that are checked, or shown, between two looks at the clock."""
MAX_ARTEFACTS = 100
"""Jobs of one submission that use the artefacts of others."""
UNNAMED = "-"
"""Stands for the digest of a submission without a token."""


class Submission:
    """Submit jobs, all of a request or none."""

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
        self._coming = Counter[int | None]()
        """For each user, the combinations of needs of jobs that are being stored."""
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
            raise UserError(phrase("up to {limit} jobs can be submitted at once", limit=MAX_BATCH))
        if not token:
            return (yield from self._submit(specs, devices, availability, "", ""))
        if token in self._under_way:
            raise Unsettled(
                phrase("the submission with the token {token} is being stored", token=token)
            )
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
                fitting.append(bind_kind(spec, devices))
            yield
        yield from self._check_dependencies(specs)
        self._check_artefacts(specs)
        new = yield from check_variety(self._index.waiting, fitting, self._coming)
        if len(specs) > staging.PART or sum(map(staging.weight, specs)) > staging.PART_BYTES:
            user = fitting[0].user
            self._coming[user] += new
            try:
                return (yield from self._stage(fitting, token or new_token(), contents))
            finally:
                self._coming[user] -= new
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

    def forecast(
        self,
        spec: Spec,
        devices: Sequence[Device],
        availability: Availability = ALL_FREE,
        count: int = 1,
    ) -> Work[Forecast]:
        """Return where and when the last of equal jobs would start. Raises what `submit` raises."""
        self._store.check_room()
        check_environment(spec.env, spec.where)
        self._check(spec, devices, availability)
        self._check_artefacts([spec])
        yield from self._check_dependencies([spec])
        known = (*self._index.active, *(job.id for job in self._index.ended))
        first, spec, now = 1 + max(known, default=0), bind_kind(spec, devices), time.time()
        *before, job = (Job(first + i, spec, now, Queued()) for i in range(count))
        return (yield from self._planner.forecast(job, devices, availability, before))

    def forecast_job(
        self, job_id: int, devices: Sequence[Device], availability: Availability = ALL_FREE
    ) -> Work[Forecast]:
        """Return where and when a waiting job will start. Raises NotFound, UserError."""
        job = self._queries.get(job_id)
        if not isinstance(job.state, Queued):
            raise UserError(
                phrase(
                    "job {job} is {status}: it does not wait", job=job_id, status=Text(job.status)
                )
            )
        return self._planner.forecast(job, devices, availability)

    def bind(self, devices: Sequence[Device]) -> None:
        """Bind jobs to the kind of device there is, if that was unknown when they came.

        The first of them, in one transaction; `unfinished` says whether others are left.
        """
        unbound = self._index.unbound
        jobs = [self._index.active[job_id] for job_id in nsmallest(staging.PART, unbound)]
        specs = [(job, bind_kind(job.spec, devices)) for job in jobs]
        known = [(with_spec(job, spec), ()) for job, spec in specs if spec.kind]
        self._index.commit_all(known)
        self.unfinished = bool(known and unbound)


def artefacts_used(job: Job) -> tuple[int | None, ...]:
    """Return the numbers of the jobs in whose artefacts a job works."""
    return job.id, job.spec.artefacts_of
