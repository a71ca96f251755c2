"""Run a command while a GPU is idle, and leave the GPU at once when it is needed."""

from __future__ import annotations

from argparse import REMAINDER, ArgumentParser, Namespace

from gpudeck.app.cli.output import UsageError, show_progress
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the command, and what it needs."""
    parser.add_argument(
        "--memory",
        default="0",
        metavar="SIZE",
        help="wait for a GPU with so much free memory, e.g. 8GiB",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="end when the GPU is needed, instead of beginning anew with the next idle GPU",
    )
    parser.add_argument("command", nargs=REMAINDER, metavar="COMMAND", help="the command to run")


def run(args: Namespace) -> int:
    """Run the command; the exit status is that of the command."""
    words = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not words:
        raise UsageError("missing command. Example: gpudeck when-idle -- python nightly.py")
    with Client() as daemon:
        status: int = daemon.run_when_idle(
            words,
            memory=args.memory,
            again=not args.once,
            on_wait=lambda reason: show_progress(f"waiting: {reason}"),
        )
    return status if status >= 0 else 128 - status
