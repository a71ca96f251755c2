"""Print what a job measured, or write it to a file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import msgspec

from gpudeck.accel.workloads.summary import lines
from gpudeck.app.cli import arguments
from gpudeck.app.cli.connection import with_retries
from gpudeck.app.cli.output import print_result
from gpudeck.app.format.results import own_lines, result_of
from gpudeck.app.workloads.result_export import save_result, whole
from gpudeck.language.text import phrase
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Job


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job, and the file to write."""
    arguments.add_job(parser)
    parser.add_argument(
        "--out", metavar="FILE", help="write the result to FILE; its name ends with .csv or .json"
    )


def run(args: Namespace) -> None:
    """Print a summary of a job's result, or all of it with --json or --out."""
    job = with_retries(lambda client: client.job(args.job))
    result = result_of(job)
    if result is None:
        _print_own(args, job)
    elif args.out:
        save_result(job, Path(args.out))
        print_result(args, whole(result), f"The result of job {job.id} is in {args.out}.")
    else:
        print_result(args, whole(result), *lines(result))


def _print_own(args: Namespace, job: Job) -> None:
    """Print the JSON object that a job left which is no workload, or its last values."""
    if job.result is None:
        raise UserError(phrase("job {job} left no result. See: gpudeck logs {job}", job=job.id))
    if args.out:
        raise UserError(
            phrase(
                "the result of job {job} is its own JSON object. Use: gpudeck "
                "results {job} --json > FILE",
                job=job.id,
            )
        )
    members = msgspec.json.decode(job.result, type=dict[str, Any])
    print_result(args, members, *own_lines(members))
