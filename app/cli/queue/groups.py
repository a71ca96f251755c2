"""List the groups of jobs, or set the limit of a group."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_list
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.jobs import GroupState


def add_arguments(parser: ArgumentParser) -> None:
    """Add the group and its limit."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the group whose limit is set")
    parser.add_argument(
        "--limit",
        type=arguments.count,
        metavar="N",
        help="how many jobs of the group may run at once; 0 means no limit",
    )


def run(args: Namespace) -> None:
    """Set a group's limit if the arguments name one, then list all groups."""
    if (args.name is None) != (args.limit is None):
        raise UsageError(
            "a limit needs a group and a number. Example: gpudeck groups training --limit 2"
        )
    with Client() as client:
        if args.name is None:
            groups = client.groups()
        else:
            groups = client.set_group(args.name, limit=args.limit)
    print_list(
        args, groups, ("GROUP", "WAITING", "RUNNING", "LIMIT", ""), [_row(each) for each in groups],
        "No groups. Put a job into one with: gpudeck submit --group NAME -- COMMAND",
        right=(1, 2, 3),
    )  # fmt: skip


def _row(state: GroupState) -> tuple[str, ...]:
    limit = str(state.group.limit or "none")
    paused = "paused" if state.group.paused else ""
    return state.group.name, str(state.waiting), str(state.running), limit, paused
