"""Resume jobs, a group, the whole queue, or a program that was taken off the GPU."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.devices import suspend
from gpudeck.app.cli.output import UsageError
from gpudeck.app.cli.queue import pause


def add_arguments(parser: ArgumentParser) -> None:
    """Add the jobs, the group or the program; without any, the command applies to the queue."""
    pause.add_arguments(parser)
    parser.add_argument(
        "--pid", type=arguments.count, metavar="PID", help="a program, as in: gpudeck suspend"
    )


def run(args: Namespace) -> None:
    """Resume what the arguments name."""
    if args.pid is None:
        pause.set_paused(args, False)
    elif args.jobs or args.group is not None:
        raise UsageError("name either a program, jobs or a group")
    else:
        suspend.resume(args)
