"""Requests of the jobs page that need more than one request to the daemon, or its files."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudeck.app.link.call import Call
from gpudeck.app.runs.verdicts import Verdict, read_verdicts
from gpudeck.scheduler.protocol.job_options import environment_of
from gpudeck.scheduler.protocol.jobs import Job, repeated
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.submissions import PendingTokens
from gpudeck.scheduler.verbs.submit import SubmitMany

FIRST_TAIL = 64 * 1024
"""Bytes of a log that are shown at first."""
PAGE = 100
"""Jobs in a page of the history."""


class RepeatJobs(msgspec.Struct, frozen=True):
    """Queue the commands of jobs again, with their options, in the window's environment.

    The new jobs are not held and wait for no other jobs.
    """

    jobs: tuple[int, ...]
    changes: dict[str, Any] = {}
    """The fields of Spec that differ."""
    artefacts: bool = False
    """The new jobs work in the artefacts of the old ones."""

    def carry_out(self, call: Call) -> tuple[Job, ...]:
        """Submit the jobs and return them."""
        with call.client() as client:
            new = []
            for number in self.jobs:
                job = client.job(number)  # lists may hold only the beginning of the command
                env = {} if job.spec.where else environment_of(None)  # not ours in a cluster
                new.append(repeated(job, env, self.artefacts, self.changes))
            tokens = call.service(PendingTokens)
            request = SubmitMany.of(new, tokens.token_of(new))
            jobs = client.send(request)
            tokens.answered(request.token)
            return jobs


class SearchJobs(msgspec.Struct, frozen=True):
    """Search all jobs: a page of those with numbers below `before`."""

    search: Search
    before: int

    def carry_out(self, call: Call) -> tuple[tuple[Job, ...], int | None]:
        """Return the page, newest job first, and where the next page begins, if there is one."""
        with call.client() as client:
            return client.find(self.search, PAGE, self.before)


class ReadVerdicts(msgspec.Struct, frozen=True):
    """Judge by readings how a job used its devices."""

    job: int

    def carry_out(self, call: Call) -> tuple[Verdict, ...]:
        """Return the verdicts."""
        with call.client() as client:
            return read_verdicts(client, self.job)


class ReadLog(msgspec.Struct, frozen=True):
    """Read a job's log from `offset` on; without an offset, its last part."""

    job: int
    offset: int | None = None
    attempt: int | None = None
    """The number of an attempt; None for the newest one."""

    def carry_out(self, call: Call) -> Output:
        """Return the output and its place in the log."""
        offset = -FIRST_TAIL if self.offset is None else self.offset
        with call.client() as client:
            return client.log_part(self.job, offset, attempt=self.attempt)
