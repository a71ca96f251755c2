"""Requests of the jobs page that need more than one request to the daemon, or its files."""

from __future__ import annotations

import msgspec

from gpudeck.app.link.call import Call
from gpudeck.scheduler.protocol.job_options import make_spec
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.log_file import Output
from gpudeck.scheduler.protocol.search import Search
from gpudeck.scheduler.protocol.submissions import PendingTokens
from gpudeck.scheduler.verbs.submit import SubmitMany

FIRST_TAIL = 64 * 1024
"""Bytes of a log that are shown at first."""
PAGE = 100
"""Jobs in a page of the history."""


class RepeatJob(msgspec.Struct, frozen=True):
    """Queue the command of a job again, with its options, in the window's environment.

    The new job is not held and waits for no other jobs.
    """

    job: int

    def carry_out(self, call: Call) -> Job:
        """Submit the job and return it."""
        with call.client() as client:
            spec = client.job(self.job).spec  # lists may hold only the beginning of the command
            env = make_spec(spec.argv, {"where": spec.where}).env  # a cluster does not get ours
            new = msgspec.structs.replace(
                spec, env=env, kind="", after=(), after_any=(), hold=False
            )
            tokens = call.service(PendingTokens)
            request = SubmitMany.of([new], tokens.token_of([new]))
            job = client.send(request)[0]
            tokens.answered(request.token)
            return job


class SearchJobs(msgspec.Struct, frozen=True):
    """Search all jobs: a page of those with numbers below `before`."""

    search: Search
    before: int

    def carry_out(self, call: Call) -> tuple[tuple[Job, ...], int | None]:
        """Return the page, newest job first, and where the next page begins, if there is one."""
        with call.client() as client:
            return client.find(self.search, PAGE, self.before)


class ReadLog(msgspec.Struct, frozen=True):
    """Read a job's log from `offset` on; without an offset, its last part."""

    job: int
    offset: int | None = None

    def carry_out(self, call: Call) -> Output:
        """Return the output and its place in the log."""
        with call.client() as client:
            return client.log_part(self.job, -FIRST_TAIL if self.offset is None else self.offset)
