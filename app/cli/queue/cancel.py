"""Cancel jobs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_error, print_result
from gpudeck.app.cli.queue.named import only_active
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Cancelling
from gpudeck.scheduler.protocol.units import numbered

MAX_NAMED = 5
"""Of more jobs than this, only the first and the last are named."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs, the array, or the group to cancel."""
    parser.add_argument(
        "jobs",
        type=arguments.job_or_range,
        nargs="*",
        metavar="JOB",
        help="numbers of jobs, a range such as 9-200, or names",
    )
    parser.add_argument(
        "--array", type=arguments.count, metavar="JOB", help="all jobs of the array this job is in"
    )
    parser.add_argument("--group", metavar="NAME", help="all jobs of this group")


def run(args: Namespace) -> int:
    """Cancel jobs.

    A single job that has already ended is an error; of several, the others are cancelled.
    """
    if sum(map(bool, (args.jobs, args.array is not None, args.group))) != 1:
        raise UsageError(
            "name one of JOB..., --array JOB or --group NAME. See: gpudeck cancel --help"
        )
    with Client() as client:
        jobs = [
            each if isinstance(each, range) else only_active(client, each) for each in args.jobs
        ]
        if len(jobs) == 1 and isinstance(jobs[0], int):
            job = client.cancel(jobs[0])
            print_result(args, job, f"job {job.id}: {'stopping' if job.active else 'cancelled'}")
            return 0
        done = client.cancel_many(jobs, array=args.array, group=args.group or "")
    print_result(args, done, *_describe(done))
    if done.missing:
        print_error(f"there is no {_name_jobs(done.missing)}. See: gpudeck jobs")
    return 1 if done.missing else 0


def _describe(done: Cancelling) -> Iterator[str]:
    outcomes = (
        (done.cancelled, "cancelled"),
        (done.ending, "stopping"),
        (done.ended, "had already ended"),
    )
    for jobs, outcome in outcomes:
        if jobs:
            yield f"{_name_jobs(jobs)}: {outcome}"
    if not (done.cancelled or done.ending or done.ended):
        yield "Nothing to cancel: none of these jobs is waiting or running."


def _name_jobs(jobs: Sequence[int]) -> str:
    """Return a list such as "jobs 3 and 4", or "200 jobs from 3 to 950"."""
    if len(jobs) <= MAX_NAMED:
        return numbered(jobs)
    return f"{len(jobs)} jobs from {jobs[0]} to {jobs[-1]}"
