"""Queue a command as a job, or as an array of jobs."""

from __future__ import annotations

import os
import time
from argparse import REMAINDER, ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from gpudeck.accel.inject.command import injected
from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_error, print_result
from gpudeck.app.cli.queue.delivery import deliver
from gpudeck.app.format.command_check import command_warning
from gpudeck.app.format.job_rows import device_labels, forecast_text
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.submissions import indexed


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of a submission."""
    arguments.add_job_options(parser)
    parser.add_argument(
        "--array",
        type=arguments.array_indices,
        metavar="0-9",
        help="submit one job for each index; the job reads it from GPUDECK_ARRAY_INDEX",
    )
    add_token(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="submit nothing; print where and when the job would start",
    )
    parser.add_argument(
        "--inject",
        action="store_true",
        help="while a Python script runs, replace the attention in it and in the modules beside "
        "it by accelerated attention; no file is changed, and the job's result says what was "
        "replaced",
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait for the job to end; the exit status is 0 if it succeeded",
    )
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="the command to run")


def add_token(parser: ArgumentParser) -> None:
    """Add the token of a submission."""
    parser.add_argument(
        "--token",
        metavar="NAME",
        help="name for this submission; if you submit again with the same name, you get the same "
        "job and nothing new is queued",
    )


def run(args: Namespace) -> int:
    """Submit a job, submit an array, or predict where and when a job would start."""
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command or not command[0]:
        raise UsageError("missing command. Example: gpudeck submit --gpus 1 -- python train.py")
    if args.array is not None and args.wait:
        raise UsageError("--wait waits for one job and cannot be combined with --array")
    if args.env and not (args.where or args.container):
        raise UsageError(
            "--env needs --on CLUSTER or --container IMAGE; otherwise a job gets your environment "
            "variables"
        )
    if args.inject and args.container:
        raise UsageError("--inject changes programs of this machine, not those in a container")
    if args.inject:
        try:
            command = injected(command)
        except ValueError as e:
            raise UsageError(f"--inject: {e}") from e
    with Client() as client:
        spec = client.spec(command, arguments.job_options(args))
        _warn_of_command(command, args)
        specs = [spec] if args.array is None else indexed(spec, args.array)
        if args.dry_run:
            forecast = client.foresee_spec(spec)
            labels = device_labels(client.snapshot())
            print_result(args, forecast, forecast_text(forecast, labels, time.time()))
            return 0
        return deliver(client, args, specs, lambda token: client.submit_many(specs, token=token))


def _warn_of_command(command: Sequence[str], args: Namespace) -> None:
    """Print a warning if this machine does not have the command; a job before it may make it."""
    if not (args.where or args.container or args.after or args.after_any):
        folder = str(Path(args.cwd or ".").absolute())
        if warning := command_warning(command, folder, os.environ.get("PATH", "")):
            print_error(f"warning: {warning}")
