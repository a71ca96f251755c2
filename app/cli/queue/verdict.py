"""Judge how a job used its devices."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import print_result
from gpudeck.app.runs.verdicts import read_verdicts
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the job."""
    arguments.add_job(parser)


def run(args: Namespace) -> None:
    """Print the verdicts, each with its certainty."""
    with Client() as client:
        found = read_verdicts(client, args.job)
    lines = [f"{verdict.certainty}: {verdict.text}" for verdict in found]
    print_result(args, found, *(lines or ["Nothing stands out in the readings of this job."]))
