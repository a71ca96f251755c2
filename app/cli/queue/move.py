"""Move a job that waits within the queue."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError
from gpudeck.app.cli.queue.edit import print_job
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and its new neighbor."""
    arguments.add_job(parser)
    parser.add_argument(
        "--before", type=arguments.count, metavar="JOB", help="move it before this job"
    )
    parser.add_argument(
        "--after", type=arguments.count, metavar="JOB", help="move it after this job"
    )


def run(args: Namespace) -> int:
    """Move the job."""
    if (args.before is None) == (args.after is None):
        raise UsageError("name one other job: --before JOB or --after JOB")
    with Client() as client:
        return print_job(client.move(args.job, before=args.before, after=args.after), args)
