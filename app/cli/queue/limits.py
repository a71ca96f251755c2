"""List, set and remove the limits of the users of a shared daemon."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_json, print_line, print_table
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.user_limits import EVERYBODY, UserLimits

_EXAMPLE = "gpudeck limits ann --gpus 4 --gpu-hours 100"


def add_arguments(parser: ArgumentParser) -> None:
    """Add the user and the limits."""
    add = parser.add_argument
    add(
        "user",
        nargs="?",
        metavar="USER",
        help=f"the user whose limits are set; '{EVERYBODY}' for all users without limits of their "
        "own, except root",
    )
    add("--gpus", type=arguments.count, metavar="N", help="GPUs that the jobs may hold at once")
    add(
        "--gpu-hours",
        type=float,
        metavar="N",
        help="GPU-hours within seven days after which no further job starts; jobs that run go on",
    )
    add("--remove", action="store_true", help="remove the limits of the user")


def run(args: Namespace) -> int:
    """Set or remove limits if the arguments name a user, then list all of them."""
    chosen = args.gpus is not None or args.gpu_hours is not None
    if (args.user is not None) != (chosen or args.remove) or (chosen and args.remove):
        raise UsageError(f"name a user with a limit, or with --remove. Example: {_EXAMPLE}")
    with Client() as client:
        if args.user is None:
            settings = client.snapshot(live=False).settings
        else:
            limits = None if args.remove else UserLimits(args.gpus or 0, args.gpu_hours or 0.0)
            settings = client.set_limits(args.user, limits)
    if args.json:
        print_json(settings.limits)
    elif settings.limits:
        rows = [
            (user, *(f"{number:g}" if number else "any" for number in (o.gpus, o.gpu_hours)))
            for user, o in sorted(settings.limits.items())
        ]
        print_table([("USER", "GPUS AT ONCE", "GPU-HOURS A WEEK"), *rows], right=(1, 2))
    else:
        print_line(f"No limits. Example: {_EXAMPLE}")
    return 0
