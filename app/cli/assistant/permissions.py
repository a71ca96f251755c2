"""List what the assistant must never propose, or allow it again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli.output import print_result
from gpudeck.assistant.tools.permissions import forget
from gpudeck.scheduler.client import Client


def add_arguments(parser: ArgumentParser) -> None:
    """Add the tools to allow again."""
    parser.add_argument(
        "--forget",
        action="append",
        default=[],
        metavar="TOOL",
        help="allow the assistant to propose TOOL again, e.g. 'operate cancel'; can be repeated",
    )


def run(args: Namespace) -> None:
    """Print the tools that must never be proposed."""
    with Client() as client:
        never = forget(client, *args.forget)
    if never:
        text = (
            f"Blocked actions: {', '.join(never)}. "
            f"To allow one again: gpudeck permissions --forget '{never[0]}'"
        )
    else:
        text = "The assistant may propose anything it can do. It does nothing until you allow it."
    print_result(args, {"never": never}, text)
