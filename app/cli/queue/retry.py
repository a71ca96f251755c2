"""Queue a job that has ended once more."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_result
from gpudeck.app.format.job_rows import describe
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and whether the new one gets its artefacts."""
    arguments.add_job(parser)
    parser.add_argument(
        "--artefacts",
        action="store_true",
        help="let the new job work in the artefacts of the old one, e.g. to go on from a "
        "checkpoint",
    )


def run(args: Namespace) -> int:
    """Submit the job again, with the present environment."""
    with Client() as client:
        job = client.retry(args.job, artefacts=args.artefacts)
    print_result(args, job, f"job {job.id}: {describe(job)}")
    return 0
