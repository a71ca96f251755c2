"""List, set and remove the limits of the users of a shared daemon."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from gpudeck.app.cli import arguments
from gpudeck.app.cli.output import UsageError, print_list
from gpudeck.language.numbers import GIB
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.user_limits import EVERYBODY, UserLimits

_HEADING = ("USER", "GPUS AT ONCE", "GPU-HOURS A WEEK", "SUSPENDED MEMORY", "JOBS")
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
    add(
        "--suspended-memory",
        type=arguments.size,
        metavar="SIZE",
        help="host memory that the suspended jobs may hold; a job that needs more is not suspended",
    )
    add(
        "--preemptible",
        action="store_true",
        help="the jobs are preemptible, whether or not they say so",
    )
    add("--remove", action="store_true", help="remove the limits of the user")


def run(args: Namespace) -> None:
    """Set or remove limits if the arguments name a user, then list all of them."""
    memory = 0.0 if args.suspended_memory is None else args.suspended_memory / GIB
    wanted = UserLimits(args.gpus or 0, args.gpu_hours or 0.0, memory, args.preemptible)
    named = (args.gpus, args.gpu_hours, args.suspended_memory)
    chosen = args.preemptible or any(value is not None for value in named)
    if (args.user is not None) != (chosen or args.remove) or (chosen and args.remove):
        raise UsageError(f"name a user with a limit, or with --remove. Example: {_EXAMPLE}")
    with Client() as client:
        if args.user is None:
            settings = client.snapshot(live=False).settings
        else:
            settings = client.set_limits(args.user, None if args.remove else wanted)
    rows = [_row(user, limits) for user, limits in sorted(settings.limits.items())]
    print_list(
        args, settings.limits, _HEADING, rows, f"No limits. Example: {_EXAMPLE}", right=(1, 2, 3)
    )


def _row(user: str, limits: UserLimits) -> tuple[str, ...]:
    gpus = str(limits.gpus or "any")
    hours = f"{limits.gpu_hours:g}" if limits.gpu_hours else "any"
    memory = f"{limits.suspended_memory:g} GiB" if limits.suspended_memory else "any"
    return user, gpus, hours, memory, "preemptible" if limits.preemptible else ""
