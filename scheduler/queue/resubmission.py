"""Submissions that are sent again, by their tokens: nothing of them is queued twice, or left out.

The store may have lost jobs of a submission. Those that began were restored, with the token, from
the evidence of their attempts. Those that certainly did not begin are queued again, in their old
places. Where that is unclear, a job stays lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gpudeck.language.text import phrase
from gpudeck.scheduler.attempts import may_have_begun
from gpudeck.scheduler.protocol.devices import Device
from gpudeck.scheduler.protocol.errors import NotFound, Unsettled, UserError
from gpudeck.scheduler.protocol.jobs import Job, Queued, Spec
from gpudeck.scheduler.protocol.submissions import SubmissionRecord
from gpudeck.scheduler.protocol.turns import Work, parts
from gpudeck.scheduler.queue.admission import bind_kind
from gpudeck.scheduler.queue.job_index import JobIndex
from gpudeck.scheduler.store import Store
from gpudeck.scheduler.store.store import is_gone


class Resubmission:
    """Find what was submitted before."""

    def __init__(self, store: Store, index: JobIndex) -> None:
        self._store, self._index = store, index

    def jobs_of(self, token: str) -> Work[list[Job]]:
        """Return the jobs that were submitted with this token, as they are now.

        Raises:
            NotFound: there are none.
            Unsettled: that cannot be found out now.
        """
        found = self._find(token)
        jobs = [] if found is None else (yield from self._stored(found))
        if not jobs:
            raise NotFound(phrase("no job was queued with the token {token}", token=token))
        return [self._index.active.get(job.id, job) for job in jobs]

    def repeat(
        self, token: str, contents: str, specs: Sequence[Spec], devices: Sequence[Device]
    ) -> Work[list[Job] | None]:
        """Return the jobs of the submission that is repeated; None where it is a new one.

        Raises:
            UserError: the token belongs to another submission.
            Unsettled: whether it was queued before cannot be found out now.
        """
        record = self._find(token)
        if record is None:
            return None
        if record.digest != contents:
            raise UserError(
                phrase(
                    "the token {token} belongs to another submission. To see its "
                    "jobs: gpudeck jobs --token {token}",
                    token=token,
                )
            )
        jobs = yield from self._stored(record)
        self._refill(record, jobs, specs, devices)
        return (yield from self.jobs_of(token))

    def _stored(self, record: SubmissionRecord) -> Work[list[Job]]:
        """Return the jobs of a submission as they are stored. Raises Unsettled."""
        jobs: list[Job] = []
        for part in parts(record.numbers):
            try:
                jobs += self._store.between(part[0], part[-1] + 1)
            except UserError as e:
                raise Unsettled(e.message) from e
            yield
        return jobs

    def _find(self, token: str) -> SubmissionRecord | None:
        try:
            found = self._store.submission(token)
        except UserError as e:
            raise Unsettled(e.message) from e
        if found is None and self._index.unrestored and self._store.may_have_lost:
            raise Unsettled(self._index.unrestored)
        return found

    def _refill(
        self,
        record: SubmissionRecord,
        jobs: Sequence[Job],
        specs: Sequence[Spec],
        devices: Sequence[Device],
    ) -> None:
        """Queue the jobs again of which the store lost everything, and which never began."""
        known = {job.id for job in jobs if not is_gone(job)}
        now = time.time()
        left = [
            Job(number, bind_kind(spec, devices), now, Queued())
            for number, spec in zip(record.numbers, specs, strict=True)
            if number not in known and not may_have_begun(number)
        ]
        if not left:
            return
        try:
            queued = self._store.refill(left)
        except UserError as e:
            raise Unsettled(e.message) from e
        for job in queued:
            self._index.revive(job)
