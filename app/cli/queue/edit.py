"""Change a job."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_result
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import Job


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and the options that can be changed."""
    arguments.add_job(parser)
    arguments.add_job_options(parser, edit=True)


def run(args: Namespace) -> None:
    """Change the fields of a job that the arguments name."""
    changes = arguments.job_options(args)
    if not changes:
        raise UsageError(
            "name something to change. Example: gpudeck edit 7 --priority 5 --notes 'urgent'"
        )
    with Client() as client:
        print_job(client.edit(args.job, **changes), args)


def print_job(job: Job, args: Namespace) -> None:
    """Print a job's new state."""
    print_result(args, job, f"job {job.id} ({job.spec.name}): {describe(job)}")
