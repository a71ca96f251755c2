"""Add a note to a job's timeline."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_result
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job and the text."""
    arguments.add_job(parser)
    parser.add_argument("text", metavar="TEXT", help="the note, in quotes")


def run(args: Namespace) -> None:
    """Add the note; `gpudeck jobs JOB` shows it."""
    with Client() as client:
        job = client.note(args.job, args.text)
    print_result(args, job, f"The note was added to the timeline of job {job.id}.")
