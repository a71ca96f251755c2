"""Pause jobs, a group, or the whole queue."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_result
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Job, suspension_of


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs or the group; without either, the command applies to the whole queue."""
    parser.add_argument(
        "jobs", type=arguments.count, nargs="*", metavar="JOB", help="numbers of jobs"
    )
    parser.add_argument("--group", metavar="NAME", help="all jobs of this group")


def run(args: Namespace) -> None:
    """Pause what the arguments name."""
    set_paused(args, True)


def set_paused(args: Namespace, paused: bool) -> None:
    """Pause or resume what the arguments name."""
    if args.jobs and args.group is not None:
        raise UsageError("name either jobs or a group, not both")
    with Client() as client:
        if args.jobs:
            jobs = [_set_job(client, job, paused) for job in args.jobs]
            print_result(args, jobs, *(f"job {job.id}: {describe(job)}" for job in jobs))
            return
        if args.group is not None:
            client.set_group(args.group, paused=paused)
        else:
            client.pause(paused)
    what = "The queue" if args.group is None else f"Group {args.group}"
    became = "paused; no new jobs start" if paused else "no longer paused"
    print_result(args, {"paused": paused}, f"{what} is {became}.")


def _set_job(client: Client, number: int, paused: bool) -> Job:
    """Hold a job, release it, or bring back a suspended one."""
    if not paused and suspension_of(client.job(number)) is not None:
        return client.resume_job(number)
    return client.hold(number, paused)
